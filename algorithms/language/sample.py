"""Samples: an attempt's token ids as sampled, the mask of its actions, and their rewards.

Axis: `_T` tokens of one sample.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loomrl.algorithms.language.advantage import preference_pairs
from loomrl.algorithms.language.packing import Sample, attempts_of
from loomrl.gym.preference import preference_of
from loomrl.inference.chat import pictures_of
from loomrl.types import Group, Reward, Trajectory, Turn, joined

ENGINE = "engine"
"""Column: log-probabilities as the engine reported them."""
REWARD = "reward"
"""Column: rewards, on the last action token of the turn that earned them; `[T, H]` of several objectives."""


AGE = "age"
"""Column: a token's age, in versions before the one that learns from it."""
SHIFT = "shift"
"""Column: how far a form and the like raised a token's log-probability, as in `loomrl.types.Tokens`."""


def sample_of(
    attempt: Trajectory, *, clip: tuple[float, float] | None = None, version: int = 0, parts: Sequence[str] = ()
) -> Sample | None:
    """The attempt's first thread as a sample for policy `version`; None if no token policy acted.

    `clip` bounds the total, on the last action. `parts` of the reward are kept apart, in place of the total.
    """
    extra = 0.0 if clip is None else min(max(attempt.reward.total, clip[0]), clip[1]) - attempt.reward.total
    return _thread(attempt.turns, extra=extra, version=version, parts=parts)


def _paid(reward: Reward, parts: Sequence[str]) -> float | NDArray[np.float64]:
    """The total, or `[H]`: each of these parts."""
    return np.array([reward.parts.get(name, 0.0) for name in parts]) if parts else reward.total


def _thread(turns: Sequence[Turn], *, extra: float, version: int, parts: Sequence[str] = ()) -> Sample | None:
    """One thread, with `extra` reward on its last action."""
    tokens = joined(turns)
    if tokens is None or not tokens.mask_T[1:].any():
        return None
    reward_T = np.zeros((len(tokens), len(parts)) if parts else len(tokens), np.float32)
    at = 0
    last = int(np.flatnonzero(tokens.mask_T)[0])
    for turn in turns:
        if turn.tokens is None:
            continue
        actions = np.flatnonzero(turn.tokens.mask_T)
        if actions.size:
            last = at + int(actions[-1])
        reward_T[last] += _paid(turn.reward, parts)
        at += len(turn.tokens)
    if extra:
        reward_T[last] += extra
    mask_T = tokens.mask_T.copy()
    mask_T[0] = False
    age_T = np.where(mask_T, version - tokens.versions_T, 0).astype(np.float32)
    pictures = tuple(pictures_of(m for turn in turns if turn.tokens is not None for m in turn.observation))
    shift_T = np.zeros(len(tokens), np.float32) if tokens.shifts_T is None else tokens.shifts_T
    columns = {ENGINE: tokens.logprobs_T, REWARD: reward_T, AGE: age_T, SHIFT: shift_T}
    return Sample(tokens.ids_T, mask_T, columns, pictures)


def cut_off(turns: Iterable[Turn], stop: Collection[int]) -> bool:
    """True if an answer ends otherwise than by one of the tokens that end a turn."""
    drawn = (turn.tokens.ids_T[turn.tokens.mask_T] for turn in turns if turn.tokens is not None)
    return any(len(ids_T) and int(ids_T[-1]) not in stop for ids_T in drawn)


def threads_of(
    attempt: Trajectory, *, clip: tuple[float, float] | None = None, version: int = 0, parts: Sequence[str] = ()
) -> list[Sample]:
    """All threads of an attempt that a token policy acted in. The first thread is last, as it earned the reward."""
    first = sample_of(attempt, clip=clip, version=version, parts=parts)
    others = [_thread(turns, extra=0.0, version=version, parts=parts) for turns in attempt.threads]
    found = [sample for sample in (*others, first) if sample is not None]
    if first is None and found:  # its ids are lost, and what it earned is the others' too
        total = _paid(attempt.reward, parts)
        total = total if clip is None else min(max(total, clip[0]), clip[1])
        reward_T = found[-1].columns[REWARD].copy()
        earned = sum(np.asarray(sample.columns[REWARD].sum(0), np.float64) for sample in found)
        reward_T[np.flatnonzero(found[-1].mask_T)[-1]] += total - earned
        found[-1] = replace(found[-1], columns={**found[-1].columns, REWARD: reward_T})
    if len(found) < 2:
        return found
    drawn = sum(sample.size.targets for sample in found)
    return [replace(sample, attempt=attempt.id, share=sample.size.targets / drawn) for sample in found]


def samples_of(
    groups: Iterable[Group],
    *,
    clip: tuple[float, float] | None = None,
    version: int = 0,
    stop: Collection[int] | None = None,
    parts: Sequence[str] = (),
    objectives: Sequence[str] = (),
) -> tuple[list[Sample], list[str]]:
    """All threads of all usable attempts of the groups, in order, and the group of each.

    `objectives` are what preferences weigh, in order. With `stop`, the tokens that end a turn, attempts that were cut
    off have nothing to learn: others are only compared with them.
    """
    samples = []
    names = []
    for group in groups:
        for attempt in group.usable:
            turns = (turn for thread in (attempt.turns, *attempt.threads) for turn in thread)
            is_skipped = stop is not None and cut_off(turns, stop)
            asked = preference_of(attempt.task) or {}
            for sample in threads_of(attempt, clip=clip, version=version, parts=parts):
                if objectives:  # by name: records keep no order
                    sample = replace(sample, preference=tuple(asked[name] for name in objectives))
                if is_skipped:
                    sample = replace(sample, mask_T=np.zeros_like(sample.mask_T))
                samples.append(sample)
                names.append(group.id)
    return samples, names


def preferences(
    groups: Sequence[Group], samples: Sequence[Sample], names: Sequence[str], *, pairs: int, margin: float = 0.0
) -> tuple[list[Sample], list[tuple[int, ...]]]:
    """Every better sample followed by the worse one, and the pairs as units; at most `pairs` of each group, whose
    rewards differ by at least `margin`.

    Attempts of several threads are compared as a whole, and stand in their pair with the first of them.
    """
    chosen: list[Sample] = []
    for group in groups:
        every = [sample for sample, name in zip(samples, names, strict=True) if name == group.id]
        attempts = [[every[index] for index in threads] for threads in attempts_of(every)]
        members = [replace(threads[-1], attempt="", share=1.0) for threads in attempts]
        totals = np.array([sum(sample.columns[REWARD].sum() for sample in threads) for threads in attempts])
        for better, worse in preference_pairs(totals, limit=pairs, margin=margin):
            chosen += [members[better], members[worse]]
    return chosen, [(i, i + 1) for i in range(0, len(chosen), 2)]
