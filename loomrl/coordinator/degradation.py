"""Detection of degradation: does the stable policy still earn what it earned when it became stable?

Its first window of rewards is the baseline. Every later window is compared with it once, when it is full, by bets
(`loomrl.release.paired`), whose bounds hold for any distribution within 0..1. Window k spends 6/(pi*k)^2 of the error
rate: over all windows, the chance that a policy whose mean stays is ever found to earn less is at most the error rate.

Compared is the weighted sum before normalisation, as the normalised one follows a policy down.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from loomrl.config.loop import Degradation
from loomrl.release.guard import Better, Guard
from loomrl.release.paired import compare_pairs
from loomrl.store import LoomDB
from loomrl.store.rewards import REWARDS, StoredReward

GUARD = Guard(metric="reward", better=Better.HIGHER)
PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A window in which a policy earned less than its baseline."""

    policy: str
    window: int
    position: int
    """Position of the window's last reward."""
    before: float
    now: float
    low: float
    high: float

    @property
    def reason(self) -> str:
        """One line for people."""
        return (
            f"{self.policy} earns {self.now:.3f} in window {self.window}, its baseline is {self.before:.3f}: a "
            f"difference in [{self.low:.3f}, {self.high:.3f}]"
        )


def fall_of(
    policy: str,
    baseline: Sequence[float],
    latest: Sequence[float],
    settings: Degradation,
    *,
    window: int,
    position: int,
) -> Fall | None:
    """The fall in a window, counted from 1, if it is proved and as large as the margin."""
    spent = settings.error_rate * 6 / (math.pi * window) ** 2
    pairs = list(zip(baseline, latest, strict=True))
    found = compare_pairs(GUARD, pairs, error_rate=spent, planned=len(pairs))
    before = math.fsum(baseline) / len(baseline)
    now = math.fsum(latest) / len(latest)
    if found.high >= 0 or before - now < settings.margin:
        return None
    return Fall(policy=policy, window=window, position=position, before=before, now=now, low=found.low, high=found.high)


@dataclass(slots=True)
class DegradationWatch:
    """Reads an endpoint's rewards once, and compares each window of the policy in production with its first one.

    A window is looked at once another one has followed it, so that feedback had equally long to come in all of them.
    """

    db: LoomDB
    endpoint: str
    settings: Degradation
    policy: str = ""
    fall: Fall | None = None
    """The latest one."""
    means: list[float] = field(default_factory=list)
    """Mean rewards of the compared windows; the first is the baseline."""
    _after: int = 0
    _values: dict[str, float] = field(default_factory=dict)
    """Trajectory → its latest reward, in the order of the first ones."""

    def look(self, policy: str, *, after: int) -> Fall | None:
        """The latest fall of a policy whose rewards come after this position."""
        if policy != self.policy:
            self.policy = policy
            self.fall = None
            self.means = []
            self._after = after
            self._values = {}
        while page := REWARDS.read(self.db, after=self._after, limit=PAGE, endpoint=self.endpoint):
            for position, reward in page:
                self._after = position
                self._take(position, reward)
        return self.fall

    def _take(self, position: int, reward: StoredReward) -> None:
        if tuple(reward.content.get("versions", ())) != (self.policy,):
            return
        self._values[reward.trajectory] = float(reward.content["raw"])
        number = len(self.means)
        size = self.settings.window
        if len(self._values) < (number + 2) * size:
            return
        values = list(self._values.values())
        window = values[number * size : (number + 1) * size]
        self.means.append(math.fsum(window) / size)
        if number:
            found = fall_of(self.policy, values[:size], window, self.settings, window=number, position=position)
            self.fall = found or self.fall
