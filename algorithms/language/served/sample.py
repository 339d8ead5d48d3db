"""Answers on record as samples: by their ids where there are any, else tokenised once by the template.

Axis: `_T` tokens of one sample.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from loomrl.algorithms.language.packing import Sample
from loomrl.inference.chat import ChatTemplate, Transcript, pictures_of
from loomrl.types import Trajectory, Turn


def answered(attempt: Trajectory, call: str, chat: ChatTemplate) -> Sample | None:
    """The thread of a call up to its answer, which alone is learnt; without a call the first thread with all answers.

    None if the trajectory has no such call.
    """
    found = _find(attempt, call)
    if found is None:
        return None
    turns, at = found
    return written(turns, chat, learns=lambda number: at is None or number == at)


def corrected(attempt: Trajectory, call: str, text: str, chat: ChatTemplate) -> tuple[Sample, Sample] | None:
    """A text in the place of an answer, and the answer: the last one of the first thread, if no call is named."""
    found = _find(attempt, call)
    if found is None:
        return None
    turns, at = found
    last = len(turns) - 1 if at is None else at
    before = turns[:last]
    turn = turns[last]
    better = written((*before, replace(turn, action=text)), chat, learns=lambda number: number == last, anew=last)
    worse = written((*before, turn), chat, learns=lambda number: number == last)
    return None if better is None or worse is None else (better, worse)


def threads(attempt: Trajectory, chat: ChatTemplate) -> list[Sample]:
    """Every thread with all answers, but for those that a monitor's rule stopped."""
    about = attempt.extra.get("session", {})
    stopped = about.get("stopped", {})
    calls = about.get("calls", ())
    names = [*calls, *[()] * (len(attempt.sequences) - len(calls))]
    made = [
        written(turns, chat, learns=_unless(stopped, each))
        for turns, each in zip(attempt.sequences, names, strict=True)
    ]
    return [sample for sample in made if sample is not None]


def written(
    turns: Sequence[Turn], chat: ChatTemplate, *, learns: Callable[[int], bool], anew: int | None = None
) -> Sample | None:
    """A thread as one sample, of which the answers of these turns are learnt; None if that is nothing.

    Turn `anew` is tokenised from its text even if it has ids.
    """
    transcript = Transcript(chat)
    masks = []
    for number, turn in enumerate(turns):
        if turn.tokens is None:
            asked_T = transcript.observe(turn.observation)
            said_T = chat.encode(turn.action)
        else:
            first = int(np.flatnonzero(turn.tokens.mask_T)[0]) if turn.tokens.mask_T.any() else len(turn.tokens)
            asked_T = turn.tokens.ids_T[:first]
            said_T = turn.tokens.ids_T[first:]
            transcript.append_sampled(asked_T)
            said_T = chat.encode(turn.action) if number == anew else said_T
        transcript.append_sampled(said_T)
        masks += [np.zeros(len(asked_T), np.bool_), np.full(len(said_T), learns(number))]
    ids_T = transcript.ids
    mask_T = np.concatenate([np.zeros(0, np.bool_), *masks])
    if not mask_T[1:].any():
        return None
    return Sample(ids_T, mask_T, pictures=tuple(pictures_of(m for turn in turns for m in turn.observation)))


def swapped(samples: Sequence[Sample], *, context: int) -> list[Sample]:
    """Each prompt with the next sample's answer: what a policy says that does not listen."""
    made = []
    for one, other in zip(samples, [*samples[1:], *samples[:1]], strict=True):
        asked = _first(one)
        said = _first(other)
        ids_T = np.concatenate([one.ids_T[:asked], other.ids_T[said:]])[:context]
        mask_T = np.concatenate([np.zeros(asked, np.bool_), other.mask_T[said:]])[:context]
        if mask_T[1:].any() and not (one.pictures or other.pictures):
            made.append(Sample(ids_T, mask_T))
    return made


def _unless(stopped: Collection[str], names: Sequence[str]) -> Callable[[int], bool]:
    """True for the answers of a thread that are not among the stopped ones."""
    return lambda number: number >= len(names) or names[number] not in stopped


def _first(sample: Sample) -> int:
    return int(np.flatnonzero(sample.mask_T)[0])


def _find(attempt: Trajectory, call: str) -> tuple[tuple[Turn, ...], int | None] | None:
    """The thread of a call with the place of its answer; the first choice's, if the call had several."""
    if not call:
        return attempt.turns, None
    calls = attempt.extra.get("session", {}).get("calls", ())
    for turns, names in zip(attempt.sequences, calls, strict=False):
        for at, name in enumerate(names):
            if call in (name, name.rpartition("/")[0]):
                return turns[: at + 1], at
    return None
