"""Evaluations and histories of runs that never were."""

from typing import Any

from loomrl.evaluation.report import judge
from loomrl.evaluation.returns import judge_returns
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.report import RunReport
from loomrl.types import End, Reward, Task, Trajectory


def judged(rights: int, *, families: tuple[str, ...] = ("algebra",), count: int = 100) -> dict[str, Any]:
    """The evaluation of a language policy that solves this many of the tasks."""

    def attempt(index: int) -> Trajectory:
        right = float(index < rights)
        task = Task("Math", "1", families[index % len(families)], 1 + 9 * (index % 2), index)
        return Trajectory(
            id=str(index),
            task=task,
            turns=(),
            end=End.TERMINATED,
            reward=Reward(right, {"r": right}, right),
            group=str(index),
        )

    return judge("p", map(attempt, range(count))).as_dict()


def returns(*rewards: float, steps: int = 200) -> dict[str, Any]:
    """The evaluation of a control policy with these returns."""
    return judge_returns("p", rewards, [steps] * len(rewards)).as_dict()


def rows(updates: int) -> list[dict[str, float]]:
    """The metrics of a language run."""
    return [
        {"step": n, "time": n * 1.5, Metric.SUCCESS: n / 100, Metric.POLICY_KL: n / 700} for n in range(1, updates + 1)
    ]


def report(history: list[dict[str, float]], **over: Any) -> RunReport:
    """A run of these metrics."""
    settled: dict[str, Any] = {
        "title": "A run",
        "run": "run-1",
        "experiment": "ab" * 32,
        "machine": "2 cores",
        "date": "2026-01-01",
        "took": "3 min 42 s",
        "status": "all updates done",
        "history": history,
    }
    return RunReport(**{**settled, **over})
