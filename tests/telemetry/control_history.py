"""Histories of control runs: real ones on file, and such as a seed makes.

In `histories` are runs that learn: PPO on CartPole (`ppo_cartpole`: learning_rate=2e-3, gae_lambda=0.8, gamma=0.98,
epochs=10) and Acrobot (learning_rate=1e-3), SAC on Pendulum (actor_rate=critic_rate=1e-3), and, slowly, PPO on Pendulum
(learning_rate=1e-3, gamma=0.9). And some of PPO on CartPole that do not: `ppo_flat` (learning_rate=1e-9), `ppo_certain`
(0.1), `ppo_too_far` (0.03), `ppo_collapse` (5e-3 with clip.low=0.9, clip.high=9). `sac_idle` is SAC by its defaults on
MountainCarContinuous, which ends at a return of 0.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import read_metrics

History = list[dict[str, float]]
Course = Callable[[float, random.Random], float]
"""A metric's value, given how far the run is (0 to 1)."""


def recorded(name: str) -> History:
    """One that is on file."""
    rows = read_metrics(Path(__file__).parent / "histories" / f"{name}.jsonl")
    assert rows, name
    return rows


def made(over: Mapping[Metric, Course] | None = None, *, rows: int = 100, seed: int = 0) -> History:
    """A healthy, noisy run of PPO that goes from −1,300 to −150, evaluated every fifth row; `over` replaces metrics."""
    courses: dict[Metric, Course] = {
        Metric.RETURN: lambda x, r: rising(x) + r.gauss(0, 8),
        Metric.RETURN_EVALUATED: lambda x, r: rising(x) + 50 + r.gauss(0, 60),
        Metric.EPISODE_STEPS: lambda *_: 200.0,
        Metric.POLICY_LOSS: lambda _, r: r.gauss(0, 0.02),
        Metric.POLICY_ENTROPY: lambda x, r: 0.7 - 0.4 * x + abs(r.gauss(0, 0.01)),
        Metric.POLICY_STEP_KL: lambda _, r: abs(r.gauss(0.01, 0.01)),
        Metric.POLICY_CLIP_FRACTION: lambda _, r: abs(r.gauss(0.08, 0.05)),
        Metric.VALUE_LOSS: lambda _, r: 50 + abs(r.gauss(0, 20)),
        Metric.VALUE_EXPLAINED_VARIANCE: lambda x, r: 0.6 * x + r.gauss(0.2, 0.1),
        Metric.GRADIENT_NORM: lambda _, r: 30 + abs(r.gauss(0, 20)),
        Metric.ENV_STEPS_PER_S: lambda _, r: r.gauss(9000, 300),
        **(over or {}),
    }
    return simulated(courses, rows, seed, step=1024)


def simulated(courses: Mapping[Metric, Course], rows: int, seed: int, *, step: int = 1) -> History:
    """So many rows of these metrics; returns are evaluated every fifth row."""
    rng = random.Random(seed)
    return [
        {
            "step": step * row,
            **{
                str(metric): course(row / rows, rng)
                for metric, course in courses.items()
                if metric not in (Metric.RETURN_EVALUATED, Metric.RETURN_AHEAD) or row % 5 == 0
            },
        }
        for row in range(1, rows + 1)
    ]


def rising(x: float) -> float:
    """From −1,300 to −150."""
    return -1300 + 1150 * (1 - math.exp(-4 * x)) / (1 - math.exp(-4))


def played(mean: Course, deviation: float, *, episodes_per_row: int, rows: int = 100, seed: int = 0) -> History:
    """Episodes one by one, each row with the mean of the latest hundred: neighbours have most of them in common."""
    rng, latest, history = random.Random(seed), deque[float](maxlen=100), []
    for row in range(1, rows + 1):
        latest.extend(mean(row / rows, rng) + rng.gauss(0, deviation) for _ in range(episodes_per_row))
        steps = 200.0
        history.append(
            {
                "step": row * episodes_per_row * steps,
                str(Metric.RETURN): sum(latest) / len(latest),
                str(Metric.EPISODE_STEPS): steps,
            }
        )
    return history
