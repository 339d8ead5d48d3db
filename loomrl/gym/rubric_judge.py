"""A model that judges attempts by a rubric, in the background, each of them once."""

import asyncio
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from threading import Lock
from typing import Any

from typing_extensions import override

from loomrl.canonical import content_hash
from loomrl.config.rewards import RubricPart
from loomrl.gym.chat_server import ChatServer
from loomrl.gym.grade import AttemptJudge, Grade
from loomrl.gym.judge import Opinion, conversation
from loomrl.gym.rubric import chat, fingerprint, order, read_calibration, read_opinions, response_format, worth
from loomrl.gym.synchronous import PrivateLoop
from loomrl.types import Message, Trajectory

REMEMBERED = 8192
"""Grades that are kept; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricGrade(Grade):
    """An opinion by criterion. Reasons are those of a vote that gave the median."""

    shares: Mapping[str, float]
    """By criterion: 0 for no, 0.5 for partly, 1 for yes; of several votes the median."""
    raw: float
    """The weighted share; the score is the same, or what the calibration makes of it."""

    @override
    def data(self) -> dict[str, Any]:
        own = {"raw": self.raw, "shares": dict(self.shares)}
        return Grade.data(self) | own  # no super(): a dataclass with slots is a new class


class RubricJudge(AttemptJudge):
    """Grades attempts. Equal conversations are asked about once, in flight too; what failed is asked again."""

    def __init__(self, part: RubricPart) -> None:
        self._part = part
        self._calibration = read_calibration(part.calibration, judge=fingerprint(part), model=part.judge.model)
        self._server = ChatServer(part.judge.url, key_variable=part.judge.key_variable)
        self._turns = asyncio.Semaphore(part.together)
        self._lock = Lock()
        self._loop: PrivateLoop | None = None
        self._grades: OrderedDict[str, Future[RubricGrade]] = OrderedDict()

    @property
    @override
    def sha256(self) -> str:
        known = None if self._calibration is None else [list(self._calibration.judge), list(self._calibration.people)]
        return content_hash([fingerprint(self._part), known])

    @override
    def begin_all(self, attempts: Sequence[Trajectory]) -> list[Callable[[], Grade]]:
        return [self.begin(conversation(attempt)).result for attempt in attempts]

    def grade(self, attempt: Trajectory) -> RubricGrade:
        """The judge's opinion, waited for."""
        return self.begin(conversation(attempt)).result()

    def begin(self, messages: Sequence[Message], *, mirrored: bool = False) -> "Future[RubricGrade]":
        """Ask about a conversation, unless that was done. `mirrored`: with every order turned round."""
        said = [[message.role, message.text.encode(errors="replace").decode()] for message in messages]
        key = content_hash([mirrored, said])
        with self._lock:
            known = self._grades.get(key)
            if known is None or (known.done() and known.exception() is not None):
                self._loop = self._loop or PrivateLoop()
                known = self._grades[key] = self._loop.start(self._grade(tuple(messages), mirrored=mirrored))
            self._grades.move_to_end(key)
            if len(self._grades) > REMEMBERED:
                self._grades.popitem(last=False)
            return known

    async def _grade(self, messages: Sequence[Message], *, mirrored: bool) -> RubricGrade:
        async with self._turns:
            votes = [await self._vote(messages, number ^ mirrored) for number in range(self._part.votes)]
        shares = {}
        reasons = {}
        for criterion in self._part.criteria:
            opinions = [vote[criterion.name] for vote in votes]
            middle = median(worth(opinion.choice) for opinion in opinions)
            shares[criterion.name] = middle
            reasons[criterion.name] = next(one.reason for one in opinions if worth(one.choice) == middle)
        weights = {criterion.name: criterion.weight for criterion in self._part.criteria}
        raw = math.fsum(weights[name] * share for name, share in shares.items()) / math.fsum(weights.values())
        raw = min(raw, 1.0)
        score = raw if self._calibration is None else self._calibration.of(raw)
        return RubricGrade(shares=shares, reasons=reasons, raw=raw, score=score, who=self._part.judge.model)

    async def _vote(self, messages: Sequence[Message], number: int) -> dict[str, Opinion]:
        """One answer; one that cannot be read is asked for once more, behind other fences."""
        shown = order(self._part.criteria, number)
        who = self._part.judge.model

        def body() -> dict[str, Any]:
            return {
                "model": who,
                "messages": chat(shown, messages, fence=secrets.token_hex(12)),
                **({"response_format": response_format(shown)} if self._part.structured else {}),
                "temperature": 0,
                "max_tokens": self._part.max_tokens,
            }

        return await self._server.read(
            body,
            lambda reply: read_opinions(reply, self._part.criteria, who=who),
            timeout_s=self._part.timeout_s,
        )


@lru_cache(maxsize=8)
def open_rubric(part: RubricPart) -> RubricJudge:
    """The judge of a part; one per process, so that all share its grades."""
    return RubricJudge(part)
