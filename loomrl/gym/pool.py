"""The front door of the SDK: environments to play by hand, and a pool that plays thousands of episodes at a time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import cached_property
from typing import Any, Self

from loomrl.config import RolloutConfig
from loomrl.gym.catalogue import EnvironmentType, make
from loomrl.gym.episode import LocalHost, Make, Plan
from loomrl.gym.host.actor import ActorHost, refuse_crowd
from loomrl.gym.host.rounds import Rounds, Seat
from loomrl.gym.manual import ManualEnvironment
from loomrl.gym.policy import OpenPolicy, open_policy
from loomrl.types import Group, Trajectory

Play = Callable[[Plan, Seat], Awaitable[Trajectory]]


class LoomRLGym:
    """Environments by name, and episodes by the thousand: in this process, or in `rollout.runners` Ray actors.

    At most `rollout.concurrency` episodes are open per actor. An environment that never returns from a call costs
    everybody in its process `rollout.turn_timeout_s`, and only the episode at fault fails: on the main thread of this
    process an alarm interrupts it, actors are watched and replaced. On other threads of this process it hangs the pool.

    With `in_rounds`, episodes whose environments take time ask for their next answers together: what an engine in this
    process answers then does not depend on how long they take. Episodes wait for slower ones in every turn.
    """

    def __init__(
        self,
        rollout: RolloutConfig | None = None,
        *,
        make: Make = make,
        open_policy: OpenPolicy = open_policy,
        in_rounds: bool = False,
    ) -> None:
        self._rollout = rollout or RolloutConfig()
        self._in_rounds = in_rounds
        self._make = make
        self._open_policy = open_policy
        self._local = LocalHost(make, self._rollout, open_policy=open_policy)
        self.environments: list[ManualEnvironment] = []
        """Those that were created to be played by hand."""

    async def create_environment(
        self, kind: EnvironmentType | str, settings: Mapping[str, Any] | None = None
    ) -> ManualEnvironment:
        """An environment to play by hand: `reset`, then `step` until done. It keeps its memories."""
        environment = ManualEnvironment(self._make(str(kind), settings or {}))
        self.environments.append(environment)
        return environment

    async def run(self, plans: Iterable[Plan]) -> AsyncGenerator[Trajectory, None]:
        """Every plan's trajectory, once, as it finishes. Plans are drawn only when there is room to play them."""
        if self._rollout.runners:
            refuse_crowd(self._rollout.runners)
        rounds = Rounds()
        players: list[Play] = [actor.play for actor in self._actors] or [self._local.play]
        rooms = [
            (play, (rounds if self._in_rounds else Rounds()).seat())
            for play in players
            for _ in range(self._rollout.concurrency)
        ]
        finished: asyncio.Queue[Trajectory | None] = asyncio.Queue(maxsize=len(rooms))
        playing = asyncio.create_task(_play_all(rooms, iter(plans), finished))
        try:
            while (trajectory := await finished.get()) is not None:
                yield trajectory
            await playing
        finally:
            playing.cancel()
            await asyncio.wait({playing})

    async def collect(self, plans: Iterable[Plan]) -> list[Group]:
        """All trajectories in their groups, in the order in which the groups were planned."""
        members: dict[str, dict[str, Trajectory | None]] = {}
        planned = list(plans)
        for plan in planned:
            members.setdefault(plan.attempt.group, {})[plan.attempt.id] = None
        async with aclosing(self.run(planned)) as trajectories:
            async for trajectory in trajectories:
                members[trajectory.group][trajectory.id] = trajectory
        return [Group(name, tuple(filter(None, attempts.values()))) for name, attempts in members.items()]

    async def close(self) -> None:
        """Let go of the actors."""
        await asyncio.gather(*(actor.close() for actor in self._actors))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @cached_property
    def _actors(self) -> list[ActorHost]:
        runners = range(self._rollout.runners)
        return [ActorHost(self._make, self._rollout, open_policy=self._open_policy) for _ in runners]


async def _play_all(
    rooms: list[tuple[Play, Seat]], plans: Iterator[Plan], finished: asyncio.Queue[Trajectory | None]
) -> None:
    """Play in all rooms until the plans run out, then put None. The first error ends them all and is raised."""

    async def occupy(play: Play, seat: Seat) -> None:
        with seat:
            for plan in plans:
                await finished.put(await play(plan, seat))

    failure: Exception | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            for play, seat in rooms:
                tasks.create_task(occupy(play, seat))
    except ExceptionGroup as failures:
        failure = failures.exceptions[0]
    await finished.put(None)
    if failure is not None:
        raise failure
