"""Environments whose calls take time, each another time: what is learnt from them must not depend on it."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loomrl.gym.base import BaseEnvironment, Step
from loomrl.types import Message, Observation, Reward, Task
from tests.algorithms.language_envs import AsciiEnvironment

LONGEST_S = 0.02
"""The pause of a call, unless `no_pauses`."""
_clock = random.SystemRandom()
"""Not seeded, unlike everything else in a run."""


_longest_s = [LONGEST_S]


@contextmanager
def no_pauses() -> Iterator[None]:
    """Calls take no time: thousands are made for a tokenizer, one after the other."""
    _longest_s.append(0.0)
    try:
        yield
    finally:
        _longest_s.pop()


def _pause_s() -> float:
    return _clock.random() * _longest_s[-1]


class LateEnvironment(BaseEnvironment):
    """Plain functions, as in the SDK's documents; pays a share of ASCII in each of two turns."""

    name = "Late"
    reward_range = (0.0, 1.0)
    turns = 2

    def reset(self, task: Task | None = None) -> str:
        assert task is not None
        time.sleep(_pause_s())
        self._turn = 0
        return f"Say something about {task.seed % 7}."

    def step(self, action: str) -> tuple[Any, ...]:
        time.sleep(_pause_s())
        self._turn += 1
        share = sum(c < "\x80" for c in action) / len(action) if action else 0.0
        return "And?", share / self.turns, self._turn == self.turns, {"success": share}

    def oracle(self) -> str:
        return "<answer>ok</answer>"


class LateAwaitingEnvironment(AsciiEnvironment):
    """Coroutines that wait, as those that ask a server do."""

    name = "LateAwaiting"

    async def reset(self, task: Task | None = None) -> Observation:
        self._turn = 0
        return await super().reset(task)

    async def step(self, action: str) -> Step:
        self._turn += 1
        await asyncio.sleep(_pause_s())
        share = (await super().step(action)).reward.total / 2
        reward = Reward(share, {"ascii": share}, share)
        over = self._turn == 2
        return Step(() if over else (Message("user", "And?"),), reward, over, False, {})
