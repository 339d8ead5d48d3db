"""The value of a policy from episodes that another one played and whose probabilities are on record.

Per episode, with the ratio ρ of both policies' probabilities for all actions up to a step:

    ips     Σ γᵗ ρ r                                   unbiased; varies with the ratios
    snips   the same, with ρ divided by its mean       slightly biased, varies less
    dr      V(s₀) + Σ γᵗ ρ (r + γ V(s′) − Q(s, a))     unbiased whatever the model, varies less the better it is

Intervals are Student's over episodes; for snips over its linearised terms. They assume that the mean over episodes is
nearly normal, which it is not where few episodes carry all the weight: `effective` says how many do.

Axes: `_T` steps of an episode, `_A` choices, `_E` episodes, `_F` features.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from loomrl.control.logged import Logged
from loomrl.control.space import Array
from loomrl.errors import DataError
from loomrl.evaluation.statistics import Interval, mean_interval

Estimator = Literal["ips", "snips", "dr"]
FOLDS = 5
"""Parts of the episodes; the model that judges one part is fitted to the others."""
RIDGE = 10.0
"""In steps: what a weight needs to be believed."""
Floats = NDArray[np.float64]


class Chooses(Protocol):
    """A policy of one choice."""

    def chances(self, seen_B: Array, *, greedy: bool) -> Array:
        """Probability of every choice, `[B, A]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicy:
    """What logged episodes say of a policy."""

    ips: Interval
    snips: Interval
    dr: Interval
    logged: Interval
    """Return of the policy that played them."""
    effective: float
    """Episodes that would tell as much, had the policy played them itself (Kish): (Σρ)² / Σρ² at the last steps."""
    left_out: int
    """Episodes with an action of unknown probability."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Weighed:
    """An episode as the policy would have had it."""

    seen: Array
    actions_T: NDArray[np.int64]
    rewards_T: Floats
    discounts_T: Floats
    """γᵗ."""
    ratios_T: Floats
    """Of all actions up to each step."""
    chances_TA: Floats
    """Of the policy, one row more than steps."""


def judge_logged(
    episodes: Sequence[Logged], policy: Chooses, *, gamma: float, greedy: bool, confidence: float = 0.95
) -> OffPolicy:
    """The policy's expected discounted return per episode; a DataError if too few probabilities are on record."""
    known = [one for one in episodes if one.logprobs_T is not None and np.isfinite(one.logprobs_T).all()]
    if len(known) < 2 * FOLDS:
        raise DataError(
            f"{len(known)} of {len(episodes)} episodes have the probabilities of all their actions, of {2 * FOLDS} "
            "needed. Record them sampled (`loomrl data record` without --greedy), or serve with explore=true."
        )
    weighed = [_weighed(one, policy, gamma=gamma, greedy=greedy) for one in known]
    returns_E = [float((one.discounts_T * one.rewards_T).sum()) for one in weighed]
    last_E = np.array([one.ratios_T[-1] for one in weighed])
    total = float(last_E.sum())
    return OffPolicy(
        ips=mean_interval(ips(weighed), confidence=confidence),
        snips=mean_interval(snips(weighed), confidence=confidence),
        dr=mean_interval(doubly_robust(weighed, gamma=gamma), confidence=confidence),
        logged=mean_interval(returns_E, confidence=confidence),
        effective=total * total / float(np.square(last_E).sum()) if total > 0 else 0.0,
        left_out=len(episodes) - len(known),
    )


def _weighed(one: Logged, policy: Chooses, *, gamma: float, greedy: bool) -> Weighed:
    assert one.logprobs_T is not None, "others are left out"
    chances_TA = np.asarray(policy.chances(one.seen, greedy=greedy), np.float64)
    taken_T = chances_TA[np.arange(len(one)), one.actions]
    ratios_T = np.cumprod(taken_T / np.exp(one.logprobs_T.astype(np.float64)))
    discounts_T: Floats = gamma ** np.arange(len(one), dtype=np.float64)
    return Weighed(one.seen, one.actions, one.rewards_T.astype(float), discounts_T, ratios_T, chances_TA)


def ips(episodes: Sequence[Weighed]) -> list[float]:
    """A term per episode, whose mean is the estimate."""
    return [float((one.discounts_T * one.ratios_T * one.rewards_T).sum()) for one in episodes]


def snips(episodes: Sequence[Weighed]) -> list[float]:
    """As `ips`; the terms' mean is the estimate, and their deviation that of its linearisation.

    Where an episode is over, its ratio stays and it earns nothing.
    """
    most = max(len(one.rewards_T) for one in episodes)
    ratios_ET = np.stack([np.pad(one.ratios_T, (0, most - len(one.ratios_T)), mode="edge") for one in episodes])
    earned_ET = np.stack([np.pad(one.discounts_T * one.rewards_T, (0, most - len(one.rewards_T))) for one in episodes])
    mean_T = ratios_ET.mean(0)
    share_ET = np.divide(ratios_ET, mean_T, out=np.zeros_like(ratios_ET), where=mean_T > 0)
    value_T = (share_ET * earned_ET).mean(0)
    terms_E: list[float] = (value_T.sum() + (share_ET * (earned_ET - value_T)).sum(1)).tolist()
    return terms_E


def doubly_robust(episodes: Sequence[Weighed], *, gamma: float) -> list[float]:
    """A term per episode; its model never saw that episode."""
    terms_E = np.zeros(len(episodes))
    for fold in range(FOLDS):
        model = _Linear.fitted([one for at, one in enumerate(episodes) if at % FOLDS != fold], gamma=gamma)
        for at in range(fold, len(episodes), FOLDS):
            terms_E[at] = model.term(episodes[at], gamma=gamma)
    return [float(term) for term in terms_E]


class _Linear:
    """Q(s, a): a linear function, for each action, of observations and their squares, fitted by least squares to
    temporal differences under the policy (LSTD-Q).
    """

    def __init__(self, mean_F: Floats, scale_F: Floats, weights_FA: Floats) -> None:
        self._mean_F, self._scale_F, self._weights_FA = mean_F, scale_F, weights_FA

    @classmethod
    def fitted(cls, episodes: Sequence[Weighed], *, gamma: float) -> "_Linear":
        """The model of these episodes."""
        seen_SF = np.concatenate([one.seen for one in episodes]).astype(np.float64)
        mean_F: Floats = seen_SF.mean(0)
        scale_F: Floats = seen_SF.std(0) + 1e-8
        choices = episodes[0].chances_TA.shape[1]
        size = choices * (1 + 2 * len(mean_F))
        left_FF, right_F = RIDGE * np.eye(size), np.zeros(size)
        for one in episodes:
            features_TF = _features(one.seen, mean_F, scale_F)
            now_TF = _by_choice(features_TF[:-1], np.eye(choices)[one.actions_T])
            next_TF = _by_choice(features_TF[1:], one.chances_TA[1:])
            next_TF[-1] *= 0.0  # what comes after the episode is not part of its return
            left_FF += now_TF.T @ (now_TF - gamma * next_TF)
            right_F += now_TF.T @ one.rewards_T
        weights_F = np.linalg.lstsq(left_FF, right_F, rcond=None)[0]
        return cls(mean_F, scale_F, weights_F.reshape(choices, -1).T)

    def term(self, one: Weighed, *, gamma: float) -> float:
        """The episode's term of the doubly robust estimate."""
        q_TA = _features(one.seen, self._mean_F, self._scale_F) @ self._weights_FA
        v_T = (one.chances_TA * q_TA).sum(1)
        first = float(v_T[0])
        v_T[-1] = 0.0
        q_T = q_TA[np.arange(len(one.actions_T)), one.actions_T]
        return first + float((one.discounts_T * one.ratios_T * (one.rewards_T + gamma * v_T[1:] - q_T)).sum())


def _features(seen_TF: Array, mean_F: Floats, scale_F: Floats) -> Floats:
    scaled_TF = (seen_TF - mean_F) / scale_F
    return np.concatenate([np.ones((len(seen_TF), 1)), scaled_TF, scaled_TF**2], 1)


def _by_choice(features_TF: Floats, shares_TA: Floats) -> Floats:
    """Features of each choice side by side, by their shares."""
    return (shares_TA[:, :, None] * features_TF[:, None, :]).reshape(len(features_TF), -1)
