"""Releases in LoomDB: begun, and moved by controllers and by people's commands."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from loomrl.config.release import ReleasePlan
from loomrl.errors import ConfigError, StoreError
from loomrl.release.guard import Finding
from loomrl.release.passage import (
    Command,
    Passage,
    ReleaseEvidence,
    ReleasePhase,
    apply_command,
    arms_of,
    choose_strategy,
    is_step_answering,
    refuse_arms,
)
from loomrl.store import LoomDB
from loomrl.store.endpoints import Arm, Endpoint, State, show_endpoint
from loomrl.store.log import last_row
from loomrl.store.releases import RELEASES, Change, ReleaseRow, advance, begin, refuse_open
from loomrl.store.verdicts import StoredVerdict
from loomrl.types import Stage, Verdict

COORDINATOR = "coordinator"
"""Name under which a loop's coordinator begins releases."""
TRIES = 20
"""Attempts at a person's command while controllers move the release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release as its newest row says."""

    row: ReleaseRow
    plan: ReleasePlan
    passage: Passage
    baseline: str
    """Key of the policy that was stable when it began."""
    challenger: str
    first_revision: int
    """First endpoint revision whose observations count."""
    after: int
    """Position in the observations at which they begin."""
    verdict: Verdict
    """The gate's, or the reason for releasing without one."""
    contents: Mapping[str, str]
    """Hashes of the versions that are folders."""

    @classmethod
    def of(cls, row: ReleaseRow) -> Self:
        """The release in a row."""
        content = row.content
        passage = content["passage"]
        return cls(
            row=row,
            plan=ReleasePlan.parse(content["plan"], origin=f"release {row.release}"),
            passage=Passage(**{**passage, "phase": ReleasePhase(passage["phase"]), "reason": row.reason}),
            baseline=content["baseline"],
            challenger=content["challenger"],
            first_revision=content["first_revision"],
            after=content["after"],
            verdict=Verdict(content["verdict"]["allowed"], tuple(content["verdict"]["reasons"])),
            contents=content["contents"],
        )

    def next_row(self, passage: Passage, evidence: ReleaseEvidence | None, *, who: str, at: float) -> ReleaseRow:
        """The row of the next state, with the evidence that it was decided on."""
        content = {
            **self.row.content,
            "passage": _plain(passage),
            "evidence": None if evidence is None else evidence_as_json(evidence),
        }
        return replace(
            self.row,
            number=self.row.number + 1,
            state=passage.phase.value,
            reason=passage.reason,
            who=who,
            content=content,
            created_at=at,
        )

    def arms(self, passage: Passage, present: Endpoint) -> list[Arm]:
        """The endpoint's arms in a state of this release."""
        return arms_of(
            self.plan,
            passage,
            present=present.arms,
            baseline=self.baseline,
            challenger=self.challenger,
            contents=self.contents,
        )

    def touched(self, present: Endpoint) -> str:
        """The endpoint's present arms if others changed those of this release; else empty."""
        if present.state is not State.SERVING:
            return f"it is {present.state}"
        if present.revision == self.row.revision:
            return ""
        expected = self.arms(self.passage, present)
        if set(expected) == set(present.arms):
            return ""
        arms = ", ".join(f"{arm.name}={arm.policy}:{arm.share:g}" for arm in present.arms)
        return f"revision {present.revision}: {arms}" + (f", {present.reason}" if present.reason else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDraft:
    """A release that is about to begin."""

    endpoint: str
    challenger: str
    plan: ReleasePlan
    """With a strategy."""
    verdict: Verdict
    who: str
    why: str = ""
    content: str = ""
    """SHA-256 of the challenger's files, if it is a folder."""


def begin_release(db: LoomDB, draft: ReleaseDraft, *, at: float) -> Release:
    """Begin a release: the version is started, and gets its first share once it is up. A LoomError says why not."""
    return Release.of(begin(db, *first_row(db, draft, at=at)))


def first_row(db: LoomDB, draft: ReleaseDraft, *, at: float) -> tuple[ReleaseRow, Change]:
    """The first row of a release, and what it changes; a LoomError says why it cannot begin."""
    present = releasable(db, draft.endpoint, draft.challenger)
    baseline = present.stable.policy
    contents = {baseline: present.stable.content, draft.challenger: draft.content}
    contents = {policy: content for policy, content in contents.items() if content}
    passage = Passage(since=at, reason=f"{draft.plan.strategy} of {draft.challenger} against {baseline}")
    content = {
        "plan": draft.plan.model_dump(mode="json"),
        "passage": _plain(passage),
        "baseline": baseline,
        "challenger": draft.challenger,
        "contents": contents,
        "first_revision": present.revision + 1,
        "after": last_row(db, "observations"),
        "verdict": {"allowed": draft.verdict.allowed, "reasons": list(draft.verdict.reasons)},
        "why": draft.why,
        "evidence": None,
    }
    first = ReleaseRow(
        release="",
        number=0,
        endpoint=draft.endpoint,
        state=passage.phase.value,
        revision=0,
        reason=passage.reason,
        who=draft.who,
        content=content,
        created_at=at,
    )
    arms = arms_of(
        draft.plan,
        passage,
        present=present.arms,
        baseline=baseline,
        challenger=draft.challenger,
        contents=contents,
    )
    change = Change(
        arms=arms,
        seen=present.revision,
        stages={baseline: Stage.PRODUCTION},
        contents=contents,
        verdict=draft.verdict,
    )
    return first, change


def draft_of(
    challenger: str, verdict: StoredVerdict, *, endpoint: str, plan: ReleasePlan, who: str, why: str
) -> ReleaseDraft:
    """The release of a version that the gate allows, with the strategy that it advises."""
    advice = verdict.report["strategy"]
    return ReleaseDraft(
        endpoint=endpoint,
        challenger=challenger,  # not the verdict's policy: a followed run is judged by its present version
        plan=choose_strategy(plan, advice["name"], advice["share"]),
        verdict=Verdict(True, (f"verdict {verdict.id}",)),
        who=who,
        why=why,
        content=verdict.fingerprint,
    )


def releasable(db: LoomDB, endpoint: str, challenger: str) -> Endpoint:
    """The endpoint, if a release of this policy to it could begin now; a LoomError says why not."""
    present = show_endpoint(db, endpoint)
    if present.state is not State.SERVING:
        raise StoreError(f"endpoint {endpoint!r} is {present.state}: `loomrl endpoints set` opens it again.")
    refuse_open(db, endpoint)
    refuse_arms(endpoint, present.arms)
    if present.stable.policy == challenger:
        raise ConfigError(f"{challenger!r} is the stable version of endpoint {endpoint!r} already.")
    return present


def move(db: LoomDB, release: Release, to: Passage, present: Endpoint, row: ReleaseRow) -> Release | None:
    """Store the next state with all its consequences; None if the release or the endpoint was moved meanwhile."""
    arms = None if to.phase is ReleasePhase.STOPPED else release.arms(to, present)
    change = Change(
        arms=arms,
        seen=present.revision,
        stages=_stages(release, to),
        contents=release.contents,
        verdict=release.verdict,
    )
    stored = advance(db, row, change)
    return None if stored is None else Release.of(stored)


def command_release(db: LoomDB, endpoint: str, word: Command, *, who: str, why: str, at: float) -> Release:
    """Apply a person's command at once, and record it."""
    for _ in range(TRIES):
        release = latest(db, endpoint)
        present = show_endpoint(db, endpoint)
        passage = apply_command(release.plan, release.passage, word, who=who, why=why, now=at)
        if touched := release.touched(present):
            raise ConfigError(f"{word}: the endpoint was changed meanwhile ({touched}): its arms are left alone.")
        row = release.next_row(passage, None, who=who, at=at)
        if (moved := move(db, release, passage, present, row)) is not None:
            return moved
    raise StoreError(f"endpoint {endpoint!r}: the release moved on {TRIES} times meanwhile. Repeat the command.")


def latest(db: LoomDB, endpoint: str) -> Release:
    """The endpoint's latest release; a StoreError if there was none."""
    row = RELEASES.newest(db, endpoint=endpoint)
    if row is None:
        present = show_endpoint(db, endpoint)
        raise StoreError(f"endpoint {present.name!r} had no release yet: loomrl release VERSION --to {present.name}")
    return Release.of(row)


def evidence_as_json(evidence: ReleaseEvidence) -> dict[str, Any]:
    """The evidence as plain JSON values; null where there is no number yet."""
    return {
        "findings": [_finding(each) for each in evidence.findings],
        "units": evidence.units,
        "failed": evidence.failed,
        "trips": evidence.trips,
        "is_up": evidence.is_up,
        "is_mismatched": evidence.is_mismatched,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "metric": finding.guard.metric,
        "name": finding.guard.label,
        "baseline": _numbers(asdict(finding.baseline)),
        "challenger": _numbers(asdict(finding.challenger)),
        **_numbers({"difference": finding.difference, "low": finding.low, "high": finding.high}),
        "is_worse": finding.is_worse,
        "is_fine": finding.is_fine,
    }


def _numbers(given: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in given.items()}


def _plain(passage: Passage) -> dict[str, Any]:
    """The passage as plain data, without the reason, which is a column."""
    return {name: value for name, value in asdict(passage).items() if name != "reason"}


def _stages(release: Release, to: Passage) -> dict[str, Stage]:
    """The stages of both versions in a state."""
    match to.phase:
        case ReleasePhase.OPEN:
            return {release.challenger: Stage.CANARY} if is_step_answering(release.plan, to) else {}
        case ReleasePhase.DONE if is_step_answering(release.plan, to):
            return {release.challenger: Stage.PRODUCTION, release.baseline: Stage.RETIRED}
        case ReleasePhase.ROLLED_BACK:
            return {release.challenger: Stage.RETIRED, release.baseline: Stage.PRODUCTION}
        case ReleasePhase.ABORTED | ReleasePhase.DONE:
            return {release.challenger: Stage.CANDIDATE, release.baseline: Stage.PRODUCTION}
        case ReleasePhase.STOPPED:
            return {}
