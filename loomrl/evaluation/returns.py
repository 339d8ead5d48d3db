"""What a control policy was judged to be: its return with confidence, over whole episodes."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loomrl.evaluation.statistics import Interval, deviation, mean_interval


@dataclass(frozen=True, slots=True)
class ReturnScore:
    """The return over some episodes. What too few episodes cannot tell is None."""

    reward: Interval
    """Sum of an episode's rewards."""
    deviation: float | None
    """From episode to episode."""
    least: float | None
    greatest: float | None
    steps: float | None
    """Of an episode, on average."""
    episodes: int


@dataclass(frozen=True, slots=True)
class ReturnReport:
    """The whole judgement of one control policy."""

    policy: str
    confidence: float
    overall: ReturnScore

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; bounds that say nothing are null."""
        data = asdict(self)
        interval = data["overall"]["reward"]
        interval |= {name: interval[name] if math.isfinite(interval[name]) else None for name in ("low", "high")}
        return data


def judge_returns(
    policy: str, rewards: Sequence[float], steps: Sequence[int], *, confidence: float = 0.95
) -> ReturnReport:
    """The report over finished episodes: every one's sum of rewards and number of steps, in the same order."""
    if len(rewards) != len(steps):
        raise ValueError(f"{len(rewards)} returns and {len(steps)} lengths: give both for every episode.")
    returns = [float(reward) for reward in rewards]
    score = ReturnScore(
        reward=mean_interval(returns, confidence=confidence),
        deviation=deviation(returns),
        least=min(returns, default=None),
        greatest=max(returns, default=None),
        steps=sum(map(int, steps)) / len(steps) if len(steps) else None,
        episodes=len(returns),
    )
    return ReturnReport(policy, confidence, score)
