"""The place of an attack: an environment opened with its settings, tasks with their oracles' episodes, and bouts."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from loomrl.gym.base import BaseEnvironment
from loomrl.gym.curriculum import HELD_OUT_SEEDS
from loomrl.gym.guard import GuardedEnvironment
from loomrl.gym.host.alarm import Hang, alarm_ready, interruptible
from loomrl.types import Observation, Task

TURN_S = 10.0
LONGEST = 60
"""Turns of a bout at most."""
SPARE_SEEDS = 1_000_000
"""Fresh tasks of generated families have seeds from here on."""

Actor = Callable[[int, BaseEnvironment], str | None]
"""The action of a turn, or None to stop."""


@dataclass(frozen=True, slots=True)
class Bout:
    """One episode of an attack."""

    success: float = 0.0
    total: float = 0.0
    turns: int = 0
    ended: bool = False
    failure: str = ""
    correct: float | None = None
    """The success that the environment's second check gives, if it has one."""
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """A task, its first observation, and the oracle's episode."""

    task: Task
    prompt: str
    oracle: tuple[str, ...]
    """The oracle's actions; empty without an oracle."""
    success: float
    total: float
    moves: tuple[str, ...] = ()
    """Random actions."""
    hacks: tuple[str, ...] = ()
    """The ways that the author knows to try for reward."""


@dataclass(slots=True)
class Arena:
    """Plays bouts in fresh environments of one kind, and keeps what two graders disagreed about."""

    kind: Callable[[Mapping[str, Any]], BaseEnvironment]
    settings: Mapping[str, Any]
    turn_s: float = TURN_S
    """Time limit of one turn; a bout that takes longer earns nothing."""
    bouts: int = 0
    disagreements: list[tuple[Task, Bout]] = field(default_factory=list)

    def open(self) -> BaseEnvironment:
        """A fresh environment."""
        return self.kind(self.settings)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseEnvironment]:
        """A fresh environment that is closed at the end: a server has few sessions."""
        environment = self.open()
        try:
            yield environment
        finally:
            with suppress(Exception, SystemExit):
                await environment.close()

    async def bout(
        self,
        task: Task,
        actor: Actor,
        environment: BaseEnvironment | None = None,
        replies: list[str] | None = None,
    ) -> Bout:
        """One episode; failures of the environment are in the bout. `replies` receives what the environment says."""
        self.bouts += 1
        ours = environment or self.open()
        try:
            # In this task: a SystemExit in another one would end the event loop.
            async with asyncio.timeout(20 * self.turn_s):
                with alarm_ready():
                    bout = await _play(ours, task, actor, self.turn_s, replies)
        except (Exception, SystemExit, Hang) as error:  # noqa: BLE001 - the author's code
            bout = Bout(failure=f"{type(error).__name__}: {error}"[:200])
        if environment is None:
            with suppress(Exception, SystemExit):
                await ours.close()
        if bout.correct is not None and bout.ended and bout.success > bout.correct + 0.01:
            self.disagreements.append((task, bout))
        return bout

    async def say(
        self, task: Task, actions: Sequence[str], *, again: bool = True, environment: BaseEnvironment | None = None
    ) -> Bout:
        """A bout with these actions; `again` repeats the last one until the episode ends."""

        def act(turn: int, _: BaseEnvironment) -> str | None:
            if turn < len(actions):
                return actions[turn]
            return actions[-1] if again and actions else None

        return await self.bout(task, act, environment)

    async def sample(self, task: Task) -> Sample:
        """The task with its oracle's episode."""
        said: list[Observation] = []
        hacks: tuple[str, ...] = ()
        with suppress(Exception, SystemExit):
            async with self.opened() as environment:
                said.append(await environment.reset(task))
                hacks = tuple(environment.hacks())
        prompt = "\n".join(message.text for message in said[0]) if said else ""
        bout = await self.bout(task, lambda turn, environment: environment.oracle())
        if bout.failure or not bout.ended:
            return Sample(task, prompt, (), 0.0, 0.0, (), hacks)
        return Sample(task, prompt, bout.actions, bout.success, bout.total, (), hacks)


async def _play(
    environment: BaseEnvironment, task: Task, actor: Actor, turn_s: float, replies: list[str] | None
) -> Bout:
    guarded = GuardedEnvironment(environment)
    await interruptible(guarded.reset(task), max(turn_s, TURN_S))
    total = 0.0
    success = 0.0
    actions: list[str] = []
    for turn in range(LONGEST):
        action = actor(turn, environment)
        if action is None:
            break
        actions.append(action)
        step = await interruptible(guarded.step(action), turn_s)
        total += step.reward.total
        success = step.reward.success
        if replies is not None:
            replies.append("\n".join(message.text for message in step.observation))
        if step.terminated or step.truncated:
            return Bout(success, total, turn + 1, True, "", environment.correct(), tuple(actions))
    return Bout(success, total, len(actions), False, "", None, tuple(actions))


def random_actor(rng: random.Random) -> Actor:
    """Acts at random, in the environment's own language."""
    return lambda _, environment: environment.random_action(rng)


def tasks_of(environment: BaseEnvironment, family: str, count: int, *, fresh: bool) -> list[Task]:
    """Tasks of a family over all its levels: those to search on, or `fresh` ones to confirm on.

    Rows of a list are split between the two; of few rows both have all.
    """
    levels = list(environment.levels(family))
    rows: list[Task] = []
    for level in levels:
        for held_out in (False, True):
            known = environment.count(family, level, held_out=held_out)
            first = HELD_OUT_SEEDS.start if held_out else 0
            if known is not None:
                rows += [environment.task(family, level, first + row) for row in range(min(known, 4 * count))]
    if rows:
        random.Random(0).shuffle(rows)
        half = rows[1::2] if fresh else rows[::2]
        return (half if len(rows) >= 16 else rows)[:count]
    first = SPARE_SEEDS if fresh else 1
    return [environment.task(family, levels[index % len(levels)], first + index) for index in range(count)]


class Clock:
    """The seconds that are left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """At least 0."""
        return max(0.0, self._end - time.monotonic())
