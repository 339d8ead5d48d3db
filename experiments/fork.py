"""`loomrl fork`: a run that begins in the middle of another one."""

from collections.abc import Sequence

from loomrl.config import AnyExperiment, Experiment
from loomrl.errors import ConfigError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.run.fork import begin_fork, changed_experiment, find_fork_point
from loomrl.store import LoomDB, open_store
from loomrl.store.runs import RUNS, load_experiment, run_id


def fork(store_url: str, point: str, words: Sequence[str], *, run: str | None) -> tuple[AnyExperiment, str]:
    """Put a fork on record, with its first checkpoint; its experiment and its id. It is trained as a resumed run is."""
    with open_store(store_url) as db:
        experiment, id = _begin(db, point, words, run=run)
    return experiment.override({"store_url": store_url}), id


def _begin(db: LoomDB, point: str, words: Sequence[str], *, run: str | None) -> tuple[AnyExperiment, str]:
    version = find_fork_point(db, point)
    experiment = changed_experiment(db, version, words)
    _refuse_missing_reference(load_experiment(RUNS.require(db, version.run)), experiment)
    id = run_id(run, experiment.name)
    begin_fork(db, version, experiment, run=id)
    return experiment, id


def _refuse_missing_reference(parent: AnyExperiment, fork: AnyExperiment) -> None:
    """The policy that a KL is measured from is that of a run's beginning, and only a run that has one keeps it."""
    if not isinstance(parent, Experiment) or not isinstance(fork, Experiment):
        return
    from loomrl.algorithms.language.begin import wants_reference

    if wants_reference(open_algorithm(fork).resolved) and not wants_reference(open_algorithm(parent).resolved):
        raise ConfigError(
            "the fork needs the policy that its run began with (algorithm.kl, train.stop.kl), which that run did not "
            "keep (algorithm.kl.watch=false). Leave the KL out, or train anew."
        )
