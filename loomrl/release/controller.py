"""The evidence of a release, and the controller of an endpoint's releases.

Any number of controllers may run at once, and each may be killed at any instant: all compute equal evidence from the
log.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loomrl.config.release import ReleasePlan
from loomrl.release.comparison import ArmComparison, Mismatch
from loomrl.release.guard import Finding, Silence, silences
from loomrl.release.ledger import Release, move
from loomrl.release.passage import CANARY, SKEW_S, STABLE, START, Passage, ReleaseEvidence, decide, guards_of, waits_for
from loomrl.store import LoomDB
from loomrl.store.endpoints import ENDPOINTS, Endpoint, Role
from loomrl.store.observations import Observation, read_observations
from loomrl.store.releases import OPEN, RELEASES, ReleaseRow, read_release
from loomrl.store.replicas import ReplicaRole, ReplicaState, live_replicas

Shares = Mapping[str, float]


@dataclass(slots=True)
class ReleaseEvidenceLog:
    """The evidence about a version in the observations since its release began."""

    plan: ReleasePlan
    first_revision: int
    shares: dict[int, Shares] = field(default_factory=dict)
    """Shares of the answering arms, by the endpoint's revision."""
    trips: int = 0
    failed: int = 0
    """Units in a row, up to the last one, that failed."""
    _failed_at: tuple[float, float] = (0.0, 0.0)
    _seen: set[int] = field(default_factory=set)
    _units: dict[int, set[int]] = field(default_factory=dict)
    """Revision → units that had the new version under it."""
    _comparison: ArmComparison = field(init=False)
    _mismatch: Mismatch = field(default_factory=Mismatch)

    def __post_init__(self) -> None:
        self._comparison = ArmComparison(
            guards_of(self.plan), baseline=STABLE, challenger=CANARY, error_rate=self.plan.error_rate
        )

    def take(self, observations: Sequence[Observation]) -> None:
        """Add observations in the order of the log. Those before the release, and of A/B tests, do not count."""
        mine = [each for each in observations if each.revision >= self.first_revision and not each.test]
        for each in mine:
            if each.metric == "trip" and each.arm == CANARY:
                self.trips += 1
            if each.metric == "error":
                self._count(each)
        self._comparison.observe(mine, lambda revision: self.shares.get(revision, {}))

    def findings(self, *, with_bounds: bool = True) -> tuple[Finding, ...]:
        """One for each guard of the plan."""
        return self._comparison.findings(with_bounds=with_bounds)

    def evidence(
        self, *, since_revision: int, is_up: bool, is_touched: str, with_bounds: bool = True
    ) -> ReleaseEvidence:
        """The evidence in a step that began with this revision of the endpoint."""
        return ReleaseEvidence(
            findings=self.findings(with_bounds=with_bounds),
            units=len(set().union(*(units for revision, units in self._units.items() if revision >= since_revision))),
            failed=self.failed,
            failed_s=self._failed_at[1] - self._failed_at[0],
            trips=self.trips,
            is_up=is_up,
            is_mismatched=self._mismatch.is_mismatched,
            is_touched=is_touched,
        )

    def _count(self, unit: Observation) -> None:
        """A unit under a revision, by its arm; and the failures in a row of the new version."""
        shares = self.shares.get(unit.revision, {})
        if len(shares) > 1 and unit.unit not in self._seen:
            self._seen.add(unit.unit)
            self._mismatch.observe(unit.arm, shares)
        if unit.arm != CANARY:
            return
        self._units.setdefault(unit.revision, set()).add(unit.unit)
        if unit.value < 1:
            self.failed = 0
            return
        self.failed += 1
        self._failed_at = (unit.at if self.failed == 1 else self._failed_at[0], unit.at)


PACE_S = 0.2
"""Time between two looks at a release."""
BATCH = 1000
"""Rows of observations that are read at once."""
MOST_REVISIONS = 100_000


class AnchoredClock:
    """Wall time that notices jumps: it is anchored to the monotonic clock."""

    def __init__(self, wall: Callable[[], float] | None = None) -> None:
        self._wall = wall or (lambda: time.time())
        self._anchor = self._wall() - time.monotonic()

    def look(self) -> tuple[float, float]:
        """Unix time now, and the seconds that it has jumped by since the last look."""
        wall = self._wall()
        jumped_s = wall - time.monotonic() - self._anchor
        if abs(jumped_s) <= SKEW_S:
            return self._anchor + time.monotonic(), 0.0
        self._anchor += jumped_s
        return wall, jumped_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLook:
    """A release at a moment."""

    release: Release
    present: Endpoint
    evidence: ReleaseEvidence
    now: float

    @property
    def waits(self) -> tuple[str, ...]:
        """The reasons that keep it in its step; empty if it has ended."""
        if not self.release.passage.is_open:
            return ()
        return waits_for(self.release.plan, self.release.passage, self.evidence, self.now)

    @property
    def silences(self) -> tuple[Silence, ...]:
        """The guards without observations; empty before the new version has traffic."""
        return () if self.release.passage.step == START else silences(self.evidence.findings)


