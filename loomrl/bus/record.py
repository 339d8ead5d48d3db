"""Everything on record that the outbox tells about a deployment."""

from typing import Any

from loomrl.config import Experiment
from loomrl.config.language import LanguageAlgorithm
from loomrl.errors import LoomError
from loomrl.store import LoomDB
from loomrl.store.deployments import CONTENT, DEPLOYMENTS, Deployment
from loomrl.store.events import Event
from loomrl.store.releases import read_release
from loomrl.store.replicas import front_of
from loomrl.store.runs import POLICIES, RUNS, recorded_experiment
from loomrl.store.trainings import TRAININGS
from loomrl.store.verdicts import VERDICTS


def deployment_on_record(db: LoomDB, event: Event) -> dict[str, Any]:
    """The arguments of `deployed_event` for a `deployment.made`."""
    made = DEPLOYMENTS.require(db, event.subject)
    rows = read_release(db, made.id.partition("/")[0])
    content = rows[0].content if rows else {}
    return {
        "deployment": {"id": made.id, "endpoint": made.endpoint, "share": made.share, "created_at": made.created_at},
        "policy": _policy(db, made),
        "endpoint_url": _endpoint_url(db, made.endpoint),
        "release": {
            "strategy": content.get("plan", {}).get("strategy"),
            "who": rows[0].who if rows else "",
            "baseline": content.get("baseline"),
        },
        "verdict": _verdict(db, made.policy.partition(CONTENT)[0]),
    }


def _policy(db: LoomDB, made: Deployment) -> dict[str, Any]:
    """The deployed policy: a version on record, the newest one of a run that is followed, or a folder's content."""
    run = made.policy.rpartition("@")[0]
    followed = POLICIES.latest(db, run=run, limit=1) if run and CONTENT not in made.policy else []
    version = followed[0] if followed else POLICIES.find(db, made.policy)
    if version is None:
        url = made.policy.partition(CONTENT)[0]
        return {"id": made.policy, "job": made.policy, "url": url, "created_at": None, "base_model": "unknown"}
    training = TRAININGS.newest(db, run=version.run)
    return {
        "id": version.id,
        "job": version.run if training is None else training.id,
        "url": version.url,
        "created_at": version.created_at,
        "base_model": _base_model(db, version.run),
    }


def _endpoint_url(db: LoomDB, endpoint: str) -> str:
    """The address of an endpoint's front; a name where none is up."""
    return front_of(db, endpoint) or f"urn:loomrl:endpoint:{endpoint or 'unknown'}"


def _base_model(db: LoomDB, run: str) -> str:
    """The weights that a run began with."""
    try:
        experiment = recorded_experiment(RUNS.require(db, run))
    except LoomError:  # recorded by an earlier version, and not readable any more
        return "unknown"
    if not isinstance(experiment, Experiment) or not isinstance(experiment.algorithm, LanguageAlgorithm):
        return "none"
    return experiment.algorithm.model.path or "built"


def _verdict(db: LoomDB, policy: str) -> dict[str, Any] | None:
    """The gate's latest verdict about a policy."""
    found = VERDICTS.latest(db, policy=policy, limit=1)
    if not found:
        return None
    checks = found[0].report.get("checks", ())
    return {"checks": checks, "outcome": found[0].outcome.value, "approved_by": found[0].approved_by}
