"""Lessons from what people judged, preferred, corrected, and from the best texts."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from loomrl.algorithms.language.lesson import Lesson
from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.resolved import Resolved
from loomrl.algorithms.language.served.item import ServedAnswer, ServedItem
from loomrl.config import DPO, KTO
from loomrl.inference.chat import ChatTemplate, Transcript, pictures_of
from loomrl.inference.model import open_tokenizer
from loomrl.inference.vision import open_vision
from loomrl.types import Trajectory, Turn


def sample_answer(attempt: Trajectory, call: str, chat: ChatTemplate) -> Sample | None:
    """The thread of a call up to its answer, which alone is learnt; without a call the first thread with all answers.

    None if the trajectory has no such call.
    """
    found = find_call(attempt, call)
    if found is None:
        return None
    turns, at = found
    return encode_thread(turns, chat, learns=lambda number: at is None or number == at)


def sample_correction(attempt: Trajectory, call: str, text: str, chat: ChatTemplate) -> tuple[Sample, Sample] | None:
    """A text in the place of an answer, and the answer: the last one of the first thread, if no call is named."""
    found = find_call(attempt, call)
    if found is None:
        return None
    turns, at = found
    last = len(turns) - 1 if at is None else at
    before = turns[:last]
    turn = turns[last]
    better = encode_thread((*before, replace(turn, action=text)), chat, learns=lambda number: number == last, anew=last)
    worse = encode_thread((*before, turn), chat, learns=lambda number: number == last)
    return None if better is None or worse is None else (better, worse)


def sample_threads(attempt: Trajectory, chat: ChatTemplate) -> list[Sample]:
    """Every thread with all answers, but for those that a monitor's rule stopped."""
    about = attempt.extra.get("session", {})
    stopped = about.get("stopped", {})
    calls = about.get("calls", ())
    names = [*calls, *[()] * (len(attempt.sequences) - len(calls))]
    made = [
        encode_thread(turns, chat, learns=_unless(stopped, each))
        for turns, each in zip(attempt.sequences, names, strict=True)
    ]
    return [sample for sample in made if sample is not None]


def encode_thread(
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


def swap_answers(samples: Sequence[Sample], *, context: int) -> list[Sample]:
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


def find_call(attempt: Trajectory, call: str) -> tuple[tuple[Turn, ...], int | None] | None:
    """The thread of a call with the place of its answer; the first choice's, if the call had several."""
    if not call:
        return attempt.turns, None
    calls = attempt.extra.get("session", {}).get("calls", ())
    for turns, names in zip(attempt.sequences, calls, strict=False):
        for at, name in enumerate(names):
            if call in (name, name.rpartition("/")[0]):
                return turns[: at + 1], at
    return None


_log = logging.getLogger(__name__)

Read = Mapping[str, Trajectory]
"""The trajectories of an update by id."""


class Teacher:
    """Makes samples of items, as the algorithm wants them."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved

    def lesson(self, items: Iterable[ServedItem], read: Read) -> Lesson:
        """The samples of those items whose trajectories were read."""
        there = [item for item in items if all(row.trajectory in read for row in item.rows)]
        match self._resolved.algorithm:
            case KTO():
                return self._weigh(there, read)
            case DPO():
                pairs = [pair for item in there if (pair := self._pair(item, read)) is not None]
                units = [(at, at + 1) for at in range(0, 2 * len(pairs), 2)]
                return Lesson(kind="prefer", samples=[one for pair in pairs for one in pair], units=units)
            case _:
                written = [one for item in there for one in sample_threads(read[item.rows[0].trajectory], self._chat)]
                return Lesson(kind="follow", samples=[one for one in written if self._fits(one)])

    def _weigh(self, items: Sequence[ServedItem], read: Read) -> Lesson:
        judged = [(made, item.label) for item in items if (made := self._answer(item.answers[0], read)) is not None]
        samples = [made for made, _ in judged]
        labels = [label for _, label in judged]
        others = swap_answers(samples, context=self._context)
        return Lesson(kind="weigh", samples=samples, labels=labels, mismatched=others)

    def _pair(self, item: ServedItem, read: Read) -> tuple[Sample, Sample] | None:
        """The better answer and the worse one."""
        first, second = item.answers
        if item.text is None:
            better = self._answer(first, read)
            worse = self._answer(second, read)
            return None if better is None or worse is None else (better, worse)
        made = sample_correction(read[first.row.trajectory], first.call, item.text, self._chat)
        return made if made is not None and all(map(self._fits, made)) else None

    def _answer(self, answer: ServedAnswer, read: Read) -> Sample | None:
        made = sample_answer(read[answer.row.trajectory], answer.call, self._chat)
        return made if made is not None and self._fits(made) else None

    def _fits(self, made: Sample) -> bool:
        if len(made.ids_T) <= self._context:
            return True
        _log.warning(
            "a sample of %d tokens is not learnt from: algorithm.model.context=%d.", len(made.ids_T), self._context
        )
        return False

    @property
    def _context(self) -> int:
        return self._resolved.algorithm.model.context

    @cached_property
    def _chat(self) -> ChatTemplate:
        origin = self._resolved.origin
        trusts = self._resolved.model.trust_remote_code
        return ChatTemplate(
            open_tokenizer(origin, trust_remote_code=trusts), open_vision(origin, trust_remote_code=trusts)
        )
