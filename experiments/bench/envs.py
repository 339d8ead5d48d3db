"""Speed of environments, each by itself, and episodes of all of them that two actors hold and play at once."""

import asyncio
import gc
import itertools
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loomrl.config import PolicyChoice, RolloutConfig
from loomrl.errors import ConfigError, RegistryError, unknown
from loomrl.experiments.algorithms import ray_running
from loomrl.gym.base import LEVELS, BaseEnvironment
from loomrl.gym.catalogue import EnvironmentType, make, names
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.policy import Action, PolicyFactory
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.sandbox.process import facts
from loomrl.types import End, Message, Task

PROCESSES = {"Code": "code runs in a sandbox", "Game/chess": "Stockfish is a process"}
"""Environments and families left out of the mixed pool, because other processes compute for them."""


@dataclass(frozen=True, slots=True)
class EnvsSize:
    """The amount of work."""

    tasks: int = 100
    rounds: int = 3
    actors: int = 2
    episodes: int = 10_000


FULL = EnvsSize()
QUICK = EnvsSize(tasks=20, rounds=1, actors=1, episodes=300)


def measure(size: EnvsSize = FULL, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every figure of `loomrl bench envs`; `only` names the environments, by default all that are installed."""
    for name in only:
        if name not in names():
            raise ConfigError("--only " + unknown("environment", name, names()))
    alone = {name: _alone(name, size) for name in only or names()}
    pool = [str(name) for name in EnvironmentType if name not in PROCESSES and (not only or name in only)]
    return {"environments": alone, "pool": pool, **(_crowd(pool, size) if pool else {})}


def _alone(name: str, size: EnvsSize) -> dict[str, Any]:
    """One environment in this thread: CPU seconds for making tasks, and for answering random actions."""
    try:
        environment = make(name)
        asyncio.run(environment.reset(environment.task(environment.families[0], 1, 0)))
    except (ConfigError, RegistryError) as error:
        return {"left_out": str(error)}
    rounds = [asyncio.run(_round(environment, list(_tasks(name, size.tasks, each)))) for each in range(size.rounds)]
    reset_s, step_s, turns = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {
        "families": len(environment.families),
        "tasks_per_s": round(size.tasks / reset_s),
        "turns_per_s": round(turns / step_s),
        "turns_per_task": round(turns / size.tasks, 1),
    }


async def _round(environment: BaseEnvironment, tasks: list[Task]) -> tuple[float, float, int]:
    """CPU seconds of `reset` and of `step`, and the number of turns, playing at random."""
    reset_s = step_s = 0.0
    turns = 0
    for task in tasks:
        rng = random.Random(task.seed)
        began = time.process_time()
        await environment.reset(task)
        reset_s += time.process_time() - began
        for _ in range(environment.settings.max_steps):
            action = environment.random_action(rng)
            began = time.process_time()
            step = await environment.step(action)
            step_s += time.process_time() - began
            turns += 1
            if step.terminated or step.truncated:
                break
    await environment.close()
    return reset_s, step_s, turns


def _tasks(name: str, count: int, round: int = 0) -> Iterator[Task]:
    """Tasks of an environment, over its families and levels in turn."""
    environment = make(name)
    families = [family for family in environment.families if f"{name}/{family}" not in PROCESSES]
    for index in range(count):
        family = families[index % len(families)]
        level = (index + index // len(families)) % LEVELS + 1
        yield environment.task(family, level, round * count + index)


def _crowd(pool: Sequence[str], size: EnvsSize) -> dict[str, Any]:
    """All episodes begin, wait for the last one, and are then played without any policy delay."""
    each = -(-size.episodes // len(pool))
    tasks = itertools.chain.from_iterable(zip(*(_tasks(name, each) for name in pool), strict=True))
    plans = [
        Plan(attempt=Attempt(id=str(index), task=task, group=str(index)))
        for index, task in enumerate(itertools.islice(tasks, size.episodes))
    ]
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder, ray_running(size.actors):
        return asyncio.run(_play(plans, size, Path(folder)))


async def _play(plans: list[Plan], size: EnvsSize, folder: Path) -> dict[str, Any]:
    per_actor = size.episodes // size.actors
    rollout = RolloutConfig(
        runners=size.actors, concurrency=per_actor, turn_timeout_s=600, episode_timeout_s=900
    )  # waiting for the last one to begin takes long
    turns = 0
    failed = []
    began = time.monotonic()
    async with LoomRLGym(rollout, open_policy=partial(at_once, crowd=per_actor, folder=folder)) as gym:
        async for trajectory in gym.run(plans):
            turns += len(trajectory.turns)
            if trajectory.end is End.FAILED:
                failed.append(str(trajectory.failure))
        ended = time.monotonic()
        houses = _reports(folder)
        rss = sum(_peak_rss(house["pid"]) for house in houses)
    opened = max(house["at"] for house in houses)
    return {
        "concurrent_episodes": sum(house["open"] for house in houses),
        "actors": len(houses),
        "turns": turns,
        "turns_per_s": round(turns / (ended - opened)),
        "episodes_per_s_with_reset": round(len(plans) / (ended - began)),
        "rss_bytes": rss,
        "failed": len(failed),
        "failures": sorted(set(failed))[:5],
    }


def _reports(folder: Path) -> list[dict[str, Any]]:
    """The reports left by the processes that hosted episodes."""
    return [json.loads(file.read_text()) for file in folder.glob("*.json")]


@dataclass(slots=True)
class _House:
    """The episodes of one process: how many have begun, and the event that starts them all."""

    begun: int
    full: asyncio.Event


_houses: dict[Path, _House] = {}
"""By the folder of the measurement, one in every process that hosts episodes."""


def at_once(choice: PolicyChoice, *, crowd: int, folder: Path) -> PolicyFactory:
    """Opens policies that wait until `crowd` episodes are open in their process, and then act at random."""
    house = _houses.setdefault(folder, _House(0, asyncio.Event()))
    return lambda environment, rng: _AtOnce(environment, rng, partial(_begin, house, crowd, folder))


async def _begin(house: _House, crowd: int, folder: Path) -> None:
    house.begun += 1
    if house.begun == crowd:
        gc.collect()
        report = {"pid": os.getpid(), "open": house.begun, "at": time.monotonic()}
        (folder / f"{os.getpid()}.json").write_text(json.dumps(report))
        house.full.set()
    await house.full.wait()


class _AtOnce:
    """Acts at random, and lets every other episode act before it does so again."""

    def __init__(self, environment: BaseEnvironment, rng: random.Random, begin: Any) -> None:
        self._environment = environment
        self._rng = rng
        self._begin = begin

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """A random action."""
        if self._begin is not None:
            begin = self._begin
            self._begin = None
            await begin()
        await asyncio.sleep(0)
        return Action(self._environment.random_action(self._rng))


def _peak_rss(pid: int) -> int:
    """The peak memory of a process of this machine, in bytes."""
    return int(facts(pid)["VmHWM"].split()[0]) * 1024
