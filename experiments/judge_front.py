"""Evaluation of a policy of several objectives: for every preference, and the front of all of them."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loomrl.config import ControlExperiment, Weave
from loomrl.control.environment import open_environment
from loomrl.control.play import ActingPolicy, play_each
from loomrl.control.preference import Always, Preferred, Steering, VectorRewards, group_returns, lattice
from loomrl.evaluation.front import FrontReport, PreferenceEpisodes, judge_front
from loomrl.evaluation.returns import Cut, ReturnReport
from loomrl.telemetry.plot import plot_fronts

MOST = 101
"""Default number of preferences."""
PICTURE = "front.svg"


def judge_preferences(policy: ActingPolicy, experiment: ControlExperiment, *, name: str, seed: int) -> FrontReport:
    """Every preference plays its episodes in an environment of its own. Equal policies get equal reports."""
    settings = experiment.evaluation
    algorithm = experiment.algorithm
    assert isinstance(algorithm, Weave)
    preferences = _preferences(algorithm, settings.preferences)
    with closing(VectorRewards([partial(_opened, experiment, tuple(row.tolist())) for row in preferences])) as opened:
        returns, steps, cut, limit = play_each(
            policy,
            opened,
            settings.episodes,
            seed=seed,
            gamma=algorithm.gamma,
            max_steps=settings.max_steps,
        )
    return judge_front(
        name,
        PreferenceEpisodes(
            preferences,
            list(group_returns(returns, algorithm.tree)),
            list(steps),
            cut=None if limit is None else Cut(limit, cut),
        ),
        objectives=algorithm.tree.names,
        reference=algorithm.reference,
        confidence=settings.confidence,
    )


def _opened(experiment: ControlExperiment, weights: tuple[float, ...]) -> Preferred:
    choice = experiment.judged_in
    algorithm = experiment.algorithm
    assert isinstance(algorithm, Weave)
    steering = Steering.of(algorithm, source=Always(weights))
    return Preferred(open_environment(choice, choice.settings), steering)


def _preferences(algorithm: Weave, most: int | None) -> NDArray[np.float32]:
    """Preferences spread evenly over all of them; or only the fixed one."""
    always = algorithm.preference.always
    if always is not None:
        return np.array([always], np.float32)
    return lattice(len(algorithm.objectives), most or MOST)


def draw(reports: Sequence[ReturnReport], file: Path) -> str | None:
    """Save a picture of the fronts among the reports; returns its path, or None if there is nothing to draw."""
    fronts = [report for report in reports if isinstance(report, FrontReport) and len(report.objectives) > 1]
    if not fronts:
        return None
    plot_fronts(file, fronts)
    return str(file)
