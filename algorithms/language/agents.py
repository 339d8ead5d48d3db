"""Demonstrations for agents: an agent plays its tasks, and their oracle answers in the place of the model.

All that both say is written down as a policy will see it.
"""

import asyncio
import random
from collections.abc import Sequence
from functools import lru_cache

from loomrl.canonical import content_hash
from loomrl.errors import EpisodeError
from loomrl.gym.adapters.harness.environment import Harness
from loomrl.gym.episode import Attempt
from loomrl.serving.agents import AgentGateway, AgentSessions, Scripted, Speak
from loomrl.types import End, Message, Source, Task

AT_ONCE = 8
"""Agents that play at the same time."""
Conversation = tuple[Message, ...]


async def recorded(draws: Sequence[tuple[Harness, Task]], *, wrong: float, seed: int) -> list[tuple[Conversation, ...]]:
    """The conversations of each draw's agent, one for each of its threads.

    Before every text of the oracle, a guess takes its place with probability `wrong`. An agent plays only once for
    equal tasks and seeds, also in later calls.
    """
    gateway = AgentGateway()
    rooms = asyncio.Semaphore(AT_ONCE)
    keys = [content_hash((harness.settings.model_dump(mode="json"), task.key, wrong, seed)) for harness, task in draws]

    async def play(key: str, harness: Harness, task: Task) -> None:
        async with rooms:
            played = _played(key)
            if not played:
                played.append(await _play(gateway, harness, task, _Oracle(harness, task, wrong, random.Random(key))))

    unlike = dict(zip(keys, draws, strict=True))
    async with asyncio.TaskGroup() as group:
        for key, (harness, task) in unlike.items():
            group.create_task(play(key, harness, task))
    return [_played(key)[0] for key in keys]


@lru_cache(20_000)
def _played(key: str) -> list[tuple[Conversation, ...]]:
    """The place of what an agent played; empty before that."""
    return []


class _Oracle:
    """The oracle of a task, with slips."""

    def __init__(self, harness: Harness, task: Task, wrong: float, rng: random.Random) -> None:
        self._harness = harness
        self._task = task
        self._wrong = wrong
        self._rng = rng

    async def __call__(self, conversation: Conversation) -> str:
        """The next text."""
        slips = self._rng.random() < self._wrong
        guess = self._harness.guess(self._task, self._rng) if slips else None
        return self._harness.reply(self._task, conversation) if guess is None else guess


async def _play(gateway: AgentGateway, harness: Harness, task: Task, says: Speak) -> tuple[Conversation, ...]:
    scripted = Scripted(says)
    sessions = AgentSessions(gateway, lambda attempt: scripted)
    attempt = Attempt(id="demonstration", task=task, group="demonstration", source=Source.DEMONSTRATION)
    played = await harness.player(sessions, attempt)
    if played.end is End.FAILED:
        raise EpisodeError(
            f"no demonstration of {task.family}: the agent failed on its oracle's answers: {played.failure}"
        )
    return whole(scripted.conversations)


def whole(conversations: Sequence[Conversation]) -> tuple[Conversation, ...]:
    """The conversations that none of the others continues."""
    continued = {other[: len(one)] for other in conversations for one in conversations if len(one) < len(other)}
    return tuple(dict.fromkeys(one for one in conversations if one not in continued))
