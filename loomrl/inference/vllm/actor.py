"""A vLLM engine in a Ray actor of its own, which takes its weights from the fleet's `LatestWeights`."""

import asyncio
import os
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import ray

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import LoomError, PolicyError
from loomrl.files import scratch
from loomrl.inference.engine import Completion, CompletionPiece, Request, Statistics
from loomrl.inference.open import Opening
from loomrl.inference.vllm.engine import STARTING, EngineLost, StagedWeights, VllmEngine
from loomrl.inference.vllm.latest import GivenWeights, latest_weights_name
from loomrl.inference.weights.group import Meeting
from loomrl.process import stacks_on_signal

T = TypeVar("T")
LAST_WORDS_S = 0.5
"""Delay between the answer with the cause and the end of the process."""


class VllmActor:
    """One engine. Ray restarts it when it dies, and it ends itself when vLLM's processes have died.

    LoomRL's errors are returned, not raised, because Ray would wrap them; an EngineLost means: try another engine, or
    later.
    """

    def __init__(self, fleet: str, choice: VllmEngineConfig, opening: Opening, model: Callable[[], Path]) -> None:
        stacks_on_signal()
        self._fleet = fleet
        self._choice = choice
        self._opening = opening
        self._model = model
        self._life = uuid.uuid4().hex
        self._log = scratch("vllm") / "log"
        self._engine: VllmEngine | None = None
        self._starting: asyncio.Task[None] | None = None
        self._since = time.monotonic()

    async def ready(self) -> str | LoomError:
        """Its node, once it can answer; or the error that prevents it."""
        return await self._call_engine(self._node)

    async def generate(self, request: Request) -> Completion | LoomError:
        """One completion. An engine that is still starting answers EngineLost."""
        if self._engine is None:
            self._start()
            return EngineLost(STARTING)
        return await self._call_engine(lambda engine: engine.generate(request))

    async def stream(self, request: Request) -> AsyncGenerator[CompletionPiece | LoomError, None]:
        """One completion in pieces, or an error at the end of them."""
        if self._engine is None:
            self._start()
            yield EngineLost(STARTING)
            return
        try:
            async with aclosing(self._engine.stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
        except EngineLost as error:
            yield self._dying(error)
        except LoomError as error:
            yield error

    async def probe(self, requests: Sequence[Request]) -> list[Completion] | LoomError:
        """The completions with the current weights, admitted or not."""
        return await self._call_engine(lambda engine: engine.probe(requests))

    async def take(self) -> LoomError | None:
        """Sample with the latest weights; completions are held until the weights are admitted."""

        async def take(engine: VllmEngine) -> None:
            await self._take(engine)

        return await self._call_engine(take)

    async def member(self) -> tuple[str, int] | LoomError:
        """The name of this process's life, and its number of workers."""

        async def member(engine: VllmEngine) -> tuple[str, int]:
            return self._life, engine.workers

        return await self._call_engine(member)

    async def receive(self, staged: StagedWeights, meeting: Meeting, first: int) -> LoomError | None:
        """Sample with weights received through a group; completions are held until they are admitted."""
        return await self._call_engine(lambda engine: engine.receive(staged, meeting, first))

    async def admit(self, version: int) -> LoomError | None:
        """Release the held completions."""
        return await self._call_engine(lambda engine: engine.admit(version))

    async def reject(self, cause: str) -> LoomError | None:
        """Fail open requests and refuse work until other weights arrive."""
        return await self._call_engine(lambda engine: engine.reject(cause))

    async def release(self) -> LoomError | None:
        """Give the cache's memory back until something is asked."""
        return await self._call_engine(lambda engine: engine.release())

    async def statistics(self) -> tuple[str, Statistics]:
        """The counts of this life, with its name: the next life counts from zero."""
        return self._life, self._engine.statistics if self._engine else Statistics()

    async def ping(self) -> LoomError | None:
        """An error if waiting for this engine is useless."""
        if self._engine is not None:
            return await self._call_engine(lambda engine: engine.ping())
        if time.monotonic() - self._since > self._choice.start_timeout_s:
            return self._dying(EngineLost(f"it did not start within {self._choice.start_timeout_s:g} s"))
        return None

    async def _node(self, engine: VllmEngine) -> str:
        return str(ray.get_runtime_context().get_node_id())

    async def _call_engine(self, call: Callable[[VllmEngine], Awaitable[T]]) -> T | LoomError:
        try:
            if self._engine is None:
                await asyncio.shield(self._start())
            assert self._engine is not None
            return await call(self._engine)
        except EngineLost as error:
            return self._dying(error)
        except LoomError as error:
            return error

    def _start(self) -> asyncio.Task[None]:
        """The current attempt to open an engine; a failed one is repeated on the next call."""
        if self._starting is None or (self._starting.done() and self._engine is None):
            self._since = time.monotonic()
            self._starting = asyncio.create_task(self._open())
            self._starting.add_done_callback(lambda task: task.exception())
        return self._starting

    async def _open(self) -> None:
        opening = replace(self._opening, origin=await asyncio.to_thread(self._model))
        engine = await VllmEngine.open(self._choice, opening, log=self._log)
        try:
            given = await self._take(engine)
            if given is not None and given.rejected is not None:
                await engine.reject(given.rejected)
            elif given is not None and given.admitted:
                await engine.admit(given.staged.version)
        except BaseException:
            await engine.close()
            raise
        self._engine = engine

    async def _take(self, engine: VllmEngine) -> GivenWeights | None:
        """The latest weights, loaded into the engine unless they were rejected."""
        latest = ray.get_actor(latest_weights_name(self._fleet))  # not given by handle, which a restart might not find
        given: GivenWeights | None = await latest.newest.remote()
        if given is not None and given.rejected is None and given.staged != engine.staged:
            file = await latest.file.remote(given.staged, await self._node(engine))
            if isinstance(file, PolicyError):
                raise file
            await engine.take_staged(given.staged, file)
        return given

    def _dying(self, error: EngineLost) -> EngineLost:
        """Return the error, then end: Ray starts a new process in its place."""
        asyncio.get_running_loop().call_later(LAST_WORDS_S, os._exit, 1)
        return error
