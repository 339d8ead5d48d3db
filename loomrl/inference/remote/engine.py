"""An engine on a server that takes token ids and returns token ids with log-probabilities."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from loomrl.config import Sampling
from loomrl.config.engine import OpenAIEngineConfig
from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.engine import (
    CLOSED,
    Completion,
    CompletionPiece,
    Engine,
    EngineTurn,
    FinishReason,
    Pieces,
    Request,
    check_ids,
    check_prompt,
    unknown_shifts,
)
from loomrl.inference.model import config_of, skeleton_of
from loomrl.inference.remote.dialect import (
    CompletionsApi,
    ServerDialect,
    ServerPiece,
    SglangTokens,
    VllmTokens,
    translate_faults,
)
from loomrl.inference.remote.server import ServerClient, run_apart
from loomrl.inference.remote.weights import Routes, ServerWeights, SglangRoutes, VllmRoutes, nearby, version_of
from loomrl.inference.vision import check_sights
from loomrl.inference.weights.sealed import Sealed, check_weights

T = TypeVar("T")
LOCAL = ("127.0.0.1", "localhost", "::1")
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
PIECES = 64
"""Maximum number of interruptions of one request by new weights."""
PROBES = ((1,), (2, 3), (5, 7, 11), (13, 17, 19, 23))
"""Candidate prompts for probes; one is chosen after which the next token is uncertain."""
APART = 1e-3
OPEN = -0.05
"""Log-probabilities further apart than `APART` are different; above `OPEN`, the token is too certain to tell."""


@dataclass(frozen=True, slots=True)
class Reported:
    """The distribution that a server's log-probabilities refer to, found by probing."""

    tempered: bool = False
    """True: at the sampling temperature; False: at temperature 1."""
    cut: bool = True
    """True: after top-p."""
    greedy: bool = True
    """True: at temperature 0, those at temperature 1."""

    def check(self, sampling: Sampling) -> None:
        """A ConfigError if a learner would recompute other numbers than this server reports."""
        temperature = sampling.temperature
        if temperature == 0 and not self.greedy:
            raise _differs("temperature=0: this server's log-probabilities are not those at temperature 1")
        if temperature not in (0, 1) and not self.tempered:
            raise _differs(
                f"temperature={temperature:g}: this server's log-probabilities are those before temperature. Sample at "
                "1, or start it so that they are those after it (vLLM: --logprobs-mode processed_logprobs)"
            )
        if sampling.top_p < 1 and temperature and self.cut:
            raise _differs(f"top_p={sampling.top_p:g}: this server's log-probabilities are of what top-p leaves")


