"""Data sets by name, for experiments and commands: frozen with their suite, and settled before a training begins."""

import time

from loomrl.config import AnyExperiment, ControlExperiment, CustomAlgorithm, DataSelection, Experiment
from loomrl.errors import ConfigError, DataError, unknown
from loomrl.run.version import find_version
from loomrl.store import LoomDB, open_store
from loomrl.store.datasets import Dataset, Part, find_dataset
from loomrl.store.endpoints import show_endpoint
from loomrl.store.runs import RUNS
from loomrl.types import PolicyVersion

PRODUCTION = "production:"
PARTS: tuple[Part, ...] = ("train", "holdout")
TOGETHER = 500
"""Trajectories whose feedback is asked for at once."""


def frozen(db: LoomDB, store_url: str, selection: DataSelection) -> Dataset:
    """The data set of this selection, as of now."""
    from loomrl.config.suite import LanguageSuite
    from loomrl.experiments.gate.suite import resolve_suite
    from loomrl.feedback.dataset import freeze

    suite = None if selection.suite is None else resolve_suite(selection.suite)
    if suite is not None and not isinstance(suite, LanguageSuite):
        raise ConfigError(f"suite={selection.suite!r} is one of {suite.kind}: it asks nothing in words.")
    return freeze(db, store_url, selection, suite=suite, now=time.time())


def settled(experiment: AnyExperiment) -> AnyExperiment:
    """The experiment with its data set and the policy that it begins with by their ids, so that both are on record."""
    if experiment.data is None and experiment.parent is None:
        return experiment
    with open_store(experiment.store_url) as db:
        if isinstance(experiment, ControlExperiment):
            return experiment.override(_named(experiment, db))
        name = None if experiment.data is None else experiment.data.dataset
        dataset = None if name is None else find_dataset(db, name)
        named = {} if dataset is None else {"data.dataset": dataset.id}
        return experiment.override({**named, **_beginning(experiment, dataset, db)})


def _named(experiment: ControlExperiment, db: LoomDB) -> dict[str, str]:
    """The settings that name the data set of LoomDB, and the version whose weights a control policy begins with."""
    found: dict[str, str] = {}
    if experiment.data is not None and experiment.data.dataset is not None:
        found["data.dataset"] = find_dataset(db, experiment.data.dataset).id
    if experiment.parent is not None:
        found["parent"] = version_named(experiment.parent, db, what="parent").id
    return found


def version_named(text: str, db: LoomDB, *, what: str) -> PolicyVersion:
    """The version `RUN` or `RUN/NUMBER`; a ConfigError that names the setting and the nearest run, if there is none."""
    version = find_version(text, db)
    if version is None:
        known = [run.id for run in RUNS.latest(db, kind="train")]
        raise ConfigError(f"{what}: " + unknown("version", text, known))
    return version


def _beginning(experiment: Experiment, dataset: Dataset | None, db: LoomDB) -> dict[str, str | None]:
    """The settings that name the policy to begin with."""
    algorithm = experiment.algorithm
    what = experiment.parent
    if isinstance(algorithm, CustomAlgorithm):
        path = "algorithm.settings.model.path"
        given = algorithm.settings.get("model", {}).get("path")
    else:
        path = "algorithm.model.path"
        given = algorithm.model.path
    if what is None:
        if given is not None:
            return {}
        assert dataset is not None, "there is a parent or a data set"
        if dataset.parent is None:
            raise DataError(f"parent: data set {dataset.id} was made for no policy. Name the one to train: RUN/12.")
        what = dataset.parent
    if what.startswith(PRODUCTION):
        what = show_endpoint(db, what.removeprefix(PRODUCTION)).stable.policy
    from loomrl.serving.deployment.source import source_of

    source = source_of(what, db)
    if source.kind != "language":
        raise DataError(f"parent={what!r} is a policy of {source.kind}, and this trains one of language.")
    return {path: source.folder, "parent": None} if source.folder else {"parent": source.version}
