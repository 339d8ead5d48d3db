"""Advantages of attempts and of tokens, as pure functions of numpy arrays.

Axes: `_G` attempts of one group, `_T` tokens of one sample, `_NT` samples padded to the longest, `_N` samples.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.algorithms.advantage import has_signal

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


def gae(
    rewards_T: Array, values_T: Array, mask_T: Mask, *, gamma: float, lam: float, bootstrap: float = 0.0
) -> tuple[Floats, Floats]:
    """Advantages and returns of one sample, as in `gae_batch`."""
    advantages, returns = gae_batch([rewards_T], [values_T], [mask_T], gamma=gamma, lam=lam, bootstrap_N=[bootstrap])
    return advantages[0], returns[0]


def gae_batch(
    rewards: Sequence[Array],
    values: Sequence[Array],
    masks: Sequence[Mask],
    *,
    gamma: float,
    lam: float,
    bootstrap_N: Sequence[float] | Array,
) -> tuple[list[Floats], list[Floats]]:
    """Generalised advantage estimation over action tokens, and the returns that values should predict.

    Environment tokens (mask false) take no time: a turn's last action token is followed by the next turn's first. They
    get zeros. `bootstrap_N` is the value of a truncated sample after its last token, 0 for a terminated one.
    """
    if np.concatenate(rewards)[~np.concatenate(masks)].any():
        raise ValueError("rewards: one is on an environment token. Put it on the last action token before that.")
    rewards_NT = _actions(rewards, masks)
    values_NT = _actions(values, masks)
    lengths_N = np.array([mask.sum() for mask in masks])
    advantages_NT = np.zeros_like(rewards_NT)
    next_value_N = np.asarray(bootstrap_N, np.float64)
    advantage_N = np.zeros(len(masks))
    for t in reversed(range(rewards_NT.shape[1])):
        inside_N = t < lengths_N
        delta_N = rewards_NT[:, t] + gamma * next_value_N - values_NT[:, t]
        advantage_N = np.where(inside_N, delta_N + gamma * lam * advantage_N, advantage_N)
        next_value_N = np.where(inside_N, values_NT[:, t], next_value_N)
        advantages_NT[:, t] = advantage_N
    return _spread(advantages_NT, masks), _spread(advantages_NT + values_NT, masks)


def discounted_returns(rewards_T: Array, mask_T: Mask, *, gamma: float) -> Floats:
    """The return from each action token on, discounted once per action token."""
    return gae(rewards_T, np.zeros(len(rewards_T)), mask_T, gamma=gamma, lam=1.0)[1]


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
