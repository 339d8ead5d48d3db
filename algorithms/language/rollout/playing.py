"""Plans that are played on a thread of their own, while whoever started them does something else."""

import asyncio
import shutil
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from loomrl.config import RolloutConfig
from loomrl.gym.host.local import Host, Plan
from loomrl.gym.host.loop import PrivateLoop
from loomrl.gym.host.watch import Watchdog
from loomrl.types import Trajectory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a runner, from its start to its end, and where it leaves what an autopsy needs."""

    id: str
    node: str
    folder: str


class Playing:
    """At most `rollout.concurrency` episodes are open, first come, first served. All state is the loop's.

    The alarm rings on main threads only. So an environment that hangs here ends the process, and what it was doing is
    left in `folder` for `examine`.
    """

    def __init__(self, host: Host, rollout: RolloutConfig, *, folder: Path) -> None:
        self._host, self._folder = host, folder
        self._loop = PrivateLoop()
        self._rooms = asyncio.Semaphore(rollout.concurrency)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._finished: list[Trajectory] = []
        self._error: Exception | None = None
        self._watchdog = self.wait(_watch(folder, rollout.turn_timeout_s))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, done between the steps of the episodes."""
        return self._loop.wait(work)

    def exchange(self, plans: Sequence[Plan]) -> list[Trajectory]:
        """Start these plans; what has finished since the last time."""
        return self.wait(self._exchange(plans))

    def drop(self, ids: Collection[str]) -> None:
        """Give these attempts up, if they are being played."""
        self.wait(self._drop(ids))

    def forget(self) -> None:
        """Give everything up that was started, and what has finished, too."""
        self.wait(self._forget())

    def play(self, plans: Sequence[Plan]) -> list[Trajectory]:
        """Every plan's trajectory, beside what is being played already."""
        return self.wait(self._gathered(plans))

    def close(self) -> None:
        """Give up everything."""
        self.wait(self._stop())
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _exchange(self, plans: Sequence[Plan]) -> list[Trajectory]:
        for plan in plans:
            self._tasks[plan.attempt.id] = asyncio.create_task(self._play(plan))
        if self._error is not None:
            raise self._error
        finished, self._finished = self._finished, []
        return finished

    async def _drop(self, ids: Collection[str]) -> None:
        for id in self._tasks.keys() & set(ids):
            self._tasks.pop(id).cancel()

    async def _forget(self) -> None:
        await self._drop([*self._tasks])
        self._finished.clear()

    async def _gathered(self, plans: Sequence[Plan]) -> list[Trajectory]:
        return await asyncio.gather(*map(self._one, plans))

    async def _play(self, plan: Plan) -> None:
        try:
            trajectory = await self._one(plan)
            self._finished.append(trajectory)
        except Exception as error:  # noqa: BLE001 - a mistake in the configuration: whoever asks next is told
            self._error = error
        self._tasks.pop(plan.attempt.id, None)

    async def _one(self, plan: Plan) -> Trajectory:
        async with self._rooms:
            trajectory: Trajectory = await self._watchdog.run(plan.attempt.id, self._host.play(plan))
        return trajectory

    async def _stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._watchdog.close()


async def _watch(folder: Path, limit_s: float) -> Watchdog:
    return Watchdog(folder, limit_s=limit_s)
