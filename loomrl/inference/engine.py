"""The engine interface: token ids in; token ids, their log-probabilities and the policy version of each out.

Axes: T tokens, K likeliest tokens at a position.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loomrl.errors import PolicyError, unknown
from loomrl.inference.weights.hold import Hold
from loomrl.inference.weights.sealed import Sealed
from loomrl.types import SEAT, Form, Odds

if TYPE_CHECKING:
    from loomrl.config import Sampling


class Unsupported(PolicyError):
    """The engine cannot do this at all: asking again, or another replica of it, does not help."""


class FinishReason(StrEnum):
    """The reason why a completion ended."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Sight:
    """A picture in a prompt: the PNG file, and the index of its first token."""

    picture: bytes
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A prompt to continue. Equal requests to equal weights get equal answers, independent of other requests."""

    prompt_T: NDArray[np.int32]
    sampling: "Sampling"
    stop: frozenset[int]
    """Token ids that end the completion; the one sampled becomes its last token."""
    seed: int
    sights: tuple[Sight, ...] = ()
    """The pictures in the prompt, in order."""
    top: int = 0
    """The number of likeliest tokens that `stream` reports beside each sampled one."""
    adapter: str = ""
    """The name under which the engine holds the adapter that answers; empty for the engine's own policy."""
    form: Form | None = None
    odds: Odds | None = None

    @property
    def shifts(self) -> bool:
        """True if the odds of its tokens are shifted, and `Completion.shifts_T` tells how far."""
        return self.form is not None or self.odds is not None


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """The sampled tokens.

    `logprobs_T` are those of the whole distribution at the sampling temperature (at 1 if the temperature is 0), before
    top-p: what a learner recomputes with one log-softmax.
    """

    ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    versions_T: NDArray[np.int32]
    finish: FinishReason
    entropies_T: NDArray[np.float32] | None = None
    """In nats, of the distributions that `logprobs_T` are of; None unless the sampling asks for them."""
    shifts_T: NDArray[np.float32] | None = None
    """How much likelier each token was made, as `loomrl.types.Tokens` has it; None unless the request shifts odds."""


@dataclass(frozen=True, slots=True, eq=False)
class Top:
    """The likeliest tokens at each position, the likeliest first, with log-probabilities as in `Completion`."""

    ids_TK: NDArray[np.int32]
    logprobs_TK: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class CompletionPiece:
    """The tokens of a completion that are new since its last piece; fields as in `Completion`."""

    ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    versions_T: NDArray[np.int32]
    finish: FinishReason | None = None
    """None before the last piece."""
    top: Top | None = None
    """None unless the request asks for it."""
    shifts_T: NDArray[np.float32] | None = None


Pieces = AsyncGenerator[CompletionPiece, None]


@dataclass(frozen=True, slots=True)
class Statistics:
    """An engine's counts since its start."""

    sampled_tokens: int = 0
    prompt_tokens: int = 0
    steps: int = 0
    busy_s: float = 0.0
    """Seconds spent in steps; in an engine whose steps are not reported, seconds with an open request."""


class WorkTally:
    """An engine's counts. `open` is for an engine whose steps are not reported: busy means that a request is open."""

    def __init__(self) -> None:
        self._counted = Statistics()
        self._open = 0
        self._busy_since = 0.0

    @property
    def statistics(self) -> Statistics:
        """The counts so far."""
        now_s = time.perf_counter() - self._busy_since if self._open else 0.0
        return replace(self._counted, busy_s=self._counted.busy_s + now_s)

    @contextmanager
    def open(self, request: Request) -> Iterator[None]:
        """Count an open request until the block ends."""
        # an engine is busy once, however many requests are open
        if not self._open:
            self._busy_since = time.perf_counter()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            now_s = 0.0 if self._open else time.perf_counter() - self._busy_since
            self.add(busy_s=now_s, prompt_tokens=len(request.prompt_T))

    def add(self, *, sampled_tokens: int = 0, prompt_tokens: int = 0, steps: int = 0, busy_s: float = 0.0) -> None:
        """Add to the counts."""
        was = self._counted
        self._counted = Statistics(
            sampled_tokens=was.sampled_tokens + sampled_tokens,
            prompt_tokens=was.prompt_tokens + prompt_tokens,
            steps=was.steps + steps,
            busy_s=was.busy_s + busy_s,
        )


class EngineTurn:
    """A request's share of an engine's time, from the moment at which the engine begins with it."""

    def __init__(self, shares: "EngineShares") -> None:
        self._shares = shares
        self._opened_at = time.monotonic()
        self._begun_s: float | None = None
        self._own_s = 0.0

    def begin(self) -> None:
        """The engine works on it."""
        self._begun_s = self._shares.move(1)

    def end(self) -> None:
        """The engine is done with it, if it has begun."""
        if self._begun_s is not None:
            self._own_s += self._shares.move(-1) - self._begun_s
            self._begun_s = None

    def waited_s(self) -> float:
        """Seconds since it was opened that were not its own."""
        own_s = 0.0 if self._begun_s is None else self._shares.move(0) - self._begun_s
        return time.monotonic() - self._opened_at - self._own_s - own_s


