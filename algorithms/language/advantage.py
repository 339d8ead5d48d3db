"""From rewards to advantages: pure functions of numpy arrays, and each algorithm's estimator made of them.

Axes: `_G` attempts of one group, `_T` tokens of one sample, `_NT` samples padded to the longest, `_N` samples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.algorithms.advantage import gae, has_signal
from loomrl.config import GRPO, PPO, RLOO, Reinforce
from loomrl.errors import LearnerError

Array = NDArray[np.floating[Any]]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def group_relative(rewards_G: Array, *, scale: bool) -> Floats:
    """GRPO: reward minus the group's mean, with `scale` over its standard deviation; zeros if all rewards are equal."""
    rewards = np.asarray(rewards_G, np.float64)
    if not has_signal(rewards):
        return np.zeros_like(rewards)
    advantages: Floats = rewards - rewards.mean()
    return advantages / advantages.std() if scale else advantages


def leave_one_out(rewards_G: Array) -> Floats:
    """RLOO: reward minus the mean of the group's other attempts; a single attempt has advantage 0."""
    rewards = np.asarray(rewards_G, np.float64)
    if len(rewards) < 2 or not has_signal(rewards):
        return np.zeros_like(rewards)
    advantages: Floats = (rewards - rewards.mean()) * (len(rewards) / (len(rewards) - 1))
    return advantages


def token_gae(
    rewards: Sequence[Array], values: Sequence[Array], masks: Sequence[Mask], *, gamma: float, lam: float
) -> tuple[list[Floats], list[Floats]]:
    """Generalised advantage estimation over action tokens, and the returns that values should predict.

    Environment tokens (mask false) take no time: a turn's last action token is followed by the next turn's first. They
    get zeros. Every sample counts as terminated: limits of attempts and contexts are part of the task.
    """
    if np.concatenate(rewards)[~np.concatenate(masks)].any():
        raise ValueError("rewards: one is on an environment token. Put it on the last action token before that.")
    rewards_NT = _actions(rewards, masks)
    values_NT = _actions(values, masks)
    ahead_NT = np.pad(values_NT, ((0, 0), (0, 1)))
    lengths_N = np.array([mask.sum() for mask in masks])
    over_NT = np.arange(rewards_NT.shape[1]) == lengths_N[:, None] - 1
    advantages_NT: Floats = np.asarray(gae(rewards_NT.T, ahead_NT.T, over_NT.T, over_NT.T, gamma=gamma, lam=lam).T)
    return _spread(advantages_NT, masks), _spread(advantages_NT + values_NT, masks)


def whiten(values: Array, mask: Mask) -> Floats:
    """`values` normalised to mean 0 and standard deviation 1 over the mask; zeros outside it, and if all are equal."""
    out = np.zeros(values.shape)
    if has_signal(values[mask]):
        inside = np.asarray(values[mask], np.float64)
        out[mask] = (inside - inside.mean()) / inside.std()
    return out


def preference_pairs(rewards_G: Array, *, limit: int, margin: float = 0.0) -> list[tuple[int, int]]:
    """(better, worse): the best attempt with the worst, the second best with the second worst, and so on.

    An attempt is in one pair at most; of equal attempts the earlier counts as the better. The two differ by at least
    `margin`.
    """
    order = np.argsort(-np.asarray(rewards_G, np.float64), kind="stable").tolist()
    pairs = zip(order[: len(order) // 2], reversed(order), strict=False)
    apart = [(b, w) for b, w in pairs if has_signal(rewards_G[[b, w]]) and rewards_G[b] - rewards_G[w] >= margin]
    return apart[:limit]


def _actions(columns: Sequence[Array], masks: Sequence[Mask]) -> Floats:
    """The masked entries of each column, padded with zeros to one matrix."""
    counts_N = [int(mask.sum()) for mask in masks]
    out_NT = np.zeros((len(masks), max(counts_N, default=0)))
    inside_NT = np.arange(out_NT.shape[1]) < np.array(counts_N)[:, None]
    out_NT[inside_NT] = np.concatenate(columns)[np.concatenate(masks)]
    return out_NT


def _spread(actions_NT: Floats, masks: Sequence[Mask]) -> list[Floats]:
    """The inverse of `_actions`: zeros outside the masks."""
    flat_mask = np.concatenate(masks)
    inside_NT = np.arange(actions_NT.shape[1]) < np.array([mask.sum() for mask in masks])[:, None]
    flat = np.zeros(len(flat_mask))
    flat[flat_mask] = actions_NT[inside_NT]
    return np.split(flat, np.cumsum([len(mask) for mask in masks])[:-1])


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


def over_attempts(
    advantages: Callable[..., Estimate],
    rewards: Column,
    masks: Masks,
    *,
    groups: Sequence[str],
    values: Column | None,
    attempts: Sequence[Sequence[int]],
) -> Estimate:
    """Advantages per sample by a learner's method. The threads of an attempt are one row for it, one after the other.

    So an attempt is compared once with its group, and its threads share what it earned.
    """
    if len(attempts) == len(masks):
        return check_estimate(advantages(rewards, masks, groups=groups, values=values), masks, advantages)

    def join(column: Sequence[Any]) -> list[Any]:
        return [np.concatenate([column[index] for index in threads]) for threads in attempts]

    whole = join(masks)
    names = [groups[threads[0]] for threads in attempts] if groups else groups
    made = advantages(join(rewards), whole, groups=names, values=values and join(values))
    made = check_estimate(made, whole, advantages)
    ends = np.cumsum([len(mask_T) for mask_T in masks])[:-1]

    def split(column: Sequence[Floats]) -> list[Floats]:
        return np.split(np.concatenate(column), ends)

    return Estimate(split(made.advantages), None if made.returns is None else split(made.returns))


def check_estimate(made: Estimate, masks: Masks, advantages: Callable[..., Estimate]) -> Estimate:
    """The estimate unchanged, or a LearnerError if a learner's `advantages` returned anything but one number
    per token.
    """
    lengths = [len(mask_T) for mask_T in masks]
    if isinstance(made, Estimate) and [len(one_T) for one_T in made.advantages] == lengths:
        return made
    raise LearnerError(
        f"{advantages.__qualname__} made a {type(made).__name__} that does not fit its masks: return "
        "loomrl.algorithms.language.advantage.Estimate of a list with one array per sample, as long as its mask, and "
        "zeros where that is false."
    )


def _estimate(
    algorithm: PolicyGradientAlgorithm, rewards: Column, masks: Masks, groups: Sequence[str], values: Column | None
) -> Estimate:
    match algorithm:
        case PPO():
            assert values is not None
            paid = _rewards_to_learn(rewards, masks)
            return Estimate(*token_gae(paid, values, masks, gamma=algorithm.gamma, lam=algorithm.gae_lambda))
        case Reinforce():
            paid = _rewards_to_learn(rewards, masks)
            nothing = [np.zeros(len(mask_T)) for mask_T in masks]  # without values, GAE with λ=1 is the return
            return Estimate(token_gae(paid, nothing, masks, gamma=algorithm.gamma, lam=1.0)[0])
        case GRPO():
            compare = partial(group_relative, scale=algorithm.scale)
            return _relative(rewards, masks, groups, compare, by_turn=algorithm.credit == "turn")
        case RLOO():
            return _relative(rewards, masks, groups, leave_one_out, by_turn=algorithm.credit == "turn")


def _rewards_to_learn(rewards: Column, masks: Masks) -> list[NDArray[np.floating]]:
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
