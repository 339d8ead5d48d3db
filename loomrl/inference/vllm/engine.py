"""vLLM on the event loop that opened it: one engine core, in processes of its own.

New weights are checked while the old ones serve, applied while requests are kept, and held: completions with tokens of
new weights are returned once those are admitted.
"""

import asyncio
import time
import uuid
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from loomrl.config import Sampling
from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import PolicyError
from loomrl.inference.engine import Completion, Finish, Request
from loomrl.inference.open import Opening
from loomrl.inference.torch.engine import Statistics
from loomrl.inference.vision import Vision, check_sights, open_vision
from loomrl.inference.vllm.log_tail import cause as said_cause
from loomrl.inference.vllm.log_tail import tail
from loomrl.inference.vllm.start import refused, start
from loomrl.inference.vllm.vision import prompt_of
from loomrl.inference.weights.group import Meeting
from loomrl.inference.weights.sealed import Sealed, stage
from loomrl.inference.weights.staging import staging_folder

FIRST = Request(np.zeros(1, np.int32), Sampling(max_tokens=1), frozenset(), 0)
ARRIVED_S = 0.02
"""Interval between polls whether all weights have arrived."""
CLOSE_S = 1.0
"""Time for vLLM's processes to end by themselves before they are killed."""


class EngineLost(PolicyError):
    """The engine's processes have died. Another engine can answer the same request."""


