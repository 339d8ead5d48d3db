"""Calls to act that come in the same turn of the event loop share a batch: one frame of a channel, one forward pass."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from loomrl.serving.policy import ActRequest, ActResult
from loomrl.serving.refusal import Refusal

Waiting = list[tuple[ActRequest, asyncio.Future[ActResult]]]


class Together:
    """Joins greedy calls whose observations are arrays of one shape; all others run alone."""

    def __init__(self, run: Callable[[ActRequest], Awaitable[ActResult]]) -> None:
        self._run = run
        self._waiting: Waiting = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def act(self, act: ActRequest) -> ActResult:
        """The actions for these observations."""
        if act.explore or act.preferences is not None or not isinstance(act.observations, np.ndarray):
            return await self._run(act)
        if act.states is not None and len(act.states) != len(act.observations):
            return await self._run(act)  # which refuses it
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ActResult] = loop.create_future()
        self._waiting.append((act, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._begin)
        return await future

    def _begin(self) -> None:
        waiting = self._waiting
        self._waiting = []
        groups: dict[tuple[object, ...], Waiting] = {}
        for act, future in waiting:
            size = None if act.states is None else act.states.shape[1]
            groups.setdefault((act.observations.shape[1:], act.observations.dtype, size), []).append((act, future))
        for group in groups.values():
            task = asyncio.create_task(self._join(group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _join(self, group: Waiting) -> None:
        if len(group) > 1 and all(act.observations.ndim for act, _ in group):
            try:
                states = [act.states for act, _ in group if act.states is not None]
                joined = await self._run(
                    ActRequest(
                        observations=np.concatenate([act.observations for act, _ in group]),
                        states=np.concatenate(states) if states else None,
                    )
                )
            except Refusal:
                pass  # one of them may be wrong: each by itself tells which
            else:
                _share(joined, group)
                return
        await asyncio.gather(*(self._alone(act, future) for act, future in group))

    async def _alone(self, act: ActRequest, future: asyncio.Future[ActResult]) -> None:
        try:
            acted = await self._run(act)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            if not future.done():
                future.set_exception(error)
            return
        if not future.done():
            future.set_result(acted)


def _share(joined: ActResult, group: Waiting) -> None:
    start = 0
    for act, future in group:
        end = start + len(act.observations)
        if not future.done():
            states = None if joined.states is None else joined.states[start:end]
            future.set_result(ActResult(actions=joined.actions[start:end], version=joined.version, states=states))
        start = end
