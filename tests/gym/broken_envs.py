"""Environments, each with one deliberate mistake. `BROKEN` names the check that must find it and a word it must say."""

import asyncio
import itertools
import os
import random
import re
import time

from sample_envs import GuessEnvironment

from loomrl.gym.base import Step
from loomrl.types import Message, Reward

USER = (Message("user", "?"),)


class Broken(GuessEnvironment):
    name = ""
    families = ("above",)

    async def step(self, action: str) -> Step:
        return await self.mistake(action, await super().step(action))

    async def mistake(self, action: str, step: Step):
        return step


class ResetReturnsText(Broken):
    async def reset(self, task=None):
        return "guess"


class ResetReturnsInfo(Broken):
    async def reset(self, task=None):
        return await super().reset(task), {}


class ResetIsNotAsync(Broken):
    def reset(self, task=None):
        return USER


class OldGymStep(Broken):
    async def mistake(self, action, step):
        return step.observation, step.reward, step.terminated, step.info


class PlainFiveTuple(Broken):
    async def mistake(self, action, step):
        return tuple(step)


class NumberReward(Broken):
    async def mistake(self, action, step):
        return step._replace(reward=step.reward.total)


class UndeclaredPart(Broken):
    reward_parts = ("correctness",)

    async def mistake(self, action, step):
        parts = {"style": step.reward.total}
        return step._replace(reward=Reward(step.reward.total, parts, step.reward.success))


class NumberForEnd(Broken):
    async def mistake(self, action, step):
        return step._replace(terminated=int(step.terminated))


class EndsBothWays(Broken):
    async def mistake(self, action, step):
        return step._replace(terminated=True, truncated=True)


class RewardOutOfRange(Broken):
    async def mistake(self, action, step):
        return step._replace(reward=Reward(7.0, {"correct": 7.0}, step.reward.success))


class RewardNotANumber(Broken):
    async def mistake(self, action, step):
        return step._replace(reward=Reward(float("nan")))


class SuccessOutOfRange(Broken):
    async def mistake(self, action, step):
        return step._replace(reward=Reward(1.0, {"correct": 1.0}, 2.0))


class PartsDoNotAddUp(Broken):
    async def mistake(self, action, step):
        return step._replace(reward=Reward(step.reward.total, {"correct": 0.5}, step.reward.success))


class Raises(Broken):
    async def mistake(self, action, step):
        raise ZeroDivisionError("the author's bug")


class Exits(Broken):
    async def mistake(self, action, step):
        raise SystemExit(3)


class Awaits(Broken):
    async def mistake(self, action, step):
        await asyncio.sleep(3600)


class AwaitsStubbornly(Broken):
    async def mistake(self, action, step):
        for _ in range(20):
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue


class CancelsItself(Broken):
    async def mistake(self, action, step):
        raise asyncio.CancelledError


class NeverCloses(Broken):
    async def close(self) -> None:
        raise OSError("close failed")


class Endless(Broken):
    guesses = 10**9


class RemembersEpisodes(Broken):
    episodes = 0

    async def reset(self, task=None):
        RemembersEpisodes.episodes += 1
        return (Message("user", f"Game {RemembersEpisodes.episodes}"), *await super().reset(task))


class DrawsGlobalRandomness(Broken):
    async def mistake(self, action, step):
        return step._replace(observation=(Message("user", f"{random.random()}"),))


class ReadsHashOrder(Broken):
    async def reset(self, task=None):
        await super().reset(task)
        return (Message("user", " ".join({"apple", "pear", "plum", "fig", "lime"})),)


class OracleErrs(Broken):
    def oracle(self) -> str:
        return str(self.hidden + (self.hidden % 2))


class HasNoOracle(Broken):
    def oracle(self) -> str:
        raise NotImplementedError


class DiesInTheOracle(Broken):
    def oracle(self) -> str:
        os._exit(9)


class Guessable(Broken):
    def random_action(self, rng: random.Random) -> str:
        return str(self.hidden if rng.random() < 0.3 else 0)


