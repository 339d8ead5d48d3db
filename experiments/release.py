"""`loomrl release`: from words to a release that has begun, with the gate's verdict on it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loomrl.config.release import ReleasePlan
from loomrl.config.suite import Suite
from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.gate.judge import judge
from loomrl.experiments.gate.party import Parties, party_of, standing_verdict
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.load import parse_assignments, read_yaml
from loomrl.release.ledger import Release, ReleaseDraft, begin_release, draft_of, releasable
from loomrl.release.passage import choose_strategy
from loomrl.schema import merge
from loomrl.serving.deployment.source import PolicySource, source_of
from loomrl.store import LoomDB
from loomrl.store.endpoints import Endpoint
from loomrl.store.verdicts import StoredVerdict, VerdictOutcome
from loomrl.types import Verdict

UNJUDGED_SHARE = 0.05
"""First share of a version that no gate has judged."""


class GateRefused(ConfigError):
    """The gate's verdict on a version is final, and forbids its release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """A release as the command line asks for it."""

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


def begin(request: ReleaseRequest, db: LoomDB) -> Release:
    """Judge the version if no verdict stands, and begin its release; a LoomError says why not."""
    source = source_of(request.version, db)
    present = releasable(db, request.endpoint, source.key)
    baseline = _find_stable(present, db)
    if request.no_gate is not None:
        draft = ReleaseDraft(
            endpoint=request.endpoint,
            challenger=source.key,
            plan=choose_strategy(request.plan, "canary", UNJUDGED_SHARE),
            verdict=Verdict(True, (f"no gate, by {request.who}: {request.no_gate}",)),
            who=request.who,
            why=request.why,
            content=source.content(),
        )
        return begin_release(db, draft, at=time.time())
    if request.suite is None and source.kind == "control":
        raise ConfigError(
            "--suite: a control policy's suite depends on its environment. Name one (control_tiny is for CartPole), or "
            "leave the gate out: --no-gate REASON"
        )
    suite = resolve_suite(request.suite or source.kind)
    parties = Parties(challenger=party_of(source, suite.kind), baseline=party_of(baseline, suite.kind))
    verdict = _allowing_verdict(parties, suite, db)
    draft = draft_of(
        source.key, verdict, endpoint=request.endpoint, plan=request.plan, who=request.who, why=request.why
    )
    return begin_release(db, draft, at=time.time())


def _find_stable(present: Endpoint, db: LoomDB) -> PolicySource:
    """The stable policy; a ConfigError if it is gone: there would be nothing to compare with, and no way back."""
    policy = present.stable.policy
    try:
        return source_of(policy, db)
    except LoomError as error:
        raise ConfigError(
            f"endpoint {present.name!r}: its stable policy {policy!r} is gone, so there is nothing to compare with and "
            f"no way back ({error}). Bring it back, or name another one: loomrl endpoints set {present.name} stable=RUN"
        ) from None


def _allowing_verdict(parties: Parties, suite: Suite, db: LoomDB) -> StoredVerdict:
    """The standing verdict of the gate, or a new one; a ConfigError unless it allows the policy."""
    verdict = standing_verdict(parties, suite, db)
    if verdict is None or verdict.outcome is VerdictOutcome.ERROR:
        verdict = judge(parties, suite, db)
    if verdict.is_allowed:
        return verdict
    remedy = f"`loomrl gate show {verdict.id}` has the evidence"
    if verdict.outcome is VerdictOutcome.WAITING:
        names = ", ".join(verdict.report["approvers"])
        remedy = f"`loomrl gate approve {verdict.id} --who NAME`, by {names}"
    failed = f": {', '.join(verdict.failed_checks)}" if verdict.failed_checks else ""
    kind = GateRefused if verdict.outcome is VerdictOutcome.REFUSED else ConfigError
    raise kind(f"the gate's verdict on {verdict.policy!r} is {verdict.outcome}{failed}. {remedy}.")
