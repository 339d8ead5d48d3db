"""The evidence of one release, recomputed from the log of observations: equal for whoever reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loomrl.config.release import ReleasePlan
from loomrl.release.comparison import Comparison
from loomrl.release.guard import Finding
from loomrl.release.mismatch import Mismatch
from loomrl.release.passage import CANARY, STABLE, Evidence
from loomrl.release.plan import guards_of
from loomrl.store.observations import Observation

Shares = Mapping[str, float]


@dataclass(slots=True)
class Trail:
    """The evidence about a version in the observations since its release began."""

    plan: ReleasePlan
    first_revision: int
    shares: dict[int, Shares] = field(default_factory=dict)
    """Of the arms that answer, by the endpoint's revision."""
    trips: int = 0
    failed: int = 0
    """Units in a row, up to the last one, that failed."""
    _failed_at: tuple[float, float] = (0.0, 0.0)
    _seen: set[int] = field(default_factory=set)
    _units: dict[int, set[int]] = field(default_factory=dict)
    """Revision → units that had the new version under it."""
    _comparison: Comparison = field(init=False)
    _mismatch: Mismatch = field(default_factory=Mismatch)

    def __post_init__(self) -> None:
        self._comparison = Comparison(
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

    def findings(self) -> tuple[Finding, ...]:
        """One for each guard of the plan."""
        return self._comparison.findings()

    def evidence(self, *, since_revision: int, is_up: bool, is_touched: str, jumped_s: float = 0.0) -> Evidence:
        """The evidence in a step that began with this revision of the endpoint."""
        return Evidence(
            findings=self.findings(),
            units=len(set().union(*(units for revision, units in self._units.items() if revision >= since_revision))),
            failed=self.failed,
            failed_s=self._failed_at[1] - self._failed_at[0],
            trips=self.trips,
            is_up=is_up,
            is_mismatched=self._mismatch.is_mismatched,
            is_touched=is_touched,
            jumped_s=jumped_s,
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
