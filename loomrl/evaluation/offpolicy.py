"""The value of a policy from episodes that another one played and whose probabilities are on record.

Per episode, with the ratio ρ of both policies' probabilities for all actions up to a step:

    ips     Σ γᵗ ρ r                                   unbiased; varies with the ratios
    snips   the same, with ρ divided by its mean       slightly biased, varies less
    dr      V(s₀) + Σ γᵗ ρ (r + γ V(s′) − Q(s, a))     unbiased with any model, varies less the better it is

Intervals are Student's over episodes; for snips over its linearised terms. They assume that the mean over episodes is
nearly normal, which it is not where few episodes carry all the weight: `effective` says how many do.

Axes: `_T` steps of an episode, `_A` choices, `_E` episodes, `_S` steps of all episodes, `_R` those and what is seen
after the last of each, `_F` features, `_K` features of all choices.
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
    """Estimates of a policy's value from logged episodes."""

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
    """Products of probability ratios of all actions up to each step."""
    chances_TA: Floats
    """The policy's probabilities, one row more than steps."""


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
    weighed = _weigh(known, policy, gamma=gamma, greedy=greedy)
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


def _weigh(known: Sequence[Logged], policy: Chooses, *, gamma: float, greedy: bool) -> list[Weighed]:
    chances_RA = np.asarray(policy.chances(np.concatenate([one.seen for one in known]), greedy=greedy), np.float64)
    ends = np.cumsum([len(one.seen) for one in known])[:-1]
    found = []
    for one, chances_TA in zip(known, np.split(chances_RA, ends), strict=True):
        assert one.logprobs_T is not None, "others are left out"
        taken_T = chances_TA[np.arange(len(one)), one.actions]
        ratios_T = np.cumprod(taken_T / np.exp(one.logprobs_T.astype(np.float64)))
        discounts_T: Floats = gamma ** np.arange(len(one), dtype=np.float64)
        rewards_T = one.rewards_T.astype(np.float64)
        found.append(Weighed(one.seen, one.actions, rewards_T, discounts_T, ratios_T, chances_TA))
    return found


def ips(episodes: Sequence[Weighed]) -> list[float]:
    """A term per episode, whose mean is the estimate."""
    return [float((one.discounts_T * one.ratios_T * one.rewards_T).sum()) for one in episodes]


def snips(episodes: Sequence[Weighed]) -> list[float]:
    """The terms of self-normalised `ips`: their mean is the estimate, their deviation that of its linearisation.

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
    """A term per episode, by a model that was fitted without that episode.

    The model of Q(s, a) is linear, for each action, in observations and their squares, fitted by least squares to
    temporal differences under the policy (LSTD-Q).
    """
    features_RF = _features(np.concatenate([one.seen for one in episodes]))
    expected_RK = _by_choice(features_RF, np.concatenate([one.chances_TA for one in episodes]))
    lengths_E = np.array([len(one.rewards_T) for one in episodes])
    firsts_E = np.concatenate([[0], np.cumsum(lengths_E + 1)[:-1]])
    rows_S = np.concatenate([first + np.arange(count) for first, count in zip(firsts_E, lengths_E, strict=True)])
    choices = np.eye(episodes[0].chances_TA.shape[1])
    now_SK = _by_choice(features_RF[rows_S], choices[np.concatenate([one.actions_T for one in episodes])])
    next_SK = expected_RK[rows_S + 1]
    next_SK[np.cumsum(lengths_E) - 1] = 0.0  # what comes after the episode is not part of its return
    rewards_S = np.concatenate([one.rewards_T for one in episodes])
    weights_S = np.concatenate([one.discounts_T * one.ratios_T for one in episodes])
    folds_E = np.arange(len(episodes)) % FOLDS
    folds_S = np.repeat(folds_E, lengths_E)
    episode_S = np.repeat(np.arange(len(episodes)), lengths_E)
    terms_E = np.zeros(len(episodes))
    for fold in range(FOLDS):
        others = folds_S != fold
        fit_SK = now_SK[others]
        size = now_SK.shape[1]
        left_KK = fit_SK.T @ (fit_SK - gamma * next_SK[others]) + RIDGE * np.eye(size)
        weights_K = np.linalg.lstsq(left_KK, fit_SK.T @ rewards_S[others], rcond=None)[0]
        errors_S = weights_S * (rewards_S + (gamma * next_SK - now_SK) @ weights_K)
        summed_E = np.bincount(episode_S, errors_S, len(episodes)) + expected_RK[firsts_E] @ weights_K
        terms_E[folds_E == fold] = summed_E[folds_E == fold]
    return [float(term) for term in terms_E]


def _features(seen_RF: Array) -> Floats:
    seen_RF = seen_RF.astype(np.float64)
    scaled_RF = (seen_RF - seen_RF.mean(0)) / (seen_RF.std(0) + 1e-8)
    return np.concatenate([np.ones((len(scaled_RF), 1)), scaled_RF, scaled_RF**2], 1)


def _by_choice(features_RF: Floats, shares_RA: Floats) -> Floats:
    """Features of each choice side by side, by their shares."""
    return (shares_RA[:, :, None] * features_RF[:, None, :]).reshape(len(features_RF), -1)