class EngineShares:
    """An engine's time, divided equally among the requests that it works on.

    Deadlines of attempts count their own share: neither the wait for an engine nor its work for others is theirs.
    """

    def __init__(self) -> None:
        self._working = 0
        self._each_s = 0.0
        self._at = time.monotonic()

    @contextmanager
    def open(self) -> Iterator[EngineTurn]:
        """A request of the attempt that is played here, if one is."""
        turn = EngineTurn(self)
        seat = SEAT.get()
        with nullcontext() if seat is None else seat.queued(turn.waited_s):
            try:
                yield turn
            finally:
                turn.end()

    def move(self, count: int) -> float:
        """Seconds up to now of a request that was always worked on; from now on `count` more are."""
        now = time.monotonic()
        self._each_s += (now - self._at) / max(1, self._working)
        self._at = now
        self._working += count
        return self._each_s


def check_prompt(request: Request, *, context: int, vocabulary: int) -> None:
    """A PolicyError for a prompt that leaves no room in the context, or has other ids than the model's."""
    length = len(request.prompt_T)
    if not 0 < length < context:
        raise PolicyError(f"a prompt of {length} tokens in context={context}: 1 to {context - 1} fit.")
    check_ids(request.prompt_T, vocabulary, "prompt ids")
    if request.form is not None and not request.stop:
        raise PolicyError(f"form={request.form.kind}: the request has no token that ends an answer. Give it one.")


def check_ids(ids_T: NDArray[np.int32], vocabulary: int, what: str) -> None:
    """A PolicyError for ids that the model does not have."""
    low, high = int(ids_T.min()), int(ids_T.max())
    if low < 0 or high >= vocabulary:
        raise PolicyError(f"{what} from {low} to {high}: the model's vocabulary has 0 to {vocabulary - 1}.")


def unknown_shifts(ids_T: NDArray[np.int32]) -> NDArray[np.float32]:
    """The shifts of tokens whose engine does not tell them."""
    return np.full(len(ids_T), np.inf, np.float32)


CLOSED = "the engine was closed"


