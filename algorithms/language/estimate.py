"""From rewards to advantages: each algorithm's estimator, for samples of whole groups.

Axes: `_T` tokens of one sample (values on its action tokens, zeros elsewhere), `_N` samples, `_G` one group.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loomrl.algorithms.language.advantage import discounted_returns, gae_batch, group_relative, leave_one_out, whiten
from loomrl.config import GRPO, PPO, RLOO, Reinforce
from loomrl.errors import LearnerError

Floats = NDArray[np.float64]
Column = Sequence[NDArray[np.floating]]
Masks = Sequence[NDArray[np.bool_]]
PolicyGradientAlgorithm = PPO | GRPO | RLOO | Reinforce


@dataclass(frozen=True, slots=True)
class Estimate:
    """Per token: the advantage, and the target of a value head."""

    advantages: list[Floats]
    returns: list[Floats] | None = None


def estimate(
    algorithm: PolicyGradientAlgorithm,
    rewards: Column,
    masks: Masks,
    *,
    groups: Sequence[str],
    values: Column | None = None,
) -> Estimate:
    """The advantages of samples, normalised over all of them if the algorithm says so.

    An episode cut short by the attempt limit or the context counts as terminated: those limits are part of the task.
    """
    made = _estimate(algorithm, rewards, masks, groups, values)
    if not algorithm.normalize_advantages or not made.advantages:
        return made
    flat = whiten(np.concatenate(made.advantages), np.concatenate(masks))
    ends = np.cumsum([len(mask_T) for mask_T in masks])[:-1]
    return Estimate(np.split(flat, ends), made.returns)


class Estimator(Protocol):
    """A learner, as far as it makes advantages."""

    def advantages(self, rewards: Column, masks: Masks, *, groups: Sequence[str], values: Column | None) -> Estimate:
        """Per token of every row."""


def over_attempts(
    learner: Estimator,
    rewards: Column,
    masks: Masks,
    *,
    groups: Sequence[str],
    values: Column | None,
    attempts: Sequence[Sequence[int]],
) -> Estimate:
    """The learner's advantages per sample. The threads of an attempt are one row for it, one after the other.

    So an attempt is compared once with its group, and its threads share what it earned.
    """
    if len(attempts) == len(masks):
        return per_sample(learner.advantages(rewards, masks, groups=groups, values=values), masks, learner)

    def joined(column: Sequence[Any]) -> list[Any]:
        return [np.concatenate([column[index] for index in threads]) for threads in attempts]

    whole = joined(masks)
    names = [groups[threads[0]] for threads in attempts] if groups else groups
    made = learner.advantages(joined(rewards), whole, groups=names, values=values and joined(values))
    made = per_sample(made, whole, learner)
    ends = np.cumsum([len(mask_T) for mask_T in masks])[:-1]

    def split(column: Sequence[Floats]) -> list[Floats]:
        return np.split(np.concatenate(column), ends)

    return Estimate(split(made.advantages), None if made.returns is None else split(made.returns))


def per_sample(made: Estimate, masks: Masks, learner: object) -> Estimate:
    """The estimate unchanged, or a LearnerError if a learner's `advantages` returned anything but one number
    per token.
    """
    lengths = [len(mask_T) for mask_T in masks]
    if isinstance(made, Estimate) and [len(one_T) for one_T in made.advantages] == lengths:
        return made
    raise LearnerError(
        f"{type(learner).__name__}.advantages made a {type(made).__name__} that does not fit its masks: return "
        "loomrl.algorithms.language.estimate.Estimate of a list with one array per sample, as long as its mask, and "
        "zeros where that is false."
    )


def _estimate(
    algorithm: PolicyGradientAlgorithm, rewards: Column, masks: Masks, groups: Sequence[str], values: Column | None
) -> Estimate:
    match algorithm:
        case PPO():
            assert values is not None
            over_N = np.zeros(len(rewards))
            paid = _of_what_is_learnt(rewards, masks)
            return Estimate(
                *gae_batch(paid, values, masks, gamma=algorithm.gamma, lam=algorithm.gae_lambda, bootstrap_N=over_N)
            )
        case Reinforce():
            pairs = zip(_of_what_is_learnt(rewards, masks), masks, strict=True)
            return Estimate([discounted_returns(r_T, m_T, gamma=algorithm.gamma) for r_T, m_T in pairs])
        case GRPO():
            compare = partial(group_relative, scale=algorithm.scale)
            return _relative(rewards, masks, groups, compare, by_turn=algorithm.credit == "turn")
        case RLOO():
            return _relative(rewards, masks, groups, leave_one_out, by_turn=algorithm.credit == "turn")


def _of_what_is_learnt(rewards: Column, masks: Masks) -> list[NDArray[np.floating]]:
    """The rewards, but none of samples that others are only compared with."""
    return [
        reward_T if mask_T.any() else np.zeros_like(reward_T) for reward_T, mask_T in zip(rewards, masks, strict=True)
    ]


def _relative(
    rewards: Column, masks: Masks, groups: Sequence[str], compare: Callable[[Floats], Floats], *, by_turn: bool
) -> Estimate:
    """Every action token of a sample gets what the sample, or what it earned from the token's turn on, is within its
    group. A sample that is over earns nothing more.
    """
    turns = [_turns(mask_T) if by_turn else np.zeros(len(mask_T), np.int64) for mask_T in masks]
    earned_NK = np.zeros((len(masks), 1 + max((int(turn_T.max()) for turn_T in turns), default=0)))
    for earned_K, reward_T, turn_T in zip(earned_NK, rewards, turns, strict=True):
        np.add.at(earned_K, turn_T, reward_T)
    to_come_NK = np.cumsum(earned_NK[:, ::-1], 1)[:, ::-1]
    names_N = np.array(groups)
    standing_NK = np.zeros_like(to_come_NK)
    for name in dict.fromkeys(groups):
        members_N = names_N == name
        standing_NK[members_N] = np.stack([compare(column_G) for column_G in to_come_NK[members_N].T], 1)
    rows = zip(masks, turns, standing_NK, strict=True)
    return Estimate([mask_T * standing_K[turn_T] for mask_T, turn_T, standing_K in rows])


def _turns(mask_T: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of each action token's turn; other tokens count to the turn before them."""
    begins_T = mask_T & ~np.concatenate([[False], mask_T[:-1]])
    turn_T: NDArray[np.int64] = np.maximum(np.cumsum(begins_T) - 1, 0)
    return turn_T
