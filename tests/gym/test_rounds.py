"""Episodes that go on together: who is asked in one batch does not depend on how long environments take."""

import asyncio
import random

import pytest
from sample_envs import GuessEnvironment

from loomrl.config import CustomPolicy, RolloutConfig
from loomrl.gym.base import Step
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.host.alarm import Deadline
from loomrl.gym.policy import Action
from loomrl.gym.pool import LoomRLGym
from loomrl.types import Message, Reward, Task

clock = random.SystemRandom()


class Engine:
    """A policy that answers what was asked since its last step, one step after the other, as engines do."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self._asked: list[tuple[str, asyncio.Future[Action]]] = []
        self._stepping: asyncio.Task[None] | None = None

    async def act(self, conversation):
        answer: asyncio.Future[Action] = asyncio.get_running_loop().create_future()
        self._asked.append((conversation[0].content + f" {len(conversation)}", answer))
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.create_task(self._step())
        return await answer

    async def _step(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            self.batches.append([what for what, _ in asked])
            for _, answer in asked:
                answer.set_result(Action("x"))
            for _ in range(8):
                await asyncio.sleep(0)


class Pausing(GuessEnvironment):
    """Three turns; those of odd tasks wait, each for another time, and one in five cannot begin."""

    pause_s = 0.01

    async def reset(self, task=None):
        self.seed, self.turns = task.seed, 0
        await self.pause()
        if self.seed % 5 == 4:
            raise RuntimeError("no mood for this")
        return (Message("user", f"{self.seed:02}"),)

    async def step(self, action):
        self.turns += 1
        await self.pause()
        return Step((Message("user", "?"),), Reward(), self.turns == 3, False, {})

    async def close(self):
        await self.pause()

    async def pause(self):
        if self.seed % 2:
            await asyncio.sleep(clock.random() * self.pause_s)


class OneAtATime(Pausing):
    """Only two attempts are open at once: others wait before they begin."""

    places = asyncio.Semaphore(2)

    async def enter(self, task):
        await self.places.acquire()

    async def close(self):
        await super().close()
        self.places.release()


def plans(count):
    for seed in range(count):
        task = Task("Guess", "1.2.0", "above", 1, seed)
        policy = CustomPolicy(entry_point="nowhere:Engine")
        yield Plan(attempt=Attempt(id=f"{seed:02}", task=task, group=f"{seed}"), policy=policy)


async def played(environment, *, concurrency, count=20, in_rounds=True):
    engine = Engine()
    gym = LoomRLGym(
        RolloutConfig(concurrency=concurrency),
        make=lambda id, settings: environment(),
        open_policy=lambda choice: lambda environment, rng: engine,
        in_rounds=in_rounds,
    )
    groups = await gym.collect(plans(count))
    return engine.batches, [group.trajectories[0].end for group in groups]


@pytest.mark.parametrize("concurrency", [3, 7, 64])
async def test_batches_are_the_same_however_long_each_call_takes(concurrency):
    first, *others = [await played(Pausing, concurrency=concurrency) for _ in range(4)]
    assert all(other == first for other in others)
    assert sum(map(len, first[0])) == 3 * 16
    apart = [await played(Pausing, concurrency=concurrency, in_rounds=False) for _ in range(4)]
    assert any(batches != apart[0][0] for batches, _ in apart), "they would be the same anyway"


async def test_nobody_waits_for_an_attempt_that_waits_for_the_others_to_end():
    OneAtATime.places = asyncio.Semaphore(2)
    batches, ends = await asyncio.wait_for(played(OneAtATime, concurrency=8), 60)
    assert len(ends) == 20
    assert sum(map(len, batches)) == 3 * 16


async def test_environments_that_wait_for_nothing_go_on_alone():
    class Even(Pausing):
        pause_s = 0.0

        async def pause(self):
            return

    together, apart = [await played(Even, concurrency=7, in_rounds=in_rounds) for in_rounds in (True, False)]
    assert together == apart


async def test_time_that_an_attempt_is_held_does_not_count():
    held = iter(range(1, 10**9))
    async with Deadline(0.001, lambda: float(next(held)) / 1000):
        await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError):
        async with Deadline(0.001, lambda: 5.0):
            await asyncio.sleep(60)
