"""vLLM on the event loop that opened it: one engine core, in processes of its own.

New weights are checked while the old ones serve, applied while requests are kept, and held: completions with tokens of
new weights are returned once those are admitted.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loomrl.config import Sampling
from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import PolicyError
from loomrl.inference.engine import (
    Completion,
    CompletionPiece,
    FinishReason,
    Pieces,
    Request,
    RequestTally,
    Statistics,
    check_prompt,
)
from loomrl.inference.open import Opening
from loomrl.inference.vision import Vision, check_sights, open_vision
from loomrl.inference.vllm.output import Labels, is_finite, prompt_of, sampling_params, top_of
from loomrl.inference.vllm.start import cause as said_cause
from loomrl.inference.vllm.start import start, start_error, tail
from loomrl.inference.weights.group import Meeting
from loomrl.inference.weights.sealed import Sealed, stage, staging_folder

FIRST = Request(np.zeros(1, np.int32), Sampling(max_tokens=1), frozenset(), 0)
ARRIVED_S = 0.02
"""Interval between polls whether all weights have arrived."""
STARTING = "it is starting"
"""The message of an EngineLost that is no sign of trouble."""
CLOSE_S = 1.0
"""Time for vLLM's processes to end by themselves before they are killed."""


class EngineLost(PolicyError):
    """The engine's processes have died. Another engine can answer the same request."""


@dataclass(frozen=True, slots=True)
class StagedWeights:
    """The staged file of a version; the file's name is its identity."""

    version: int
    file: Path