class OpenAIEngine(Engine):
    """Answers requests by asking a server. Its versions count from the first weights that it was given."""

    def __init__(
        self, choice: OpenAIEngineConfig, *, origin: Path, context: int, trust_remote_code: bool = False
    ) -> None:
        super().__init__()
        self._choice = choice
        self._context = context
        self._config = origin / "config.json"
        self._shape = config_of(origin, trust_remote_code=trust_remote_code)
        self._trusts = trust_remote_code
        self._server = ServerClient(choice.url, key_variable=choice.key_variable, timeout_s=choice.timeout_s)
        self._dialect, routes = _choose_dialect(choice, self._server)
        self._weights = None if routes is None else self._weights_by(routes)
        self._vocabulary = int(self._shape.get_text_config().vocab_size)
        self._open: set[asyncio.Task[Any]] = set()
        self._reported = run_apart(self._meet())

    @override
    async def _complete(self, request: Request, turn: EngineTurn) -> Completion:
        turn.begin()
        with self._tally.open(request):
            return await self._until_closed(self._ask(request))

    @override
    async def _stream(self, request: Request, turn: EngineTurn) -> Pieces:
        """In pieces as the server sends them; in one from servers that say which weights drew a token, which they do
        at the end.
        """
        dialect = self._dialect
        if request.top or not isinstance(dialect, CompletionsApi):
            async for whole in super()._stream(request, turn):
                yield whole
            return
        turn.begin()
        room = self._room(request)
        body = dialect.body(self._choice.model, request, max_tokens=room) | STREAM
        finish: FinishReason | None = None
        with self._tally.open(request):
            async with aclosing(self._server.stream(dialect.path, body)) as events:
                while (event := await self._until_closed(anext(events, None))) is not None:
                    with translate_faults(self._choice.url, event):
                        piece = dialect.read_event(event, request)
                    if finish is not None and len(piece.ids_T):
                        raise PolicyError(f"{self._choice.url} went on after the end of its answer.")
                    room -= len(piece.ids_T)
                    finish = finish or _finish(piece, request, room)
                    if len(piece.ids_T):
                        done = self._join([piece], FinishReason.LENGTH, shifts=request.shifts)
                        yield CompletionPiece(done.ids_T, done.logprobs_T, done.versions_T, shifts_T=done.shifts_T)
        if finish is None:
            raise PolicyError(f"{self._choice.url} broke its answer off {room} tokens early.")
        ids_T = np.zeros(0, np.int32)
        shifts_T = unknown_shifts(ids_T) if request.shifts else None
        yield CompletionPiece(ids_T, ids_T.astype(np.float32), ids_T, finish, shifts_T=shifts_T)

    async def _until_closed(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that `close` ends; a PolicyError then."""
        task = asyncio.ensure_future(work)
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        try:
            return await task
        except asyncio.CancelledError:
            mine = asyncio.current_task()
            if self._closed and mine is not None and not mine.cancelling():
                raise PolicyError(f"no completion: {CLOSED}.") from None
            raise

    @override
    async def _apply(self, sealed: Sealed) -> None:
        """If the server fails to load them it stays stopped, and requests are refused, until it has loaded others."""
        require_updates(self._choice)
        assert self._weights is not None
        sealed.verify()
        check_weights(self._skeleton(), sealed.weights, sealed.version)
        try:
            await self._weights.give(sealed)
        except PolicyError as error:
            self._unsound = f"weights of version {sealed.version} did not arrive: {error}"
            raise PolicyError(self._unsound) from error

    @override
    async def close(self) -> None:
        await super().close()
        for task in tuple(self._open):
            task.cancel()
        if self._weights is not None:
            self._weights.forget()

    def _weights_by(self, routes: Routes) -> ServerWeights:
        choice = self._choice
        if choice.staging is None and urlsplit(choice.url).hostname not in LOCAL:
            raise ConfigError(
                f"engine.url={choice.url!r} is another machine: engine.staging must name a folder that it sees too, "
                "in which new weights are put."
            )
        staging = nearby() if choice.staging is None else Path(choice.staging).absolute()
        return ServerWeights(self._server, routes, config=self._config, staging=staging)

    async def _meet(self) -> Reported:
        """Check that the server answers, has the model and reports the needed data; find the meaning of its
        log-probabilities.
        """
        known = await self._server.check(self._choice.model)
        room = known.get("max_model_len")
        if isinstance(room, int) and room < self._context:
            raise ConfigError(f"context={self._context}: the server's model has max_model_len={room}.")
        if self._weights is not None:
            await self._weights.meet()
        for prompt in PROBES:
            plain = await self._probe(prompt, temperature=1.0)
            if plain < OPEN:
                break
        else:
            return Reported()
        return Reported(
            tempered=abs(await self._probe(prompt, temperature=2.0) - plain) > APART,
            cut=abs(await self._probe(prompt, temperature=1.0, top_p=1e-4) - plain) > APART,
            greedy=abs(await self._probe(prompt, temperature=0.0) - plain) <= APART,
        )

    async def _probe(self, prompt: Sequence[int], **sampling: float) -> float:
        """The likeliest token's log-probability, as this server reports it with this sampling."""
        drawn = Sampling.model_validate({**sampling, "max_tokens": 1})
        asked = Request(np.array(prompt, np.int32), drawn, frozenset(), 0)
        body = self._dialect.body(self._choice.model, asked, max_tokens=1, top=True)
        piece = self._read(await self._server.post(self._dialect.path, body), asked)
        return float(piece.logprobs_T[0]) if drawn.top_p < 1 else piece.best

    def _read(self, answer: dict[str, Any], asked: Request) -> ServerPiece:
        with translate_faults(self._choice.url, answer):
            return self._dialect.read(answer, asked)

    @override
    def _check(self, request: Request) -> None:
        super()._check(request)
        self._reported.check(request.sampling)
        check_sights(request, None)
        check_prompt(request, context=self._context, vocabulary=self._vocabulary)

    async def _ask(self, request: Request) -> Completion:
        """Send requests until the completion is whole; new weights may interrupt it."""
        room = self._room(request)
        pieces: list[ServerPiece] = []
        asked = request
        for _ in range(PIECES):
            body = self._dialect.body(self._choice.model, asked, max_tokens=room)
            piece = self._read(await self._server.post(self._dialect.path, body), asked)
            pieces.append(piece)
            room -= len(piece.ids_T)
            finish = _finish(piece, request, room)
            if finish is not None:
                return self._join(pieces, finish, shifts=request.shifts)
            if request.form is not None:
                raise PolicyError(
                    f"{self._choice.url} broke an answer off that has a form, which another request cannot go on with."
                )
            asked = replace(asked, prompt_T=np.concatenate([asked.prompt_T, piece.ids_T]))
        raise PolicyError(f"{self._choice.url} broke the request off {PIECES} times.")

    def _room(self, request: Request) -> int:
        return min(request.sampling.max_tokens, self._context - len(request.prompt_T))

    def _join(self, pieces: Sequence[ServerPiece], finish: FinishReason, *, shifts: bool) -> Completion:
        ids_T = np.concatenate([piece.ids_T for piece in pieces])
        check_ids(ids_T, self._vocabulary, "sampled ids")
        self._tally.add(sampled_tokens=len(ids_T))
        return Completion(
            ids_T,
            np.concatenate([piece.logprobs_T for piece in pieces]),
            np.concatenate([self._versions(piece) for piece in pieces]),
            finish,
            shifts_T=unknown_shifts(ids_T) if shifts else None,
        )

    def _versions(self, piece: ServerPiece) -> NDArray[np.int32]:
        """The version of each token as the server reports it; 0 for a server that is never updated."""
        if self._weights is None:
            return np.zeros(len(piece.ids_T), np.int32)
        versions_T = np.full(len(piece.ids_T), -1, np.int32)
        for span in piece.spans:
            versions_T[span.start : span.end] = version_of(span.label)
        if (versions_T < 0).any():
            raise PolicyError(
                f"{self._choice.url} does not report which weights sampled each token: update the server."
            )
        return versions_T

    def _skeleton(self) -> nn.Module:
        """The model without weights."""
        model: nn.Module = skeleton_of(self._shape, trust_remote_code=self._trusts)
        return model


def require_updates(choice: OpenAIEngineConfig) -> None:
    """A ConfigError if the server takes no new weights."""
    if choice.updates == "none":
        raise ConfigError(
            f"engine.updates='none': the server at {choice.url} can be judged (loomrl evaluate --policy URL#MODEL), "
            "not trained with, as it takes no new weights. Known: vllm, sglang."
        )


def _choose_dialect(choice: OpenAIEngineConfig, server: ServerClient) -> tuple[ServerDialect, Routes | None]:
    match choice.updates:
        case "vllm":
            return VllmTokens(), VllmRoutes(server)
        case "sglang":
            return SglangTokens(), SglangRoutes(server)
        case "none":
            return CompletionsApi(), None


def _finish(piece: ServerPiece, request: Request, room: int) -> FinishReason | None:
    """The reason why the completion ended, if it did; a PolicyError if the server ended it without one."""
    stopped = bool(len(piece.ids_T)) and int(piece.ids_T[-1]) in request.stop
    if room < 0:
        raise PolicyError(f"the server sampled {-room} tokens more than it was asked for.")
    if piece.finish is None:
        return FinishReason.STOP if stopped else FinishReason.LENGTH if room == 0 else None
    if piece.finish is FinishReason.STOP and not stopped:
        raise PolicyError("the server ended a completion before any of the stop tokens that it was given.")
    if piece.finish is FinishReason.LENGTH and room > 0:
        raise PolicyError(f"the server ended a completion {room} tokens early: has it room for the whole context?")
    return FinishReason.STOP if stopped else FinishReason.LENGTH


def _differs(cause: str) -> ConfigError:
    return ConfigError(f"sampling.{cause}, and not what a learner recomputes.")
