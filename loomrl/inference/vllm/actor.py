"""A vLLM engine in a Ray actor of its own, which takes its weights from a shelf."""

import asyncio
import os
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import ray

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import LoomError, PolicyError
from loomrl.inference.engine import Completion, Request
from loomrl.inference.open import Opening
from loomrl.inference.torch.engine import Statistics
from loomrl.inference.vllm.engine import EngineLost, Staged, VllmEngine
from loomrl.inference.vllm.latest import Given, shelf_name
from loomrl.inference.weights.group import Meeting

T = TypeVar("T")
LAST_WORDS_S = 0.5
"""From the answer that says why until the process ends."""


class VllmActor:
    """One engine. Ray restarts it when it dies, and it ends itself when vLLM's processes have died.

    Errors of ours are answers, not exceptions, which Ray would wrap; an EngineLost says: ask another one, or later.
    """

    def __init__(self, fleet: str, choice: VllmEngineConfig, opening: Opening, model: Callable[[], Path]) -> None:
        self._fleet = fleet
        self._choice = choice
        self._opening = opening
        self._model = model
        self._life = uuid.uuid4().hex
        self._log = Path(tempfile.mkdtemp(prefix="loomrl-vllm-")) / "log"
        self._engine: VllmEngine | None = None
        self._starting: asyncio.Task[None] | None = None
        self._since = time.monotonic()

    async def ready(self) -> str | LoomError:
        """The node it is on, once it can answer; or why it cannot."""
        return await self._answered(self._node)

    async def generate(self, request: Request) -> Completion | LoomError:
        """One completion. An engine that is still starting sends its callers away."""
        if self._engine is None:
            self._start()
            return EngineLost("it is starting")
        return await self._answered(lambda engine: engine.generate(request))

    async def probe(self, requests: Sequence[Request]) -> list[Completion] | LoomError:
        """What the weights say, whether or not they are admitted."""

        async def ask(engine: VllmEngine) -> list[Completion]:
            return list(await asyncio.gather(*map(engine.probe, requests)))

        return await self._answered(ask)

    async def take(self) -> LoomError | None:
        """Sample with the weights on the shelf, held until they are admitted."""

        async def take(engine: VllmEngine) -> None:
            await self._take(engine)

        return await self._answered(take)

    async def member(self) -> tuple[str, int] | LoomError:
        """This life's name, and how many workers it has."""

        async def member(engine: VllmEngine) -> tuple[str, int]:
            return self._life, engine.workers

        return await self._answered(member)

    async def receive(self, staged: Staged, meeting: Meeting, first: int) -> LoomError | None:
        """Sample with what comes through a group, held until it is admitted."""
        return await self._answered(lambda engine: engine.receive(staged, meeting, first))

    async def admit(self, version: int) -> LoomError | None:
        """Let go of what was held."""

        async def admit(engine: VllmEngine) -> None:
            engine.admit(version)

        return await self._answered(admit)

    async def reject(self, cause: str) -> LoomError | None:
        """Fail what is open and refuse work until there are other weights."""
        return await self._answered(lambda engine: engine.reject(cause))

    async def statistics(self) -> tuple[str, Statistics]:
        """What was done in this life, and its name: the next one counts from zero."""
        return self._life, self._engine.statistics if self._engine else Statistics()

    async def ping(self) -> LoomError | None:
        """Whether it is any use to wait."""
        if self._engine is not None:
            return await self._answered(lambda engine: engine.ping())
        if time.monotonic() - self._since > self._choice.start_timeout_s:
            return self._dying(EngineLost(f"it did not start within {self._choice.start_timeout_s:g} s"))
        return None

    async def _node(self, engine: VllmEngine) -> str:
        return str(ray.get_runtime_context().get_node_id())

    async def _answered(self, call: Callable[[VllmEngine], Awaitable[T]]) -> T | LoomError:
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
        """The one attempt of this process to open an engine; a failed one is made again when it is next asked for."""
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
                engine.admit(given.staged.version)
        except BaseException:
            await engine.close()
            raise
        self._engine = engine

    async def _take(self, engine: VllmEngine) -> Given | None:
        """What is on the shelf; the engine has it, unless it was rejected."""
        shelf = ray.get_actor(shelf_name(self._fleet))  # not given by handle, which a restart might not find
        given: Given | None = await shelf.given.remote()
        if given is not None and given.rejected is None and given.staged != engine.applied:
            file = await shelf.file.remote(given.staged, await self._node(engine))
            if isinstance(file, PolicyError):
                raise file
            await engine.take(given.staged, file)
        return given

    def _dying(self, error: EngineLost) -> EngineLost:
        """Say why, then end: Ray starts another process in this one's place."""
        asyncio.get_running_loop().call_later(LAST_WORDS_S, os._exit, 1)
        return error
