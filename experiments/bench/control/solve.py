"""Shipped control experiments until they are solved: one run in a process of its own. A script.

`WHO_TASK SEED` → `{"steps": …, "seconds": …, "cpu_s": …, "return": …}` on the last line. Time is that of training;
preparations (imports, Ray, the first weights) are not counted.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

from loomrl.experiments.bench.control.contender import cpu_s

SOLVED = 475.0
"""Mean return of the latest 100 training episodes of CartPole."""
EPISODES = 100
"""Greedy episodes for evaluating a pendulum, because 10,000 steps of training are only 50 episodes."""


def ours_cartpole(seed: int) -> dict[str, float]:
    """`experiments/control/cartpole.yaml` until it is solved."""
    algo, experiment = _ours("control/cartpole", seed)
    told = _time_call(lambda: _train(algo, experiment.train.steps, target=SOLVED))
    return told | {"steps": algo.env_steps, "return": algo.window.mean_of(100) or 0.0}


def ours_pendulum(seed: int) -> dict[str, float]:
    """`experiments/control/pendulum.yaml` for 10,000 steps."""
    from loomrl.experiments.evaluate_control import judge_control

    algo, experiment = _ours("control/pendulum", seed)
    told = _time_call(lambda: _train(algo, 10_000))
    report = judge_control(algo.policy(), experiment.override({"evaluation.episodes": EPISODES}), name="")
    return told | {"steps": algo.env_steps, "return": report.overall.reward.mean or 0.0}


def _ours(name: str, seed: int) -> tuple[Any, Any]:
    from loomrl.experiments.algorithms import open_algorithm
    from loomrl.experiments.shipped import resolve

    experiment = resolve([name, f"seed={seed}"])
    return open_algorithm(experiment).build_algo(), experiment


def _train(algo: Any, steps: int, *, target: float = math.inf) -> None:
    """Train until the target is reached, or the next iteration would exceed `steps`."""
    taken = 0
    while algo.env_steps + taken <= steps and (algo.window.mean_of(100) or -math.inf) < target:
        before = algo.env_steps
        algo.train()
        taken = algo.env_steps - before


def _time_call(work: Callable[[], Any]) -> dict[str, float]:
    cpu = cpu_s()
    wall = time.perf_counter()
    work()
    return {"cpu_s": cpu_s() - cpu, "seconds": time.perf_counter() - wall}


TASKS = {"ours_cartpole": ours_cartpole, "ours_pendulum": ours_pendulum}


def main() -> None:
    """Run one task; see the module's docstring."""
    import torch

    torch.set_num_threads(1)
    print(json.dumps(TASKS[sys.argv[1]](int(sys.argv[2]))))


if __name__ == "__main__":
    main()