class Engine(ABC):
    """Answers any number of requests concurrently. Cancelling a task cancels its request.

    Here is what all engines promise: completions leave once the weights that drew them are admitted, and rejected
    weights answer nothing. A kind of engine adds how it samples (`_complete`, and `_stream` if it knows tokens before
    the last one), what it refuses (`_check`), how weights reach its memory (`_apply`), and what `close` releases.

    To add one: write that subclass, and its settings in `loomrl/config/engine.py`; open it in
    `loomrl/inference/open.py`, and in `loomrl/serving/deployment/opening.py` if it serves; and give it to
    `tests/inference/test_engine_contract.py`.
    """

    def __init__(self, version: int = 0) -> None:
        self._version = version
        self._hold = Hold()
        self._tally = WorkTally()
        self._shares = EngineShares()
        self._unsound: str | None = None
        """The reason for refusing work until other weights arrive."""
        self._closed = False

    @property
    def version(self) -> int:
        """The policy version that samples now, admitted or not."""
        return self._version

    @property
    def statistics(self) -> Statistics:
        """The counts so far."""
        return self._tally.statistics

    async def generate(self, request: Request) -> Completion:
        """The completion of one request, once its weights are admitted; a PolicyError if they are rejected instead, or
        if the prompt leaves no room in the context.
        """
        self._check(request)
        with self._hold.ticket() as ticket, self._shares.open() as turn:
            completion = await self._complete(request, turn)
            turn.end()
            await self._hold.wait(ticket)
        return completion

    async def stream(self, request: Request) -> Pieces:
        """The same completion as its tokens are sampled; the last piece says why it ended. Closing it ends the request.

        A slow reader gets larger pieces. Unsupported if the engine does not report the likeliest tokens.
        """
        self._check(request)
        with self._hold.ticket() as ticket, self._shares.open() as turn:
            async with aclosing(self._stream(request, turn)) as pieces:
                async for piece in pieces:
                    await self._hold.wait(ticket)
                    yield piece

    async def score(self, request: Request) -> Top:
        """The distributions at a prompt's tokens, the first excepted, which has none: each position's own token, then
        the `top` likeliest. Nothing is sampled. Unsupported if the engine does not report them.
        """
        self._check_open()
        if len(request.prompt_T) == 1:
            return Top(np.zeros((0, 1 + request.top), np.int32), np.zeros((0, 1 + request.top), np.float32))
        self._check(replace(request, prompt_T=request.prompt_T[:-1]))  # its last token leaves no room for another
        with self._hold.ticket() as ticket, self._shares.open() as turn:
            found = await self._score(request, turn)
            turn.end()
            await self._hold.wait(ticket)
        return found

    async def probe(self, requests: Sequence[Request]) -> list[Completion]:
        """The completions of these requests, admitted or not: for deciding about admission."""
        for request in requests:
            self._check(request)
        return list(await asyncio.gather(*map(self._complete_any, requests)))

    async def _complete_any(self, request: Request) -> Completion:
        with self._shares.open() as turn:
            return await self._complete(request, turn)

    async def load(self, sealed: Sealed) -> None:
        """Sample with these weights from the next token on, also in open requests; caches are discarded.

        A PolicyError, without any change, if the weights differ from the sealed ones or do not fit.
        """
        await self.take(sealed)
        await self.admit(sealed.version)

    async def take(self, sealed: Sealed) -> None:
        """`load`, with completions held until the weights are admitted."""
        self._check_open()
        with self._taking(sealed.version):
            await self._apply(sealed)

    async def admit(self, version: int) -> None:
        """Release held completions; a PolicyError if another version samples."""
        rejected = self._hold.refusal is not None
        if rejected or version != self.version:
            raise PolicyError(
                f"version {version} cannot be admitted: the engine has version {self.version}"
                f"{', rejected' if rejected else ''}. Load it first."
            )
        self._hold.release()

    async def reject(self, cause: str) -> None:
        """Fail open requests, which may have tokens of the current weights, and refuse work until others arrive."""
        self._hold.refuse(f"no completion: weights of version {self.version} were rejected: {cause}")

    @property
    def adapters(self) -> Collection[str]:
        """The names that requests can give as their adapter."""
        return ()

    async def add_adapter(self, name: str, sealed: Sealed) -> None:
        """Hold an adapter beside the engine's own policy, for requests that name it.

        A name that is taken gets the new adapter; requests that have begun keep the one they have.
        """
        self._check_open()
        if not name:
            raise PolicyError("adapter '': the name is empty. Give one.")
        sealed.verify()
        await self._add_adapter(name, sealed)

    async def drop_adapter(self, name: str) -> None:
        """Let go of an adapter, once the requests that have begun with it have ended."""
        self._check_adapter(name)
        await self._drop_adapter(name)

    async def close(self) -> None:
        """Release the memory. Open requests fail."""
        self._closed = True
        self._hold.refuse(f"no completion: {CLOSED}.")

    @contextmanager
    def _taking(self, version: int) -> Iterator[None]:
        """Hold completions while weights are applied, and afterwards; not if they were refused without any change."""
        was_closed = self._hold.closed
        self._hold.closed = True
        try:
            yield
        except PolicyError:
            if self._unsound is None and not was_closed:
                self._hold.release()
            raise
        self._version = version
        self._unsound = None
        self._hold.refusal = None

    def _check(self, request: Request) -> None:
        """A PolicyError if this request cannot be answered."""
        self._check_open()
        if self._unsound is not None:
            raise PolicyError(self._unsound)
        if request.adapter:
            self._check_adapter(request.adapter)

    def _check_adapter(self, name: str) -> None:
        if name not in self.adapters:
            raise PolicyError("adapter " + unknown("name", name, sorted(self.adapters)))

    def _check_open(self) -> None:
        if self._closed:
            raise PolicyError("the engine is closed: open another one.")

    @abstractmethod
    async def _complete(self, request: Request, turn: EngineTurn) -> Completion:
        """The completion of a checked request; its turn begins when the engine does."""

    async def _stream(self, request: Request, turn: EngineTurn) -> Pieces:
        """The completion of a checked request in pieces; in one, unless the engine knows the tokens earlier."""
        if request.top:
            raise Unsupported(f"top={request.top}: this engine reports no likeliest tokens. Ask for none.")
        done = await self._complete(request, turn)
        yield CompletionPiece(done.ids_T, done.logprobs_T, done.versions_T, done.finish, shifts_T=done.shifts_T)

    async def _score(self, request: Request, turn: EngineTurn) -> Top:
        """The distributions at a checked prompt's tokens."""
        raise Unsupported(
            "echo with logprobs: this engine reports no log-probabilities of prompts. Leave out one of the two, or "
            "serve the policy by engine.kind=torch."
        )

    async def _add_adapter(self, name: str, sealed: Sealed) -> None:
        """Hold an adapter that is what was sealed; an engine of one policy does not."""
        raise Unsupported(f"adapter {name!r}: this engine holds one policy. Open engine.kind=torch for several.")

    async def _drop_adapter(self, name: str) -> None:
        """Let go of an adapter that is held."""
        raise Unsupported(f"adapter {name!r}: this engine holds one policy.")

    @abstractmethod
    async def _apply(self, sealed: Sealed) -> None:
        """Sample with these weights; sets `_unsound` if it is not certain what they are after a failure."""
