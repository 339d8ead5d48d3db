"""The base in memory, once: what trains adapters on it and what samples from them, on one thread."""

import asyncio
import random
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase
from typing_extensions import override

from loomrl.algorithms.tinker.learner import SharedLearner
from loomrl.algorithms.tinker.wire import DrawnSequence, SampleBody, write_sample
from loomrl.artifacts import open_artifacts
from loomrl.config import Sampling
from loomrl.config.serving import RemoteTraining
from loomrl.errors import ConfigError
from loomrl.files import scratch
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import FinishReason, Request, check_prompt
from loomrl.inference.gguf import model_folder
from loomrl.inference.merged import sealed_adapter
from loomrl.inference.model import config_of, open_model, open_tokenizer, sees
from loomrl.inference.open import Opening, fitted, longest_context
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.adapter import Factors, factors_of
from loomrl.inference.weights.sealed import Sealed, identify
from loomrl.process import Closing
from loomrl.store import LoomDB
from loomrl.store.runs import POLICIES
from loomrl.types import Odds

T = TypeVar("T")
TAIL = 64
"""Tokens at the end of an answer in whose text a stop string is looked for."""


class ModelThread(Closing):
    """A thread with an event loop of its own: all that touches the model happens there, one thing after another."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model", daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def call(self, work: Callable[..., T], *given: Any) -> T:
        """The result of a function that is called there."""

        async def once() -> T:
            return work(*given)

        return await self.run(once())

    @override
    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class OpenBase(Closing):
    """The base of a service, with its learner and its engine, which share the weights."""

    def __init__(self, settings: RemoteTraining, db: LoomDB) -> None:
        folder = model_folder(settings.base, settings.artifact_url).absolute()
        if sees(config_of(folder)):
            raise ConfigError(f"base={settings.base!r} sees pictures, and here only text is trained on. Take another.")
        self.settings = settings
        self.folder = folder
        self.names = tuple(dict.fromkeys((settings.base, str(folder), *settings.aliases)))
        """The names that callers may give."""
        self.context = longest_context(folder, settings.context)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        opening = fitted(
            Opening(origin=folder, context=self.context, slots=settings.slots, dtype=settings.dtype, device=device)
        )
        lm = open_model(folder, dtype=settings.dtype, device=device)
        self.identity = identify(lm.state_dict().items())
        self.engine = TorchEngine(lm, slots=opening.slots, context=self.context)
        self.learner = SharedLearner(lm, pass_tokens=settings.pass_tokens, context=self.context)
        self._tokenizer: PreTrainedTokenizerBase = open_tokenizer(folder)
        self._stop = ChatTemplate(self._tokenizer).stop
        self._vocabulary = int(lm.config.get_text_config().vocab_size)
        self._db = db
        self._held: OrderedDict[str, Mapping[str, Factors]] = OrderedDict()
        """Factors of the versions that the engine holds, the one that was used last at the end."""
        self._fetching = asyncio.Lock()
        self.thread = ModelThread()

    @override
    def close(self) -> None:
        self.thread.close()

    async def sample(self, asked: SampleBody, version: str) -> bytes:
        """Samples from a version, or from the base if it is empty; on the model's thread."""
        factors = await self._hold(version)
        ids_T = asked.ids
        given = asked.sampling_params
        room = self.context - len(ids_T)
        sampling = Sampling(
            temperature=given.temperature, top_p=given.top_p, max_tokens=max(1, min(given.max_tokens or room, room))
        )
        texts, stop = self._stops(given.stop)
        seed = random.getrandbits(62) if given.seed is None else given.seed
        odds = Odds(top_k=given.top_k) if given.top_k > 0 else None
        requests = [
            Request(ids_T, sampling, stop, (seed + number) % 2**63, adapter=version, odds=odds)
            for number in range(asked.num_samples)
        ]
        check_prompt(requests[0], context=self.context, vocabulary=self._vocabulary)
        read_T = None
        if asked.prompt_logprobs:
            read_T = self.learner.read(factors, ids_T)
            read_T[: len(ids_T) - (asked.prompt_logprobs_last_n or len(ids_T))] = np.nan
        drawn = await asyncio.gather(*(self._draw(request, texts) for request in requests))
        return write_sample(drawn, read_T)

    def _stops(self, given: str | Sequence[int] | Sequence[str] | None) -> tuple[tuple[str, ...], frozenset[int]]:
        """Strings and tokens that end an answer. None, and strings, leave the model's own end; a list of tokens is all
        there is, even an empty one.
        """
        if given is None:
            return (), self._stop
        words = (given,) if isinstance(given, str) else tuple(given)
        texts = tuple(word for word in words if isinstance(word, str))
        return texts, self._stop if texts else frozenset(word for word in words if isinstance(word, int))

    async def _draw(self, request: Request, texts: Sequence[str]) -> DrawnSequence:
        if not texts:
            whole = await self.engine.generate(request)
            return DrawnSequence(whole.ids_T, whole.logprobs_T, whole.finish is FinishReason.STOP)
        ids: list[int] = []
        logprobs: list[float] = []
        stopped = False
        async with aclosing(self.engine.stream(request)) as pieces:
            async for piece in pieces:
                for id, logprob in zip(piece.ids_T.tolist(), piece.logprobs_T.tolist(), strict=True):
                    ids.append(id)
                    logprobs.append(logprob)
                    stopped = any(text in self._tokenizer.decode(ids[-TAIL:]) for text in texts)
                    if stopped:
                        break
                stopped = stopped or piece.finish is FinishReason.STOP
                if stopped:
                    break
        return DrawnSequence(np.array(ids, np.int32), np.array(logprobs, np.float32), stopped)

    async def _hold(self, version: str) -> Mapping[str, Factors]:
        """The factors of a version, which the engine then holds too, in place of the one that was idle longest."""
        if not version:
            return {}
        async with self._fetching:
            if version not in self._held:
                sealed = await asyncio.to_thread(self._fetch, version)
                await self.engine.add_adapter(version, sealed)
                self._held[version] = factors_of(self.learner.lm, sealed)
            self._held.move_to_end(version)
            while len(self._held) > self.settings.resident:
                oldest, _ = self._held.popitem(last=False)
                await self.engine.drop_adapter(oldest)
            return self._held[version]

    def _fetch(self, version: str) -> Sealed:
        stored = POLICIES.require(self._db, version)
        folder = scratch("sampler")
        try:
            artifacts = open_artifacts(self.settings.artifact_url)
            checkpoint: Path = artifacts.get_folder(stored.url, folder / "version", below="adapter/")
            return sealed_adapter(checkpoint, stored.number)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
