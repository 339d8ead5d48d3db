"""Lessons from what people judged, preferred, corrected, and from the best texts."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from loomrl.algorithms.language.lesson import Lesson
from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.resolved import Resolved
from loomrl.algorithms.language.served.item import Answer, Item
from loomrl.algorithms.language.served.sample import answered, corrected, swapped, threads
from loomrl.config import DPO, KTO
from loomrl.inference.chat import ChatTemplate, open_chat
from loomrl.types import Trajectory

_log = logging.getLogger(__name__)

Read = Mapping[str, Trajectory]
"""The trajectories of an update by id."""


class Teacher:
    """Makes samples of items, as the algorithm wants them."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved

    def lesson(self, items: Iterable[Item], read: Read) -> Lesson:
        """The samples of those items whose trajectories were read."""
        there = [item for item in items if all(row.trajectory in read for row in item.rows)]
        match self._resolved.algorithm:
            case KTO():
                return self._weighed(there, read)
            case DPO():
                pairs = [pair for item in there if (pair := self._pair(item, read)) is not None]
                units = [(at, at + 1) for at in range(0, 2 * len(pairs), 2)]
                return Lesson(kind="prefer", samples=[one for pair in pairs for one in pair], units=units)
            case _:
                written = [one for item in there for one in threads(read[item.rows[0].trajectory], self._chat)]
                return Lesson(kind="follow", samples=[one for one in written if self._fits(one)])

    def _weighed(self, items: Sequence[Item], read: Read) -> Lesson:
        judged = [(made, item.label) for item in items if (made := self._answer(item.answers[0], read)) is not None]
        samples = [made for made, _ in judged]
        labels = [label for _, label in judged]
        others = swapped(samples, context=self._context)
        return Lesson(kind="weigh", samples=samples, labels=labels, mismatched=others)

    def _pair(self, item: Item, read: Read) -> tuple[Sample, Sample] | None:
        """The better answer and the worse one."""
        first, second = item.answers
        if item.text is None:
            better = self._answer(first, read)
            worse = self._answer(second, read)
            return None if better is None or worse is None else (better, worse)
        made = corrected(read[first.row.trajectory], first.call, item.text, self._chat)
        return made if made is not None and all(map(self._fits, made)) else None

    def _answer(self, answer: Answer, read: Read) -> Sample | None:
        made = answered(read[answer.row.trajectory], answer.call, self._chat)
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
        return open_chat(origin, trust_remote_code=trusts)
