"""Samples: an attempt's token ids as sampled, the mask of its actions, and their rewards.

Axis: `_T` tokens of one sample.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from loomrl.algorithms.language.advantage import preference_pairs
from loomrl.algorithms.language.packing import Sample
from loomrl.inference.chat import pictures_of
from loomrl.types import Group, Trajectory

ENGINE = "engine"
"""Column: log-probabilities as the engine reported them."""
REWARD = "reward"
"""Column: rewards, on the last action token of the turn that earned them."""


AGE = "age"
"""Column: a token's age, in versions before the one that learns from it."""


def sample_of(attempt: Trajectory, *, clip: tuple[float, float] | None = None, version: int = 0) -> Sample | None:
    """The attempt as a sample for policy `version`; None if no token policy acted.

    `clip` bounds the total, on the last action.
    """
    tokens = attempt.tokens
    if tokens is None or not tokens.mask_T[1:].any():
        return None
    reward_T = np.zeros(len(tokens), np.float32)
    at, last = 0, int(np.flatnonzero(tokens.mask_T)[0])
    for turn in attempt.turns:
        if turn.tokens is None:
            continue
        actions = np.flatnonzero(turn.tokens.mask_T)
        if actions.size:
            last = at + int(actions[-1])
        reward_T[last] += turn.reward.total
        at += len(turn.tokens)
    if clip is not None:
        reward_T[last] += min(max(attempt.reward.total, clip[0]), clip[1]) - attempt.reward.total
    mask_T = tokens.mask_T.copy()
    mask_T[0] = False
    age_T = np.where(mask_T, version - tokens.versions_T, 0).astype(np.float32)
    pictures = tuple(pictures_of(m for turn in attempt.turns if turn.tokens is not None for m in turn.observation))
    return Sample(tokens.ids_T, mask_T, {ENGINE: tokens.logprobs_T, REWARD: reward_T, AGE: age_T}, pictures)


def samples_of(
    groups: Iterable[Group], *, clip: tuple[float, float] | None = None, version: int = 0
) -> tuple[list[Sample], list[str]]:
    """All usable attempts of the groups, in order, and the group of each."""
    samples, names = [], []
    for group in groups:
        for attempt in group.usable:
            sample = sample_of(attempt, clip=clip, version=version)
            if sample is not None:
                samples.append(sample)
                names.append(group.id)
    return samples, names


def preferences(
    groups: Sequence[Group], samples: Sequence[Sample], names: Sequence[str], *, pairs: int
) -> tuple[list[Sample], list[tuple[int, ...]]]:
    """Every better sample followed by the worse one, and the pairs as units; at most `pairs` of each group."""
    chosen: list[Sample] = []
    for group in groups:
        members = [sample for sample, name in zip(samples, names, strict=True) if name == group.id]
        totals = np.array([sample.columns[REWARD].sum() for sample in members])
        for better, worse in preference_pairs(totals, limit=pairs):
            chosen += [members[better], members[worse]]
    return chosen, [(i, i + 1) for i in range(0, len(chosen), 2)]
