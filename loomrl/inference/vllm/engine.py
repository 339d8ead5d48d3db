"""vLLM on the event loop that opened it: one engine core, in processes of its own.

New weights are checked while the old ones serve, and applied while requests are kept.
"""

import asyncio
import itertools
import shutil
import uuid
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from loomrl.config import Sampling
from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import PolicyError
from loomrl.inference.engine import (
    CLOSED,
    Completion,
    CompletionPiece,
    Engine,
    EngineTurn,
    FinishReason,
    Pieces,
    Request,
    Unsupported,
    check_prompt,
    unknown_shifts,
)
from loomrl.inference.form import FormTrial
from loomrl.inference.open import Opening
from loomrl.inference.vision import Vision, check_sights, open_vision
from loomrl.inference.vllm.adapters import HeldAdapter, HeldBase
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


class VllmEngine(Engine):
    """Answers requests with vLLM's `AsyncLLM`, on one event loop."""

    def __init__(self, llm: Any, *, context: int, log: Path, version: int = 0, vision: Vision | None = None) -> None:
        super().__init__(version)
        self._llm = llm
        self._vision = vision
        self._context = context
        self._log = log
        self._vocabulary = int(llm.model_config.get_vocab_size())
        self._open: set[str] = set()
        self.staged: StagedWeights | None = None
        """The weights that it samples with; None before the first, and when they were rejected or half applied."""
        self._updating = asyncio.Lock()
        self._waking = asyncio.Lock()
        self._asleep = False
        self._base: HeldBase | None = None
        self._adapters: dict[str, HeldAdapter] = {}
        self._numbers = itertools.count(1)
        self._forms = FormTrial()

    @classmethod
    async def open(cls, choice: VllmEngineConfig, opening: Opening, *, log: Path) -> "VllmEngine":
        """An engine with the folder's weights as this version; a ConfigError states why it cannot start."""
        trusts = opening.trust_remote_code
        vision = open_vision(opening.origin, trust_remote_code=trusts)
        # before vLLM starts, so that the model is in memory once
        base = await asyncio.to_thread(HeldBase.of, opening) if choice.settings.get("enable_lora") else None
        llm = await asyncio.to_thread(start, choice, opening, log)
        await llm.collective_rpc("loomrl_prepare")
        await llm.update_weight_version(str(opening.version))
        try:  # some of what vLLM cannot do shows with the first token only
            await cls(llm, context=opening.context, log=log).probe([FIRST])
        except EngineLost as error:
            llm.shutdown(timeout=CLOSE_S)
            raise start_error(opening, said_cause(log) or str(error), log) from None
        engine = cls(llm, context=opening.context, log=log, version=opening.version, vision=vision)
        if base is None:
            await llm.collective_rpc("loomrl_remember")
        engine._base = base
        return engine

    @override
    async def _complete(self, request: Request, turn: EngineTurn) -> Completion:
        turn.begin()
        async with aclosing(self._pieces(request, whole=True)) as pieces:
            piece = [piece async for piece in pieces][-1]
        assert piece.finish is not None
        return Completion(piece.ids_T, piece.logprobs_T, piece.versions_T, piece.finish, shifts_T=piece.shifts_T)

    @override
    def _stream(self, request: Request, turn: EngineTurn) -> Pieces:
        turn.begin()
        return self._pieces(request)

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

    @override
    async def _apply(self, sealed: Sealed) -> None:
        file = stage(sealed, staging_folder() / f"loomrl-{uuid.uuid4().hex}.safetensors")
        try:
            async with self._updating:
                await self._apply_staged(StagedWeights(sealed.version, file), file)
        finally:
            file.unlink()

    async def take_staged(self, staged: StagedWeights, file: Path | None = None) -> None:
        """`take` for staged weights. `file`: a copy on this machine.

        If applying them fails despite the checks, requests wait until other weights are applied.
        """
        async with self._updating:
            if self.staged != staged:
                with self._taking(staged.version):
                    await self._apply_staged(staged, file or staged.file)

    async def _apply_staged(self, staged: StagedWeights, file: Path) -> None:
        if self._base is not None:
            raise PolicyError(
                f"weights of version {staged.version}: an engine that holds adapters keeps its base. Open one without "
                "engine.settings.enable_lora."
            )
        await self._wake()
        await self._examine("loomrl_check", file)
        await self._call(self._llm.pause_generation(mode="keep", clear_cache=False))
        self.staged = None
        await self._call(self._replace(file, staged.version))
        self.staged = staged
        await self._call(self._llm.resume_generation())

    @property
    @override
    def adapters(self) -> Collection[str]:
        return self._adapters.keys()

    @override
    async def _add_adapter(self, name: str, sealed: Sealed) -> None:
        if self._base is None:
            raise Unsupported(
                f"adapter {name!r}: this engine holds one policy. Open it with engine.settings.enable_lora=true, or "
                "engine.kind=torch, for several."
            )
        rank = max(len(factors.narrow_RI) for factors in self._base.check(sealed).values())
        if rank > (most := self._llm.vllm_config.lora_config.max_lora_rank):
            raise PolicyError(
                f"adapter of version {sealed.version}: rank {rank}, and this engine takes {most} or less. Open it with "
                f"engine.settings.max_lora_rank={rank}."
            )
        held = HeldAdapter.stage(sealed, rank, next(self._numbers))
        try:
            await self._call(self._llm.add_lora(held.request))
            for wrong in await self._call(
                self._llm.collective_rpc("loomrl_read_adapter", args=(held.request.lora_int_id, str(held.file)))
            ):
                if wrong is not None:
                    raise PolicyError(wrong)
        except BaseException:
            await asyncio.shield(self._let_go(held))
            raise
        former = self._adapters.pop(name, None)
        self._adapters[name] = held
        if former is not None:
            await self._let_go(former)

    @override
    async def _drop_adapter(self, name: str) -> None:
        await self._let_go(self._adapters.pop(name))

    async def _let_go(self, held: HeldAdapter) -> None:
        while held.open and not self._closed:  # noqa: ASYNC110 - the last request may be any of them
            await asyncio.sleep(ARRIVED_S)
        try:
            if not self._closed:
                await self._call(self._llm.remove_lora(held.request.lora_int_id))
        finally:
            shutil.rmtree(held.file.parent)

    @property
    def workers(self) -> int:
        """Number of processes that hold parts of the model."""
        return int(self._llm.vllm_config.parallel_config.world_size)

    async def receive(self, staged: StagedWeights, meeting: Meeting, first: int) -> None:
        """`take_staged` for weights that come through a group instead of a file; its workers have the ranks from
        `first` on.
        """
        asked = (str(staged.file), astuple(meeting), first)
        await self._call(self._llm.collective_rpc("loomrl_receive", args=asked))
        while not all(await self._call(self._llm.collective_rpc("loomrl_is_complete"))):  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(ARRIVED_S)
        await self.take_staged(staged)

    async def _examine(self, method: str, file: Path) -> None:
        """A PolicyError with the first error found by a worker."""
        for wrong in await self._call(self._llm.collective_rpc(method, args=(str(file),))):
            if wrong is not None:
                raise PolicyError(wrong)

    async def _replace(self, file: Path, version: int) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        await self._llm.start_weight_update()
        await self._llm.update_weights(WeightTransferUpdateRequest({"path": str(file)}))
        await self._llm.finish_weight_update(str(version))
        await self._examine("loomrl_read_back", file)
        if not await self._llm.reset_prefix_cache(reset_running_requests=True):
            raise PolicyError("vLLM kept what it had cached")
        await self._llm.reset_encoder_cache()

    @override
    async def reject(self, cause: str) -> None:
        await super().reject(cause)
        self.staged = None
        await self._call(self._llm.abort(list(self._open)))

    async def release(self) -> None:
        """Give the cache's memory back, and move the weights to main memory, until something is asked."""
        await self._call(self._llm.sleep(level=1, mode="keep"))
        self._asleep = True

    async def _wake(self) -> None:
        async with self._waking:
            if self._asleep:
                await self._call(self._llm.wake_up())
                self._asleep = False

    async def ping(self) -> None:
        """Return once the engine core has answered; EngineLost if it is dead."""
        await self._call(self._llm.get_weight_version())

    @override
    async def close(self) -> None:
        await super().close()
        if not self._llm.errored:
            await self._llm.abort(list(self._open))
        self._llm.shutdown(timeout=CLOSE_S)
        self._forms.close()
        for held in self._adapters.values():
            shutil.rmtree(held.file.parent)
        self._adapters.clear()
        self._llm = None  # or it is shut down again when the interpreter ends, and complains

    @override
    def _check(self, request: Request) -> None:
        super()._check(request)
        check_prompt(request, context=self._context, vocabulary=self._vocabulary)
        check_sights(request, self._vision)

    async def _pieces(self, request: Request, *, whole: bool = False) -> Pieces:
        """The tokens as vLLM samples them; with `whole`, in one piece."""
        grammar = None if request.form is None else await self._forms.translate(request.form)
        room = self._context - len(request.prompt_T)
        params = sampling_params(request, room=room, whole=whole, grammar=grammar)
        held = self._adapters[request.adapter] if request.adapter else None
        await self._wake()
        with self._count_open(request) as name, nullcontext() if held is None else held.count_open():
            labels = Labels(self._llm, name, None if held is None else held.version)
            lora = None if held is None else held.request
            async with aclosing(self._outputs(prompt_of(request, self._vision), params, name, lora)) as outputs:
                async for found in outputs:
                    piece = self._piece(found, labels, request)
                    self._tally.add(sampled_tokens=len(piece.ids_T))
                    yield piece

    def _piece(self, found: Any, labels: Labels, request: Request) -> CompletionPiece:
        """A piece of vLLM's output; a PolicyError if it is not fit to be one."""
        if self._closed:
            raise PolicyError(f"no completion: {CLOSED}.")
        if found.finish_reason not in (None, *FinishReason):
            raise PolicyError(
                self._hold.refusal or f"no completion: vLLM ended the request with {found.finish_reason!r}."
            )
        versions_T = labels.take(found)
        first = found.logprobs.start_indices
        logprobs_T = np.array([found.logprobs.logprobs[start] for start in first], np.float32)
        if not is_finite(logprobs_T):
            raise PolicyError(f"no completion: weights of version {versions_T[-1]} gave logits that are not finite.")
        ids_T = np.array(found.token_ids, np.int32)
        return CompletionPiece(
            ids_T,
            logprobs_T,
            versions_T,
            None if found.finish_reason is None else FinishReason(found.finish_reason),
            top_of(found.logprobs, request.top),
            unknown_shifts(ids_T) if request.shifts else None,
        )

    async def _outputs(self, prompt: Any, params: Any, name: str, lora: Any) -> AsyncGenerator[Any, None]:
        with self._translate_errors():
            async with aclosing(self._llm.generate(prompt, params, name, lora_request=lora)) as outputs:
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
                raise PolicyError(f"no completion: {CLOSED}.") from None
            why = said_cause(self._log) or "its log does not say why"
            raise EngineLost(f"vLLM's engine died: {why}. {tail(self._log)}") from None
        except Exception as error:
            cause = error.__cause__ or error
            raise PolicyError(f"vLLM failed: {type(cause).__name__}: {cause}. {tail(self._log)}") from error
