"""Policies by what a person types: a scripted one, code of their own, or a version that a run made."""

import json
from dataclasses import dataclass
from typing import get_args

from experiments.learner import open_learner
from loomrl.artifacts import locate
from loomrl.config import CustomPolicy, Experiment, PolicyChoice, ScriptedPolicy
from loomrl.errors import ConfigError, unknown
from loomrl.load import parse_yaml
from loomrl.store import LoomDB
from loomrl.store.policies import show_policy
from loomrl.store.runs import show_run

SCRIPTED: tuple[str, ...] = get_args(ScriptedPolicy.model_fields["kind"].annotation)


@dataclass(frozen=True, slots=True)
class Judged:
    """A policy under its printed name; `version` is its id in LoomDB, if it has one."""

    name: str
    choice: PolicyChoice
    version: str | None = None


def find_policy(text: str, db: LoomDB) -> Judged:
    """`oracle`, `pkg.module:callable`, or `RUN/NUMBER`."""
    if ":" in text:
        return Judged(text, CustomPolicy(entry_point=text))
    if "/" in text:
        return Judged(text, _trained(text, db), text)
    if text not in SCRIPTED:
        raise ConfigError("policy " + unknown("name", text, [*SCRIPTED, "pkg.module:callable", "RUN/NUMBER"]))
    return Judged(text, ScriptedPolicy.parse({"kind": text}))


def _trained(id: str, db: LoomDB) -> PolicyChoice:
    """What acted as this version: its checkpoint, loaded into the algorithm of its run's experiment."""
    version = show_policy(db, id)
    experiment = Experiment.parse(parse_yaml(show_run(db, version.run).resolved, origin=f"run {version.run}"))
    artifacts, name = locate(version.url)
    learner = open_learner(experiment.algorithm)
    learner.load_state_dict(json.loads(artifacts.get(name))["learner"])
    return learner.policy(version.number)
