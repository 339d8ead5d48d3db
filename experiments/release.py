"""`loomrl release`: from words to a release that has begun, with the gate's verdict on it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loomrl.config.release import ReleasePlan
from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.gate.judge import judge_version, standing_verdict
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.load import parse_assignments, read_yaml
from loomrl.release.ledger import Release, Wish, begin_release, releasable
from loomrl.release.plan import settled
from loomrl.schema import merge
from loomrl.serving.deployment.source import source_of
from loomrl.store import LoomDB
from loomrl.store.endpoints import Endpoint
from loomrl.store.verdicts import StoredVerdict, VerdictOutcome
from loomrl.types import Verdict

UNJUDGED_SHARE = 0.05
"""First share of a version that no gate has judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A release as it is asked for on the command line."""

    version: str
    endpoint: str
    plan: ReleasePlan
    suite: str | None
    no_gate: str | None
    """The reason to leave the gate out."""
    who: str
    why: str


def resolve_plan(file: Path | None, assignments: Sequence[str], strategy: str | None) -> ReleasePlan:
    """The plan of a file, or the default one, with `path=value…` and the strategy of the command line."""
    tree = ReleasePlan.defaults()
    if file is not None:
        tree = merge(tree, read_yaml(file))
    tree = merge(tree, parse_assignments(assignments))
    if strategy is not None:
        tree = merge(tree, {"strategy": strategy})
    return ReleasePlan.parse(tree, origin="plan" if file is None else str(file))


def release(asked: Asked, db: LoomDB) -> Release:
    """Judge the version if no verdict stands, and begin its release; a LoomError says why not."""
    source = source_of(asked.version, db)
    present = releasable(db, asked.endpoint, source.key)
    _refuse_lost(present, db)
    if asked.no_gate is not None:
        verdict = Verdict(True, (f"no gate, by {asked.who}: {asked.no_gate}",))
        plan = settled(asked.plan, "canary", UNJUDGED_SHARE)
    else:
        if asked.suite is None and source.kind == "control":
            raise ConfigError(
                "--suite: what a control policy has to pass depends on its environment: name a suite (control_tiny is "
                "for CartPole), or leave the gate out: --no-gate REASON"
            )
        judged = _judged(source.key, present.stable.policy, asked.suite or source.kind, db)
        advice = judged.report["strategy"]
        verdict = Verdict(True, (f"verdict {judged.id}",))
        plan = settled(asked.plan, advice["name"], advice["share"])
    wish = Wish(
        endpoint=asked.endpoint,
        challenger=source.key,
        plan=plan,
        verdict=verdict,
        who=asked.who,
        why=asked.why,
        content=source.content(),
    )
    return begin_release(db, wish, at=time.time())


def _refuse_lost(present: Endpoint, db: LoomDB) -> None:
    """A ConfigError if the stable policy is gone: nothing to compare with, and no way back."""
    policy = present.stable.policy
    try:
        source_of(policy, db)
    except LoomError as error:
        raise ConfigError(
            f"endpoint {present.name!r}: its stable policy {policy!r} is gone, so there is nothing to compare with and "
            f"no way back ({error}). Bring it back, or name another one: loomrl endpoints set {present.name} stable=RUN"
        ) from None


def _judged(policy: str, against: str, name: str, db: LoomDB) -> StoredVerdict:
    """The standing verdict of the gate, or a new one; a ConfigError unless it allows the policy."""
    suite = resolve_suite(name)
    verdict = standing_verdict(policy, against, suite, db)
    if verdict is None or verdict.outcome is VerdictOutcome.ERROR:
        verdict = judge_version(policy, against, suite, db)
    if verdict.is_allowed:
        return verdict
    remedy = f"`loomrl gate show {verdict.id}` has the evidence"
    if verdict.outcome is VerdictOutcome.WAITING:
        names = ", ".join(verdict.report["approvers"])
        remedy = f"`loomrl gate approve {verdict.id} --who NAME`, by {names}"
    failed = [check["name"] for check in verdict.report["checks"] if check["state"] in ("failed", "error")]
    raise ConfigError(
        f"the gate's verdict on {policy!r} is {verdict.outcome}{': ' + ', '.join(failed) if failed else ''}. {remedy}."
    )
