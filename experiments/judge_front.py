"""Judging a policy of several objectives: once more for every preference, and then the front of all of them."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial

import numpy as np
from rich.console import Console

from experiments.output import table
from loomrl.config import ControlExperiment, Weave
from loomrl.control.environment import open_environment
from loomrl.control.play import Acts, play_each
from loomrl.control.preference import Always, Preferred, Steering, VectorRewards, grouped, lattice
from loomrl.evaluation.front_report import FrontReport, Played, judge_front
from loomrl.evaluation.statistics import Interval

MOST = 101
"""Preferences, where it is not said how many."""


def judged(policy: Acts, experiment: ControlExperiment, *, name: str, seed: int) -> FrontReport:
    """Every preference plays its episodes in an environment of its own. Equal policies get equal reports."""
    settings, algorithm = experiment.evaluation, experiment.algorithm
    assert isinstance(algorithm, Weave)
    preferences = lattice(len(algorithm.objectives), settings.preferences or MOST)
    with closing(VectorRewards([partial(_opened, experiment, tuple(row.tolist())) for row in preferences])) as opened:
        pays = algorithm.tree.leaves
        returns, steps = play_each(policy, opened, settings.episodes, seed=seed, gamma=algorithm.gamma, pays=pays)
    return judge_front(
        name,
        Played(preferences, grouped(returns, algorithm.tree), steps),
        objectives=algorithm.tree.names,
        reference=algorithm.reference,
        confidence=settings.confidence,
    )


def _opened(experiment: ControlExperiment, weights: tuple[float, ...]) -> Preferred:
    choice, algorithm = experiment.environment, experiment.algorithm
    assert isinstance(algorithm, Weave)
    steering = Steering.of(algorithm, source=Always(weights))
    return Preferred(open_environment(choice, choice.settings), steering)


def render(report: FrontReport, console: Console) -> None:
    """The front: per point the preferences that lead there, and what they bring."""
    console.print(
        table(f"Front of {report.policy}", ("preference", *(f"{o}>" for o in report.objectives)), _rows(report))
    )
    said = [f"{len(report.front)} points", f"expected utility {report.expected_utility:.4g}"]
    said.append(f"sparsity {report.sparsity:.4g}")
    if report.hypervolume is not None and report.reference is not None:
        said.insert(1, f"hypervolume {report.hypervolume:.6g} from {list(report.reference)}")
    console.print(", ".join(said), highlight=False)


def _rows(report: FrontReport) -> Sequence[tuple[str, ...]]:
    """Of every point on the front, the first preference that leads there."""
    rows, left = [], {tuple(point) for point in report.front}
    for steered in report.by_preference:
        point = tuple(float(interval.mean or 0.0) for interval in steered.returns)
        near = next((other for other in left if np.allclose(other, point)), None)
        if near is not None:
            left.discard(near)
            preference = " ".join(f"{weight:.2f}" for weight in steered.preference)
            rows.append((preference, *(_cell(interval) for interval in steered.returns)))
    return rows


def _cell(interval: Interval) -> str:
    mean = f"{interval.mean:.4g}"
    return mean if interval.count < 2 else f"{mean}  [{interval.low:.4g}, {interval.high:.4g}]"
