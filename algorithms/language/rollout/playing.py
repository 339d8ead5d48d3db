"""Plans played on a separate thread, while the caller does something else."""

import asyncio
import shutil
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from loomrl.config import RolloutConfig
from loomrl.gym.episode import LocalHost, Plan
from loomrl.gym.host.watch import Watchdog
from loomrl.gym.synchronous import PrivateLoop
from loomrl.types import Trajectory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a runner, and the location of the files it leaves for an autopsy."""

    id: str
    node: str
    folder: str


class Playing:
    """Keeps at most `rollout.concurrency` episodes open, in order of arrival. All state belongs to the event loop.

    The alarm works on main threads only, so an environment that hangs here ends the process; the running episode is
    then found in `folder` by `examine`.
    """

    def __init__(self, host: LocalHost, rollout: RolloutConfig, *, folder: Path) -> None:
        self._host = host
        self._folder = folder
        self._loop = PrivateLoop()
        self._rooms = asyncio.Semaphore(rollout.concurrency)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._finished: list[Trajectory] = []
        self._error: Exception | None = None
        self._watchdog = self.wait(_watch(folder, rollout.turn_timeout_s))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, run between the steps of the episodes."""
        return self._loop.wait(work)

    def exchange(self, plans: Sequence[Plan]) -> list[Trajectory]:
        """Start these plans; returns the results since the last call."""
        return self.wait(self._exchange(plans))

    def drop(self, ids: Collection[str]) -> None:
        """Cancel these attempts, if they are being played."""
        self.wait(self._drop(ids))

    def forget(self) -> None:
        """Cancel everything, and discard finished results too."""
        self.wait(self._forget())

    def play(self, plans: Sequence[Plan]) -> list[Trajectory]:
        """Every plan's trajectory; other episodes continue meanwhile."""
        return self.wait(self._gathered(plans))

    def close(self) -> None:
        """Cancel everything and release the thread and its files."""
        self.wait(self._stop())
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _exchange(self, plans: Sequence[Plan]) -> list[Trajectory]:
        for plan in plans:
            self._tasks[plan.attempt.id] = asyncio.create_task(self._play(plan))
        if self._error is not None:
            raise self._error
        finished = self._finished
        self._finished = []
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
