"""Reports on control policies: return with confidence, over whole episodes."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from loomrl.evaluation.statistics import Interval, deviation, mean_interval


@dataclass(frozen=True, slots=True)
class ReturnScore:
    """The return over some episodes. Values that need more episodes are None."""

    reward: Interval
    """Sum of an episode's rewards."""
    deviation: float | None
    """Standard deviation between episodes."""
    least: float | None
    greatest: float | None
    steps: float | None
    """Mean length of an episode."""
    episodes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The bound of an episode's steps, and the episodes that reached it and count as truncated."""

    max_steps: int
    episodes: int


@dataclass(frozen=True, slots=True)
class ReturnReport:
    """The complete evaluation of one control policy."""

    policy: str
    confidence: float
    overall: ReturnScore
    trials: tuple[float, ...] = field(default=(), kw_only=True)
    """Mean return by trial, of episodes that have several."""
    cut: Cut | None = field(default=None, kw_only=True)
    """None where only the environment ends episodes."""
    policies: dict[str, ReturnScore] = field(default_factory=dict, kw_only=True)
    """The score of each policy, where the agents of a world have several."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; infinite bounds are null, and what is empty of `trials`, `cut` and `policies` is left
        out.
        """
        data = asdict(self)
        for name in ("trials", "cut", "policies"):
            if not data[name]:
                del data[name]
        for score in (data["overall"], *data.get("policies", {}).values()):
            interval = score["reward"]
            interval |= {name: interval[name] if math.isfinite(interval[name]) else None for name in ("low", "high")}
        return data


def judge_returns(
    policy: str,
    rewards: Sequence[float],
    steps: Sequence[int],
    *,
    trials: Sequence[Sequence[float]] = (),
    cut: Cut | None = None,
    confidence: float = 0.95,
) -> ReturnReport:
    """The report over finished episodes: each one's sum of rewards, number of steps and returns by trial, if it has
    several, in the same order.
    """
    if len(rewards) != len(steps):
        raise ValueError(f"{len(rewards)} returns and {len(steps)} lengths: give both for every episode.")
    score = score_returns(rewards, steps, confidence=confidence)
    means = tuple(math.fsum(each) / len(each) for each in zip(*trials, strict=True))
    return ReturnReport(policy, confidence, score, trials=means, cut=cut)


def score_returns(rewards: Sequence[float], steps: Sequence[int], *, confidence: float) -> ReturnScore:
    """The score of these episodes."""
    returns = [float(reward) for reward in rewards]
    return ReturnScore(
        reward=mean_interval(returns, confidence=confidence),
        deviation=deviation(returns),
        least=min(returns, default=None),
        greatest=max(returns, default=None),
        steps=sum(map(int, steps)) / len(steps) if len(steps) else None,
        episodes=len(returns),
    )
