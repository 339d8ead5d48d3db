"""The test that units fall to arms as their shares say."""

import math
from collections import Counter
from collections.abc import Mapping

CONCENTRATION = 100.0
"""The units that the expectation counts for: more notices small mismatches sooner, and large ones later."""


class Mismatch:
    """A test for a mismatch of shares that may be looked at after every unit (sample ratio mismatch).

    The Dirichlet-multinomial test of Lindon & Malek ("Anytime-valid inference for multinomial count data"), for shares
    that may change between units: an arm that got more units than its shares said is expected to get more again.
    """

    def __init__(self, *, error_rate: float = 0.001) -> None:
        self.error_rate = error_rate
        self.counts: Counter[str] = Counter()
        self.expected: dict[str, float] = {}
        self._log_now = self._log_most = 0.0

    def observe(self, arm: str, shares: Mapping[str, float]) -> None:
        """One more unit that was assigned to `arm`. Call it once per unit; `shares` sum to 1."""
        share = shares.get(arm, 0.0)
        if share <= 0:
            self._log_now = self._log_most = math.inf
        else:
            tilted = {name: each * self._tilt(name, each) for name, each in shares.items() if each > 0}
            self._log_now += math.log(tilted[arm] / sum(tilted.values()) / share)
            self._log_most = max(self._log_most, self._log_now)
        self.counts[arm] += 1
        for name, each in shares.items():
            self.expected[name] = self.expected.get(name, 0.0) + each

    def _tilt(self, arm: str, share: float) -> float:
        prior = CONCENTRATION * share
        return (prior + self.counts[arm]) / (prior + self.expected.get(arm, 0.0))

    @property
    def p_value(self) -> float:
        """The least since the beginning: under the shares it ever falls to p with a chance of at most p."""
        return math.exp(-self._log_most)

    @property
    def is_mismatched(self) -> bool:
        """Proved that the units do not fall as the shares say: no comparison of these arms may be believed."""
        return self.p_value <= self.error_rate
