"""The kinds of training, and which of them an experiment is. Each is imported when it is opened: control needs no
transformers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from loomrl.cluster.shared import refuse_unshared
from loomrl.config import (
    RAFT,
    AnyExperiment,
    ControlExperiment,
    Experiment,
    LanguageAlgorithm,
    LanguageWeave,
    PolicyGradient,
    RewardModel,
)
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.training import Reporter, Training
from loomrl.inference.gguf import find_model
from loomrl.store import LoomDB


def refuse_blind_hosts(experiment: AnyExperiment) -> None:
    """A ClusterError if other hosts of the cluster would not find the first weights; those of control are sent."""
    if isinstance(experiment, ControlExperiment) or not isinstance(experiment.algorithm, LanguageAlgorithm):
        return
    algorithm = experiment.algorithm
    teacher = algorithm.kl.teacher if isinstance(algorithm, PolicyGradient | RAFT) else None
    path = algorithm.model.path
    paths = {"algorithm.model.path": path, "algorithm.kl.teacher": teacher}
    shared = {name: str(find_model(given)) for name, given in paths.items() if given is not None}
    if path is None or (isinstance(algorithm, LanguageWeave) and algorithm.experts > 1):
        refuse_unshared(artifact_url=experiment.artifact_url)
    if shared:
        refuse_unshared(paths=shared)


def open_training(
    experiment: AnyExperiment,
    run: str,
    db: LoomDB,
    *,
    clock: Callable[[], float],
    taken: Mapping[str, Any] | None = None,
) -> Training:
    """The run of this id. `taken`: the folder of another run that it begins with, and the version in it."""
    if isinstance(experiment.algorithm, RewardModel):
        from loomrl.experiments.train_reward import RewardTraining

        assert isinstance(experiment, Experiment)
        return RewardTraining.opened(experiment, run, db, clock=clock)
    algo = _build(experiment, run)
    try:
        if isinstance(experiment, ControlExperiment):
            from loomrl.experiments.train_control import ControlTraining

            return ControlTraining.opened(algo, experiment, run, db, clock=clock, taken=taken)
        if taken is not None:
            algo.take_over(taken["folder"])
            algo.keep()
    except BaseException:
        algo.stop()
        raise
    return algo  # type: ignore[no-any-return]


def _build(experiment: AnyExperiment, run: str) -> Any:
    config = open_algorithm(experiment, run=run)
    if not isinstance(experiment, ControlExperiment):
        return config.build_algo()
    from loomrl.experiments.train_control import fixed_threads

    with fixed_threads(experiment.learners.threads):
        return config.build_algo()


def reporter_of(training: Training, experiment: AnyExperiment, db: LoomDB) -> Reporter:
    """The results of this run, for people."""
    if isinstance(experiment, ControlExperiment) or isinstance(experiment.algorithm, RewardModel):
        return training  # type: ignore[return-value]
    from loomrl.experiments.train_language import LanguageReporter

    return LanguageReporter(training, experiment, db)