@dataclass(frozen=True, slots=True)
class Staged:
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
        self._counted = Statistics()
        self._open: dict[str, float] = {}
        self._busy_since = 0.0
        self._applied = Staged(version, Path())
        self._admitted = version
        self._gate: asyncio.Future[None] | None = None
        self._refused: str | None = None
        self._updating = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, choice: VllmEngineConfig, opening: Opening, *, log: Path) -> "VllmEngine":
        """An engine with the folder's weights as version 0; a ConfigError states why it cannot start."""
        vision = open_vision(opening.origin)
        llm = await asyncio.to_thread(start, choice, opening, log)
        await llm.collective_rpc("loomrl_prepare")
        await llm.update_weight_version("0")
        try:  # some of what vLLM cannot do shows with the first token only
            await cls(llm, context=opening.context, log=log).probe(FIRST)
        except EngineLost as error:
            llm.shutdown(timeout=CLOSE_S)
            raise refused(opening, said_cause(log) or str(error), log) from None
        await llm.collective_rpc("loomrl_remember")
        return cls(llm, context=opening.context, log=log, vision=vision)

    @property
    def version(self) -> int:
        """The policy version that samples now, admitted or not."""
        return self._applied.version

    @property
    def statistics(self) -> Statistics:
        """The counts so far. Busy means that a request is open; vLLM does not report its number of steps."""
        now = time.perf_counter() - self._busy_since if self._open else 0.0
        return replace(self._counted, busy_s=self._counted.busy_s + now)

    async def generate(self, request: Request) -> Completion:
        """The completion of one request, once all versions that sampled its tokens are admitted."""
        if self._refused is not None:
            raise PolicyError(self._refused)
        completion = await self.probe(request)
        while self._gate is not None and completion.versions_T[-1] > self._admitted:
            await asyncio.shield(self._gate)
        return completion

    async def probe(self, request: Request) -> Completion:
        """The completion, admitted or not: for deciding about admission."""
        self._check(request)
        name = uuid.uuid4().hex
        if not self._open:
            self._busy_since = time.perf_counter()
        self._open[name] = time.perf_counter()
        try:
            completion = await self._complete(name, request)
        finally:
            del self._open[name]
            if not self._open:
                busy_s = self._counted.busy_s + time.perf_counter() - self._busy_since
                self._counted = replace(self._counted, busy_s=busy_s)
        self._counted = replace(
            self._counted,
            sampled_tokens=self._counted.sampled_tokens + len(completion.ids_T),
            prompt_tokens=self._counted.prompt_tokens + len(request.prompt_T),
        )
        return completion

    async def load(self, sealed: Sealed) -> None:
        """Sample with these weights from the next token on, also in open requests; caches are discarded."""
        file = stage(sealed, staging_folder() / f"loomrl-{uuid.uuid4().hex}.safetensors")
        try:
            await self.take(Staged(sealed.version, file))
        finally:
            file.unlink()
        self.admit(sealed.version)

    @property
    def applied(self) -> Staged:
        """The weights it samples with."""
        return self._applied

    async def take(self, staged: Staged, file: Path | None = None) -> None:
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
                self._applied = Staged(self._applied.version, Path("half applied"))
                raise
            if self._gate is None:
                self._gate = asyncio.get_running_loop().create_future()
            self._applied, self._refused = staged, None
            self._admitted = min(self._admitted, staged.version - 1)
            await self._call(self._llm.resume_generation())

    @property
    def workers(self) -> int:
        """Number of processes that hold parts of the model."""
        return int(self._llm.vllm_config.parallel_config.world_size)

    async def receive(self, staged: Staged, meeting: Meeting, first: int) -> None:
        """`take` for weights that come through a group instead of a file; its workers have the ranks from
        `first` on.
        """
        asked = (str(staged.file), astuple(meeting), first)
        await self._call(self._llm.collective_rpc("loomrl_receive", args=asked))
        while not all(await self._call(self._llm.collective_rpc("loomrl_arrived"))):  # noqa: ASYNC110 - elsewhere
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
        self._applied = Staged(self._applied.version, Path("rejected"))
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
        gate, self._gate = self._gate, None
        if gate is None:
            return
        if error is None:
            gate.set_result(None)
        else:
            gate.set_exception(error)
            gate.exception()  # seen, even if nobody waits

    def _check(self, request: Request) -> None:
        if self._closed:
            raise PolicyError("the engine is closed: open another one.")
        length = len(request.prompt_T)
        if not 0 < length < self._context:
            raise PolicyError(f"a prompt of {length} tokens in context={self._context}: 1 to {self._context - 1} fit.")
        low, high = int(request.prompt_T.min()), int(request.prompt_T.max())
        if low < 0 or high >= self._vocabulary:
            raise PolicyError(
                f"prompt ids from {low} to {high}: the model's vocabulary has 0 to {self._vocabulary - 1}."
            )
        check_sights(request, self._vision)

    async def _complete(self, name: str, request: Request) -> Completion:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            max_tokens=min(request.sampling.max_tokens, self._context - len(request.prompt_T)),
            seed=request.seed,
            stop_token_ids=sorted(request.stop),
            ignore_eos=True,
            detokenize=False,
            logprobs=0,
            flat_logprobs=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        completion: Completion = await self._call(self._last(name, request, sampling))
        return completion

    async def _last(self, name: str, request: Request, sampling: Any) -> Completion:
        async for output in self._llm.generate(prompt_of(request, self._vision), sampling, name):
            found = output.outputs[0]
        if self._closed:
            raise PolicyError("no completion: the engine was closed.")
        if found.finish_reason not in list(Finish):
            raise PolicyError(self._refused or f"no completion: vLLM ended the request with {found.finish_reason!r}.")
        logprobs_T = np.array(found.logprobs.logprobs, np.float32)
        versions_T = np.empty(len(found.token_ids), np.int32)
        for span in found.weight_versions:
            versions_T[span.start : span.end] = int(span.version)
        if not np.isfinite(logprobs_T).all():
            raise PolicyError(f"no completion: weights of version {versions_T[-1]} gave logits that are not finite.")
        return Completion(np.array(found.token_ids, np.int32), logprobs_T, versions_T, Finish(found.finish_reason))

    async def _call(self, waited: Any) -> Any:
        """vLLM's answer; its exceptions become ours."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            return await waited
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