class ReleaseObserver:
    """Follows an endpoint's releases, and reads the evidence on each once."""

    def __init__(self, db: LoomDB, endpoint: str) -> None:
        self._db = db
        self._endpoint = endpoint
        self._clock = AnchoredClock()
        self._trail: ReleaseEvidenceLog | None = None
        self._of = ""
        self._position = 0
        self._rows: list[ReleaseRow] = []

    def look(self, *, is_ended_too: bool = False, with_bounds: bool = True) -> ReleaseLook | None:
        """The latest release and its evidence now; None if none is open, unless an ended one is asked for too.

        Bounds cost a pass over all units, and nothing is decided by them.
        """
        newest = RELEASES.newest(self._db, endpoint=self._endpoint)
        if newest is None or (newest.state != OPEN and not is_ended_too):
            self._of = ""
            self._trail = None
            return None
        release = Release.of(newest)
        if self._of != newest.release:
            self._of = newest.release
            self._position = release.after
            self._rows = []
            self._trail = ReleaseEvidenceLog(release.plan, release.first_revision)
        if not self._rows or self._rows[-1].number != newest.number:
            self._rows = read_release(self._db, newest.release)
            release = Release.of(self._rows[-1])
        present = self._read()
        assert self._trail is not None
        evidence = self._trail.evidence(
            since_revision=self._since_revision(release),
            is_up=self._is_up(release.challenger),
            is_touched=release.touched(present),
            with_bounds=with_bounds,
        )
        now, jumped_s = self._clock.look()
        return ReleaseLook(release=release, present=present, evidence=replace(evidence, jumped_s=jumped_s), now=now)

    def bounded(self, look: ReleaseLook) -> ReleaseLook:
        """The same look with bounds, a moment later."""
        assert self._trail is not None
        findings = self._trail.findings()
        now, jumped_s = self._clock.look()
        jumped_s = look.evidence.jumped_s or jumped_s
        return replace(look, evidence=replace(look.evidence, findings=findings, jumped_s=jumped_s), now=now)

    def _read(self) -> Endpoint:
        """Take new observations, then the endpoint's revisions, which are at least as new; the endpoint as it is."""
        assert self._trail is not None
        rows = []
        while batch := read_observations(self._db, self._endpoint, after=self._position, limit=BATCH):
            self._position = batch[-1][0]
            rows += [observation for _, observation in batch]
        (present,) = ENDPOINTS.latest(self._db, name=self._endpoint, limit=1)
        if present.revision not in self._trail.shares:
            for each in ENDPOINTS.latest(self._db, name=self._endpoint, limit=MOST_REVISIONS):
                self._trail.shares[each.revision] = _shares(each)
        self._trail.take(rows)
        return present

    def _since_revision(self, release: Release) -> int:
        """The endpoint's revision with which the present step began."""
        step = release.passage.step
        first = next(row for row in self._rows if row.content["passage"]["step"] == step)
        return first.revision

    def _is_up(self, policy: str) -> bool:
        rows = live_replicas(self._db, role=ReplicaRole.POLICY, endpoint=self._endpoint, policies=[policy])
        return any(row.state is ReplicaState.READY for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The evidence as it was at a time of the past."""

    at: float
    findings: tuple[Finding, ...]


def replay_evidence(db: LoomDB, release: Release, *, since: float, until: float, count: int = 120) -> list[Moment]:
    """The evidence on a release at so many moments, recomputed from the log of observations."""
    trail = ReleaseEvidenceLog(release.plan, release.first_revision)
    position = release.after
    observed = []
    endpoint = release.row.endpoint
    last = release.row.revision
    revisions = ENDPOINTS.latest(db, name=endpoint, limit=MOST_REVISIONS)
    trail.shares |= {each.revision: _shares(each) for each in revisions if each.revision <= last}
    while batch := read_observations(db, endpoint, after=position, limit=BATCH):
        position = batch[-1][0]
        observed += [each for _, each in batch if each.revision <= last and each.at <= until]
    moments = []
    begin = 0
    for number in range(1, count + 1):
        at = since + (until - since) * number / count
        end = next((place for place in range(begin, len(observed)) if observed[place].at > at), len(observed))
        trail.take(observed[begin:end])
        moments.append(Moment(at=at, findings=trail.findings()))
        begin = end
    return moments


def _shares(endpoint: Endpoint) -> dict[str, float]:
    """Shares of the arms that answer."""
    return {arm.name: arm.share for arm in endpoint.arms if arm.role is not Role.SHADOW and arm.share > 0}


def _decide(look: ReleaseLook) -> Passage | None:
    return decide(look.release.plan, look.release.passage, look.evidence, look.now)


class Controller:
    """Advances an endpoint's releases: looks at the evidence, decides, and records the decision."""

    def __init__(self, db: LoomDB, endpoint: str) -> None:
        self._db = db
        self._observer = ReleaseObserver(db, endpoint)
        self._idle = -1
        """LoomDB's version, at which no release was open."""

    def is_idle(self) -> bool:
        """True if no release was open at the last tick, and nothing was committed since."""
        return self._db.version() == self._idle

    def tick(self) -> Release | None:
        """Look once; the release's new state if it was moved on."""
        version = self._db.version()
        look = self._observer.look(with_bounds=False)
        self._idle = version if look is None else -1
        if look is None or _decide(look) is None:
            return None
        look = self._observer.bounded(look)  # for the record
        release = look.release
        passage = _decide(look)
        if passage is None:
            return None
        row = release.next_row(passage, look.evidence, who="", at=look.now)
        return move(self._db, release, passage, look.present, row)