class Hackable(Broken):
    async def mistake(self, action, step):
        solved = step._replace(reward=Reward(1.0, {"correct": 1.0}, 1.0), terminated=True)
        return solved if len(action.split()) > 50 else step


class BacktracksForEver(Broken):
    async def mistake(self, action, step):
        re.match(r"(\(+)+$", action[:60] + "!")
        return step


class SleepsOnHugeText(Broken):
    async def mistake(self, action, step):
        if action.startswith("aaaaa"):
            time.sleep(0.3)  # noqa: ASYNC251 - the mistake
        return step


class ParsesAnyNumber(Broken):
    async def mistake(self, action, step):
        float(action) if action.strip().lower() in ("nan", "inf") else None
        if action.strip().lower() == "nan":
            int(float(action))
        return step


class ReadsUnicodeDigits(Broken):
    async def mistake(self, action, step):
        if action.isdigit():
            [int(character) for character in action]
        return step


class EchoesSurrogates(Broken):
    async def mistake(self, action, step):
        return step._replace(observation=(Message("user", action[:50]),))


class AcceptsAnySetting(Broken):
    def __init__(self, settings=None) -> None:
        super().__init__({key: value for key, value in (settings or {}).items() if key == "max_steps"})


class HacksRaise(Broken):
    def hacks(self):
        raise KeyError("no hacks today")


class CannotBeMadeTwice(Broken):
    made = 0

    def __init__(self, settings=None) -> None:
        super().__init__(settings)
        CannotBeMadeTwice.made += 1
        if CannotBeMadeTwice.made > 1:
            raise OSError("port in use")


class UnstableTask(Broken):
    counter = itertools.count()

    def task(self, family: str, level: int, seed: int):
        made = super().task(family, level, seed)
        return type(made)(made.environment, made.version, family, level, seed, {"n": next(self.counter)})


class UnpicklableTask(Broken):
    def task(self, family: str, level: int, seed: int):
        made = super().task(family, level, seed)
        return type(made)(made.environment, made.version, family, level, seed, {"solve": lambda: seed})


BROKEN = {
    ResetReturnsText: ("contract", "tuple of messages"),
    ResetReturnsInfo: ("contract", "Gymnasium"),
    ResetIsNotAsync: ("contract", "async def"),
    OldGymStep: ("contract", "old Gym API"),
    PlainFiveTuple: ("contract", "Return Step("),
    NumberReward: ("contract", "Return Reward("),
    NumberForEnd: ("contract", "terminated=int 0"),
    EndsBothWays: ("contract", "both"),
    RewardNotANumber: ("contract", "finite"),
    SuccessOutOfRange: ("contract", "0..1"),
    Raises: ("contract", "ZeroDivisionError"),
    Exits: ("contract", "SystemExit"),
    HacksRaise: ("contract", "KeyError: 'no hacks today' (broken_envs.py"),
    CannotBeMadeTwice: ("contract", "OSError: port in use"),
    AcceptsAnySetting: ("settings", "accepted"),
    UnstableTask: ("tasks", "equal arguments"),
    UnpicklableTask: ("tasks", "pickle"),
    RemembersEpisodes: ("determinism", "left over"),
    DrawsGlobalRandomness: ("determinism", "seed"),
    ReadsHashOrder: ("determinism", "PYTHONHASHSEED"),
    OracleErrs: ("oracle", "success"),
    HasNoOracle: ("oracle", "NotImplementedError"),
    Guessable: ("random", "ceiling"),
    Hackable: ("hacking", "hack 1: above: mean success 1.00"),
    RewardOutOfRange: ("contract", "reward_range"),
    PartsDoNotAddUp: ("rewards", "add up"),
    UndeclaredPart: ("rewards", "does not name style"),
    SleepsOnHugeText: ("hostile", "200 kB"),
    ParsesAnyNumber: ("hostile", "ValueError"),
    ReadsUnicodeDigits: ("hostile", "ValueError"),
    EchoesSurrogates: ("hostile", "surrogate"),
}
"""Mistake → (the check that must fail, what its message must contain)."""