class VllmEngine:
    """Answers requests with vLLM's `AsyncLLM`, on one event loop."""

    def __init__(self, llm: Any, *, context: int, log: Path, version: int = 0, vision: Vision | None = None) -> None:
        self._llm = llm
        self._vision = vision
        self._context = context
        self._log = log
        self._vocabulary = int(llm.model_config.get_vocab_size())
        self._tally = RequestTally()
        self._open: set[str] = set()
        self._applied = StagedWeights(version, Path())
        self._admitted = version
        self._decided: asyncio.Future[None] | None = None
        self._refused: str | None = None
        self._updating = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, choice: VllmEngineConfig, opening: Opening, *, log: Path) -> "VllmEngine":
        """An engine with the folder's weights as this version; a ConfigError states why it cannot start."""
        vision = open_vision(opening.origin, trust_remote_code=opening.trust_remote_code)
        llm = await asyncio.to_thread(start, choice, opening, log)
        await llm.collective_rpc("loomrl_prepare")
        await llm.update_weight_version(str(opening.version))
        try:  # some of what vLLM cannot do shows with the first token only
            await cls(llm, context=opening.context, log=log).probe(FIRST)
        except EngineLost as error:
            llm.shutdown(timeout=CLOSE_S)
            raise start_error(opening, said_cause(log) or str(error), log) from None
        await llm.collective_rpc("loomrl_remember")
        return cls(llm, context=opening.context, log=log, version=opening.version, vision=vision)

    @property
    def version(self) -> int:
        """The policy version that samples now, admitted or not."""
        return self._applied.version

    @property
    def statistics(self) -> Statistics:
        """The counts so far."""
        return self._tally.statistics

    async def generate(self, request: Request) -> Completion:
        """The completion of one request, once all versions that sampled its tokens are admitted."""
        if self._refused is not None:
            raise PolicyError(self._refused)
        completion = await self.probe(request)
        await self._hold(int(completion.versions_T[-1]))
        return completion

    async def stream(self, request: Request) -> Pieces:
        """The same completion in pieces, each once the versions that sampled it are admitted."""
        if self._refused is not None:
            raise PolicyError(self._refused)
        self._check(request)
        with self._count_open(request) as name:
            async with aclosing(self._pieces(name, request)) as pieces:
                async for piece in pieces:
                    self._tally.add(sampled_tokens=len(piece.ids_T))
                    if len(piece.versions_T):
                        await self._hold(int(piece.versions_T[-1]))
                    yield piece

    async def probe(self, request: Request) -> Completion:
        """The completion, admitted or not: for deciding about admission."""
        self._check(request)
        with self._count_open(request) as name:
            async with aclosing(self._pieces(name, request, whole=True)) as pieces:
                piece = [piece async for piece in pieces][-1]
        self._tally.add(sampled_tokens=len(piece.ids_T))
        assert piece.finish is not None
        return Completion(piece.ids_T, piece.logprobs_T, piece.versions_T, piece.finish)

    @contextmanager
    def _count_open(self, request: Request) -> Iterator[str]:
        """Count an open request, under a name of its own."""
        name = uuid.uuid4().hex
        self._open.add(name)
        try:
            with self._tally.open(request):
                yield name
        finally:
            self._open.discard(name)

    async def _hold(self, version: int) -> None:
        """Return once this version is admitted; a PolicyError if it is rejected instead."""
        while self._decided is not None and version > self._admitted:
            await asyncio.shield(self._decided)
        if self._refused is not None and version > self._admitted:
            raise PolicyError(self._refused)

    async def load(self, sealed: Sealed) -> None:
        """Sample with these weights from the next token on, also in open requests; caches are discarded."""
        file = stage(sealed, staging_folder() / f"loomrl-{uuid.uuid4().hex}.safetensors")
        try:
            await self.take(StagedWeights(sealed.version, file))
        finally:
            file.unlink()
        self.admit(sealed.version)

    @property
    def current(self) -> StagedWeights:
        """The weights it samples with."""
        return self._applied

    async def take(self, staged: StagedWeights, file: Path | None = None) -> None:
        """Sample with staged weights, and hold completions until the weights are admitted. `file`: a copy on this
        machine.

        A PolicyError, without any change, if the weights differ from the sealed ones or do not fit. If applying them
        fails despite the checks, requests wait until other weights are applied.
        """
        async with self._updating:
            if self._applied == staged:
                return
            file = file or staged.file
            await self._examine("loomrl_check", file)
            await self._call(self._llm.pause_generation(mode="keep", clear_cache=False))
            try:
                await self._call(self._apply(file, staged.version))
            except PolicyError:
                self._applied = StagedWeights(self._applied.version, Path("half applied"))
                raise
            if self._decided is None:
                self._decided = asyncio.get_running_loop().create_future()
            self._applied = staged
            self._refused = None
            self._admitted = min(self._admitted, staged.version - 1)
            await self._call(self._llm.resume_generation())

    @property
    def workers(self) -> int:
        """Number of processes that hold parts of the model."""
        return int(self._llm.vllm_config.parallel_config.world_size)

    async def receive(self, staged: StagedWeights, meeting: Meeting, first: int) -> None:
        """`take` for weights that come through a group instead of a file; its workers have the ranks from
        `first` on.
        """
        asked = (str(staged.file), astuple(meeting), first)
        await self._call(self._llm.collective_rpc("loomrl_receive", args=asked))
        while not all(await self._call(self._llm.collective_rpc("loomrl_is_complete"))):  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(ARRIVED_S)
        await self.take(staged)

    async def _examine(self, method: str, file: Path) -> None:
        """A PolicyError with the first error found by a worker."""
        for wrong in await self._call(self._llm.collective_rpc(method, args=(str(file),))):
            if wrong is not None:
                raise PolicyError(wrong)

    async def _apply(self, file: Path, version: int) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        await self._llm.start_weight_update()
        await self._llm.update_weights(WeightTransferUpdateRequest({"path": str(file)}))
        await self._llm.finish_weight_update(str(version))
        await self._examine("loomrl_read_back", file)
        if not await self._llm.reset_prefix_cache(reset_running_requests=True):
            raise PolicyError("vLLM kept what it had cached")
        await self._llm.reset_encoder_cache()

    def admit(self, version: int) -> None:
        """Release held completions; a PolicyError if another version samples."""
        if version != self.version:
            raise PolicyError(f"version {version} cannot be admitted: the engine samples with version {self.version}.")
        self._admitted = version
        self._end_hold(None)

    async def reject(self, cause: str) -> None:
        """Fail open requests, which may have tokens of the current weights, and refuse work until others arrive."""
        self._refused = f"weights of version {self.version} were rejected: {cause}"
        self._applied = StagedWeights(self._applied.version, Path("rejected"))
        self._end_hold(PolicyError(self._refused))
        await self._call(self._llm.abort(list(self._open)))

    async def ping(self) -> None:
        """Return once the engine core has answered; EngineLost if it is dead."""
        await self._call(self._llm.get_weight_version())

    async def close(self) -> None:
        """End vLLM's processes. Open requests fail."""
        self._closed = True
        self._end_hold(PolicyError("no completion: the engine was closed."))
        if not self._llm.errored:
            await self._llm.abort(list(self._open))
        self._llm.shutdown(timeout=CLOSE_S)
        self._llm = None  # or it is shut down again when the interpreter ends, and complains

    def _end_hold(self, error: PolicyError | None) -> None:
        decided = self._decided
        self._decided = None
        if decided is None:
            return
        if error is None:
            decided.set_result(None)
        else:
            decided.set_exception(error)
            decided.exception()  # or asyncio complains if no request waits

    def _check(self, request: Request) -> None:
        if self._closed:
            raise PolicyError("the engine is closed: open another one.")
        check_prompt(request, context=self._context, vocabulary=self._vocabulary)
        check_sights(request, self._vision)

    async def _pieces(self, name: str, request: Request, *, whole: bool = False) -> Pieces:
        """The tokens as vLLM samples them; with `whole`, in one piece."""
        params = sampling_params(request, room=self._context - len(request.prompt_T), whole=whole)
        labels = Labels(self._llm, name)
        async with aclosing(self._outputs(prompt_of(request, self._vision), params, name)) as outputs:
            async for found in outputs:
                yield self._piece(found, labels, request.top)

    def _piece(self, found: Any, labels: Labels, top: int) -> CompletionPiece:
        """A piece of vLLM's output; a PolicyError if it is not fit to be one."""
        if self._closed:
            raise PolicyError("no completion: the engine was closed.")
        if found.finish_reason not in (None, *FinishReason):
            raise PolicyError(self._refused or f"no completion: vLLM ended the request with {found.finish_reason!r}.")
        versions_T = labels.take(found)
        first = found.logprobs.start_indices
        logprobs_T = np.array([found.logprobs.logprobs[start] for start in first], np.float32)
        if not is_finite(logprobs_T):
            raise PolicyError(f"no completion: weights of version {versions_T[-1]} gave logits that are not finite.")
        return CompletionPiece(
            np.array(found.token_ids, np.int32),
            logprobs_T,
            versions_T,
            None if found.finish_reason is None else FinishReason(found.finish_reason),
            top_of(found.logprobs, top),
        )

    async def _outputs(self, prompt: Any, params: Any, name: str) -> AsyncGenerator[Any, None]:
        with self._translate_errors():
            async with aclosing(self._llm.generate(prompt, params, name)) as outputs:
                async for output in outputs:
                    yield output.outputs[0]

    async def _call(self, waited: Any) -> Any:
        """vLLM's answer; its exceptions become ours."""
        with self._translate_errors():
            return await waited

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            yield
        except PolicyError:
            raise
        except EngineDeadError:
            if self._closed:
                raise PolicyError("no completion: the engine was closed.") from None
            why = said_cause(self._log) or "its log does not say why"
            raise EngineLost(f"vLLM's engine died: {why}. {tail(self._log)}") from None
        except Exception as error:
            cause = error.__cause__ or error
            raise PolicyError(f"vLLM failed: {type(cause).__name__}: {cause}. {tail(self._log)}") from error
