"""Simulated people who talk to an endpoint through its gateway, as programs of others do, and judge the answers.

They judge by the environments' own checkers, and are wrong now and then. Most say nothing, some opted out, some paste a
secret. What they say arrives late.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import httpx
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, NotFoundError

from loomrl.feedback.client import FeedbackClient, FeedbackError
from loomrl.gym.curriculum import HELD_OUT_SEEDS, TaskDraw
from loomrl.gym.task_mixture import TaskMixture
from loomrl.serving.request import SESSION_HEADER

Honesty = Literal["honest", "shuffled", "flipped"]
"""Honesty of feedback: the judgement, another answer's judgement, or the opposite."""
MOST_PRESENT = 48
"""People who are served at once. Others turn away: on a slow machine a queue without a limit has no answer in time."""
RECENT = 200
"""Judgements among which shuffled ones are dealt out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The behaviour of simulated people."""

    honesty: Honesty = "honest"
    speak: float = 0.4
    """Share of answers that get feedback."""
    wrong: float = 0.1
    """Share of judgements that are the opposite of the checker's."""
    opted_out: float = 0.05
    secret: float = 0.05
    """Share of people who paste a secret after their answer."""
    late_s: float = 4.0
    """Mean delay of feedback."""
    pace: float = 15.0
    """Conversations per second."""
    calm_pace: float = 5.0
    """The same while a version is trained or judged, which need the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer to a simulated person."""

    at: float
    person: int
    call: str
    family: str
    version: str
    arm: str
    is_right: bool
    """By the checker."""
    said: str
    """`up`, `down`, or nothing."""


