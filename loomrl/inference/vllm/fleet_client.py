"""The runners' engine if engines are shared: a request goes to one of the fleet, and to another if that dies."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayTaskError
from typing_extensions import override
from xxhash import xxh3_64_intdigest

from loomrl.errors import PolicyError
from loomrl.inference.engine import Completion, CompletionPiece, Engine, EngineTurn, Pieces, Request
from loomrl.inference.vllm.engine import STARTING, EngineLost
from loomrl.inference.vllm.latest import latest_weights_name
from loomrl.inference.weights.sealed import Sealed

BLOCK = 16
"""Tokens per block of vLLM's prefix cache."""
REMEMBERED = 1 << 16
SLACK = 8
"""Extra open requests that an engine with a cached prefix may have over the idlest one."""
AVOID_S = 1.0
"""Time for which a lost engine is avoided if there are others."""
PING_S = 10.0
"""Silence after which an engine is asked whether it is alive."""
SILENT_S = 60.0
"""Time limit for that answer, including a long prompt before it."""


class FleetClient(Engine):
    """All engines of a fleet as one. It is identified by the fleet's name, so it can be sent anywhere.

    Requests are checked and held where they are answered, and the fleet loads the weights.
    """

    def __init__(self, fleet: str, count: int, timeout_s: float) -> None:
        super().__init__()
        self._fleet = fleet
        self._count = count
        self._timeout_s = timeout_s
        self._actors: dict[int, Any] = {}
        self._open = [0] * count
        self._lost_at = [float("-inf")] * count
        self._known: OrderedDict[int, int] = OrderedDict()
        self._causes: deque[str] = deque(maxlen=count)

    def __reduce__(self) -> tuple[Any, ...]:
        return FleetClient, (self._fleet, self._count, self._timeout_s)

    @property
    @override
    def version(self) -> int:
        """The last admitted version; 0 before the first."""
        return int(ray.get(ray.get_actor(latest_weights_name(self._fleet)).version.remote()))

    @override
    async def _complete(self, request: Request, turn: EngineTurn) -> Completion:
        """From any living engine.

        A PolicyError if none answers within an engine's start time, with their last errors.
        """
        turn.begin()
        keys = _prefixes(request)
        search = _Search(self._timeout_s)
        while True:
            index = self._route(keys)
            actor = self._actor(index)
            self._open[index] += 1
            try:
                answer: Completion | PolicyError = await alive_or_killed(actor, actor.generate.remote(request))
            finally:
                self._open[index] -= 1
            if isinstance(answer, Completion):
                return answer
            if not isinstance(answer, EngineLost):
                raise answer
            await self._lost(index, answer, search)

    @override
    async def _stream(self, request: Request, turn: EngineTurn) -> Pieces:
        """If the engine dies, another goes on after the tokens so far."""
        turn.begin()
        keys = _prefixes(request)
        search = _Search(self._timeout_s)
        while True:
            index = self._route(keys)
            actor = self._actor(index)
            lost = None
            told = actor.stream.remote(request)
            self._open[index] += 1
            try:
                while lost is None:
                    piece = await alive(actor, _next(told))
                    if isinstance(piece, EngineLost):
                        lost = piece
                    elif isinstance(piece, PolicyError):
                        raise piece
                    else:
                        yield piece
                        if piece.finish is not None:
                            return
                        request = _after(request, piece)
                        search = _Search(self._timeout_s)
            finally:
                self._open[index] -= 1
                ray.cancel(told)
            await self._lost(index, lost, search)

    async def _lost(self, index: int, error: EngineLost, search: "_Search") -> None:
        """Avoid this engine for a while; a PolicyError once the search has taken too long."""
        now = time.monotonic()
        search.deadline = search.deadline or now + search.timeout_s
        self._lost_at[index] = now
        if str(error) != STARTING:
            self._causes.append(f"engine {index}: {error}")
        if now > search.deadline:
            raise PolicyError(f"no engine answered for {self._timeout_s:g} s. {' '.join(self._causes)}")
        if self._count == 1 or min(now - at for at in self._lost_at) < AVOID_S:
            await asyncio.sleep(AVOID_S / 4)

    @override
    async def _apply(self, sealed: Sealed) -> None:
        raise PolicyError("a client of a fleet cannot load weights: Fleet.load gives them to all engines.")

    def _actor(self, index: int) -> Any:
        if index not in self._actors:
            self._actors[index] = ray.get_actor(engine_name(self._fleet, index))
        return self._actors[index]

    def _route(self, keys: list[int]) -> int:
        """An engine that has at least half of the prompt cached, unless it is too busy; else the idlest."""
        now = time.monotonic()
        able = [i for i in range(self._count) if now - self._lost_at[i] > AVOID_S] or list(range(self._count))
        idlest = min(able, key=lambda i: (self._open[i], -i if keys[-1] % 2 else i))
        knows = next((self._known[key] for key in reversed(keys[len(keys) // 2 :]) if key in self._known), idlest)
        chosen = knows if knows in able and self._open[knows] <= self._open[idlest] + SLACK else idlest
        for key in keys:
            self._known[key] = chosen
            self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return chosen


@dataclass(slots=True)
class _Search:
    """A search for an engine that answers; its time begins with the first that does not."""

    timeout_s: float
    deadline: float | None = None


def engine_name(fleet: str, index: int) -> str:
    """The engine's name in Ray."""
    return f"{fleet}-engine-{index}"


async def alive_or_killed(actor: Any, reference: Any) -> Any:
    """An actor's answer to one call, which is cancelled with the task that waits; otherwise as `alive`."""
    try:
        return await alive(actor, _resolve(reference))
    except asyncio.CancelledError:
        ray.cancel(reference)
        raise


async def alive(actor: Any, awaited: Awaitable[Any]) -> Any:
    """An actor's answer; an EngineLost if it died or hangs, in which case it is killed and Ray restarts it."""
    answer = asyncio.ensure_future(awaited)
    try:
        while True:
            done, _ = await asyncio.wait({answer}, timeout=PING_S)
            if done:
                return answer.result()
            try:
                ping = await asyncio.wait_for(_resolve(actor.ping.remote()), SILENT_S)
            except TimeoutError:
                ray.kill(actor, no_restart=False)
                return EngineLost(f"it said nothing for {SILENT_S:g} s, and was ended")
            if isinstance(ping, EngineLost):
                return ping
    except RayActorError as error:
        return EngineLost(" ".join(str(error).split())[:500])
    except RayTaskError as error:
        raise error.cause from None
    finally:
        answer.cancel()


async def _next(told: Any) -> CompletionPiece | PolicyError:
    """The next piece of an actor's stream."""
    piece: CompletionPiece | PolicyError = await (await anext(told))
    return piece


def _after(request: Request, piece: CompletionPiece) -> Request:
    """The request for the rest of a completion; with the same seed, the same numbers would be drawn again."""
    given = len(piece.ids_T)
    return replace(
        request,
        prompt_T=np.concatenate([request.prompt_T, piece.ids_T]),
        sampling=request.sampling.model_copy(update={"max_tokens": request.sampling.max_tokens - given}),
        seed=(request.seed + given) % 2**63,
    )


async def _resolve(reference: Any) -> Any:
    return await reference


def _prefixes(request: Request) -> list[int]:
    """A key for every whole block at the prompt's start, and for all of it; the shortest first."""
    prompt = request.prompt_T
    ends = [*range(BLOCK, len(prompt), BLOCK), len(prompt)]
    return [xxh3_64_intdigest(prompt[:end].tobytes()) for end in ends]
