"""Quarantine: task families and whole environments that keep failing are paused, reported, recorded, and retried.

Once per update it observes all attempts, stored or new, in any order, and before the lease: a lease is empty if all of
them failed.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loomrl.config import QuarantineConfig
from loomrl.errors import EpisodeError, ScorerError
from loomrl.gym.curriculum import family_key
from loomrl.types import Failure, Trajectory

BLAMED = (EpisodeError.boundary, ScorerError.boundary)
"""Failures at these boundaries are the environment's; others, such as the policy's, are no evidence either way."""


@dataclass(frozen=True, slots=True)
class QuarantineCase:
    """A quarantined family or environment."""

    name: str
    since: int
    """The update at which it was quarantined."""
    until: int
    attempts: int
    causes: Mapping[str, int]
    """Failed attempts by cause, such as `environment/Hang`."""
    example: str
    """The message of the latest failure."""

    def __str__(self) -> str:
        causes = ", ".join(f"{cause} {times}" for cause, times in self.causes.items())
        return (
            f"{self.name}: {sum(self.causes.values())} of its last {self.attempts} attempts failed ({causes}; "
            f"such as: {self.example}); left alone from update {self.since} to {self.until}"
        )


class FamilyQuarantine:
    """Decides from attempts what is quarantined. Equal attempts, in any order within an update, decide equally."""

    def __init__(self, settings: QuarantineConfig) -> None:
        self.settings = settings
        self._updates = 0
        self._recent: dict[str, dict[str, deque[str]]] = {}
        """Environment → family key → causes of the latest attempts, empty for one that succeeded."""
        self._examples: dict[str, str] = {}
        self._cases: dict[str, QuarantineCase] = {}
        self._times: Counter[str] = Counter()
        """Number of quarantines of each name so far."""

    @property
    def cases(self) -> list[QuarantineCase]:
        """All current cases."""
        return list(self._cases.values())

    def allows(self, family: str) -> bool:
        """True if tasks of this family key may be drawn."""
        return not any(family == name or family.startswith(f"{name}/") for name in self._cases)

    def observe(self, attempts: Iterable[Trajectory]) -> list[QuarantineCase]:
        """Learn from all attempts of one update, release cases whose time is over, and return the new ones."""
        self._updates += 1
        for case in self.cases:
            if case.until <= self._updates:
                self._release(case.name)
        # Sorted, so that equal attempts decide equally in any order of arrival.
        for attempt in sorted(attempts, key=lambda attempt: (len(attempt.id), attempt.id)):
            if attempt.failure is None or attempt.failure.boundary in BLAMED:
                self._count(attempt.task.environment, family_key(attempt.task), attempt.failure)
        return [case for environment in sorted(self._recent) for case in self._judge(environment)]

    def _count(self, environment: str, family: str, failure: Failure | None) -> None:
        recent = self._recent.setdefault(environment, {}).setdefault(family, deque(maxlen=self.settings.window))
        recent.append(f"{failure.boundary}/{failure.kind}" if failure else "")
        if failure:
            self._examples[family] = failure.message[:300]

    def _judge(self, environment: str) -> list[QuarantineCase]:
        """New cases: the environment if several of its families fail and none is healthy, else single families."""
        if environment in self._cases:
            return []
        families = self._recent[environment]
        everything = [cause for recent in families.values() for cause in recent]
        if len(families) > 1 and self._too_many(everything) and all(map(self._failing, families.values())):
            worst = max(sorted(families), key=lambda family: _failures(families[family]))
            return [self._admit(environment, everything, self._examples[worst])]
        found = [name for name in sorted(families) if name not in self._cases and self._too_many(families[name])]
        return [self._admit(name, families[name], self._examples[name]) for name in found]

    def _too_many(self, causes: Collection[str]) -> bool:
        return _failures(causes) >= self.settings.share * self.settings.window

    def _failing(self, causes: Collection[str]) -> bool:
        return _failures(causes) >= self.settings.share * len(causes)

    def _admit(self, name: str, causes: Collection[str], example: str) -> QuarantineCase:
        until = self._updates + self.settings.probation * 2 ** self._times[name]
        self._times[name] += 1
        counts = dict(Counter(filter(None, causes)).most_common())
        self._cases[name] = QuarantineCase(name, self._updates, until, len(causes), counts, example)
        return self._cases[name]

    def _release(self, name: str) -> None:
        """Release a name; its failures are forgotten, but not how often it was quarantined."""
        del self._cases[name]
        self._recent.pop(name, None)
        for families in self._recent.values():
            families.pop(name, None)

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {
            "updates": self._updates,
            "recent": {e: {f: list(causes) for f, causes in recent.items()} for e, recent in self._recent.items()},
            "examples": dict(self._examples),
            "cases": [asdict(case) for case in self.cases],
            "times": dict(self._times),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        window = self.settings.window
        self._updates = state["updates"]
        self._recent = {e: {f: deque(cs, window) for f, cs in recent.items()} for e, recent in state["recent"].items()}
        self._examples = dict(state["examples"])
        self._cases = {case["name"]: QuarantineCase(**case) for case in state["cases"]}
        self._times = Counter(state["times"])


def _failures(causes: Iterable[str]) -> int:
    return sum(map(bool, causes))