class Crowd:
    """People who come one after the other until they are told to stop."""

    def __init__(self, url: str, endpoint: str, mixture: TaskMixture, *, level: int, seed: int) -> None:
        self.answered: list[Answered] = []
        self.failed: list[str] = []
        """Calls and judgements that were refused though they should not have been."""
        self.secrets: list[str] = []
        """Secrets that people pasted and that must not be found again."""
        self.told = 0
        self._url = url
        self._endpoint = endpoint
        self._mixture = mixture
        self._level = level
        self._rng = random.Random(seed)
        self._number = 0
        self._present = 0
        self._recent: list[bool] = []
        self._turn = asyncio.Lock()

    def is_opted_out(self, person: int, manner: Manner) -> bool:
        """True if this person has opted out of recording."""
        return person % 100 < 100 * manner.opted_out

    async def talk_until(
        self, is_over: Callable[[], bool], manner: Manner, is_calm: Callable[[], bool] = lambda: False
    ) -> None:
        """Come at the pace of this manner until it is over; the rest is said then."""
        async with AsyncOpenAI(base_url=f"{self._url}/v1", api_key="none", max_retries=3, timeout=60) as client:
            with FeedbackClient(self._url) as feedback, _tasks() as under_way:
                due = time.monotonic()
                while not is_over():
                    if self._present < MOST_PRESENT:
                        self._present += 1
                        under_way.append(asyncio.create_task(self._talk(client, feedback, manner)))
                    pace = manner.calm_pace if is_calm() else manner.pace
                    due = max(due + 1 / pace, time.monotonic() - 1.0)
                    await asyncio.sleep(max(due - time.monotonic(), 0))
                    _raise_failed(under_way)
                await asyncio.gather(*under_way)

    async def _talk(self, client: AsyncOpenAI, feedback: FeedbackClient, manner: Manner) -> None:
        try:
            answered = await self._converse(client, manner)
        finally:
            self._present -= 1
        if answered is not None and answered.said:
            await asyncio.sleep(self._rng.expovariate(1 / manner.late_s))
            is_outsider = self.is_opted_out(answered.person, manner)
            await self._say(feedback, answered.call, answered.said, is_outsider=is_outsider)

    async def _converse(self, client: AsyncOpenAI, manner: Manner) -> Answered | None:
        """A conversation from its first question to the leave; None if it got no answer."""
        number = self._number
        self._number = self._number + 1
        family = self._rng.choice(self._mixture.families)
        draw = TaskDraw(family, self._level, self._rng.randrange(HELD_OUT_SEEDS.start))
        person = number % 1000
        session = f"talk-{id(self)}-{number}"
        member = self._mixture.member(draw)
        async with self._turn:
            asked = (await member.environment.reset(member.task(draw)))[-1].content
        said = [{"role": "user", "content": asked}]
        answer = await self._ask(client, session, f"person-{person}", said)
        if answer is None:
            return None
        text, call, version, arm = answer
        async with self._turn:
            await member.environment.reset(member.task(draw))
            is_right = (await member.environment.step(text)).reward.success > 0.5
        answered = Answered(
            at=time.time(),
            person=person,
            call=call,
            family=f"{family.environment}/{family.name}",
            version=version,
            arm=arm,
            is_right=is_right,
            said=self._word(is_right, manner),
        )
        self.answered.append(answered)
        if self._rng.random() < manner.secret:
            about, secret = _secret(self._rng)
            self.secrets.append(secret)
            said += [{"role": "assistant", "content": text}, {"role": "user", "content": about + secret}]
            await self._ask(client, session, f"person-{person}", said)
        await self._leave(client, session)
        return answered

    async def _ask(
        self, client: AsyncOpenAI, session: str, person: str, said: list[dict[str, str]]
    ) -> tuple[str, str, str, str] | None:
        """The answer, its id, and the version and arm that gave it; None if there was none."""
        try:
            raw = await client.chat.completions.with_raw_response.create(
                model=self._endpoint,
                messages=said,  # type: ignore[arg-type]
                user=person,
                extra_headers={SESSION_HEADER: session},
            )
        except (APIStatusError, APIConnectionError) as error:
            self.failed.append(_failure_text(error))
            return None
        answer = raw.parse()
        text = answer.choices[0].message.content or ""
        return text, answer.id, raw.headers["x-loomrl-version"], raw.headers["x-loomrl-arm"]

    async def _leave(self, client: AsyncOpenAI, session: str) -> None:
        try:
            await client.post(f"{self._url}/sessions/{session}/complete", body={}, cast_to=httpx.Response)
        except (APIStatusError, APIConnectionError) as error:
            if not isinstance(error, NotFoundError):  # a person who is not recorded
                self.failed.append(_failure_text(error))

    def _word(self, is_right: bool, manner: Manner) -> str:
        """The thumb that a person gives an answer, if any."""
        judged = is_right != (self._rng.random() < manner.wrong)
        self._recent = [*self._recent[1 - RECENT :], judged]
        if self._rng.random() >= manner.speak:
            return ""
        if manner.honesty == "shuffled":
            judged = self._rng.choice(self._recent)
        return "up" if judged != (manner.honesty == "flipped") else "down"

    async def _say(self, feedback: FeedbackClient, call: str, word: str, *, is_outsider: bool) -> None:
        try:
            await asyncio.to_thread(feedback.give, call=call, thumb=word)
            self.told += 1
        except FeedbackError as error:
            if not is_outsider:
                self.failed.append(f"{error.status}: {error}")


def _failure_text(error: APIStatusError | APIConnectionError) -> str:
    return f"{getattr(error, 'status_code', 0)}: {error.message:.200}"


def _secret(rng: random.Random) -> tuple[str, str]:
    """An introduction, and the secret."""
    letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz23456789"
    drawn = "".join(rng.choice(letters) for _ in range(16))
    kinds = (("password=", drawn), ("My key: ", f"AKIA{drawn.upper()}"), ("Write to ", f"{drawn.lower()}@example.org"))
    return rng.choice(kinds)


@contextmanager
def _tasks() -> Iterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


def _raise_failed(tasks: list[asyncio.Task[None]]) -> None:
    """Forget the tasks that are done; the exception of one that broke."""
    for task in [task for task in tasks if task.done()]:
        tasks.remove(task)
        task.result()
