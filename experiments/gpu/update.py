"""Parts of `make gpu-check`: whole updates of GRPO with engine and learner on one device, and curves of CPU and GPU.

Axes: K tokens to learn, G attempts of a group, T tokens of an attempt.
"""

import asyncio
import copy
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from torch import Tensor
from transformers import PreTrainedModel
from typing_extensions import override

from loomrl.algorithms.language.batch import TokenBatch, inputs
from loomrl.algorithms.language.flat import blocks_of, use_flat, variable_of
from loomrl.algorithms.language.layers import compile_layers
from loomrl.algorithms.language.packing import Reader, Sample
from loomrl.algorithms.language.precision import Dtypes, as_computed, hold_in_float32
from loomrl.algorithms.language.score import score
from loomrl.algorithms.losses import policy_loss
from loomrl.algorithms.timing import Pace, Worked
from loomrl.errors import PolicyError
from loomrl.experiments.bench.model import SMOLLM2, BenchLesson, ModelSize, build_model, settle
from loomrl.experiments.gpu.compute import model_size, planned_learner
from loomrl.inference.engine import Completion, Request
from loomrl.inference.footprint import ModelShape
from loomrl.inference.torch.graph_engine import GraphEngine
from loomrl.inference.weights.sealed import seal
from loomrl.process import Closing, die_with_parent
from loomrl.telemetry.metric import Metric

GROUP = 8
RATE = 1e-5
"""Learning rate of whole updates."""
FAST = 3e-4
"""Learning rate of curves, at which five steps go further than bfloat16 rounds."""
DRIFT = {"float32": 1e-4, "bfloat16": 0.03}
"""Largest mean difference of engine and learner over tokens of the present version: weights arrived."""
CURVE = {"cpu": 1e-5, "cuda": 0.1}
"""Largest distance of two curves, as a share of the way that the first one goes."""
STEPS = 5


@dataclass(frozen=True, slots=True)
class Sharing:
    """A way to share a device: updates' worth of groups that are under way or learnt from, and who pauses when."""

    ahead: int
    pauses: bool = False
    """True if the engine gives its cache back and makes no step while the learner does."""
    apart: bool = False
    """True if the engine has a process of its own."""


SHARINGS = {
    "synchronous": Sharing(1),
    "turns": Sharing(2, pauses=True),
    "streams": Sharing(2),
    "processes": Sharing(2, apart=True),
}
"""Staleness 0, and 1: by turns, at once on streams of their own, and at once in two processes, as runs have it."""
PATIENCE_S = 120.0


class Player:
    """An engine on a thread, and a stream, of its own, which attempts groups as long as there is room for them."""

    def __init__(self, size: ModelSize, model: PreTrainedModel, *, room: int) -> None:
        self._size = size
        self._groups: queue.SimpleQueue[list[tuple[Request, Completion]]] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(room)
        self._thread = threading.Thread(target=self._run, daemon=True)
        settle(size.device)  # the model is made on another stream
        self._thread.start()
        self._engine: GraphEngine = self.call(self._open(model))
        self._playing = self._begin(self._play())

    def take(self, groups: int) -> list[list[tuple[Request, Completion]]]:
        """The next groups to end."""
        taken: list[list[tuple[Request, Completion]]] = []
        while len(taken) < groups:
            try:
                taken.append(self._groups.get(timeout=1.0))
            except queue.Empty:
                if self._playing.done():
                    self._playing.result()
        return taken

    def worked(self) -> Worked:
        """The engine's sampled tokens and busy seconds."""
        found = self._engine.statistics
        return found.sampled_tokens, found.busy_s

    def peak_gib(self) -> float:
        """The most memory that this process had."""
        return torch.cuda.max_memory_allocated() / 2**30 if self._size.device == "cuda" else 0.0

    def pause(self) -> None:
        """Make no step until other weights come."""

        async def paused() -> None:
            self._engine.pause()

        self.call(paused())

    def load(self, weights: dict[str, Tensor], version: int, groups: int) -> None:
        """Sample with these weights from the next token on, and attempt so many more groups."""

        async def loaded() -> None:
            await self._engine.load(seal(weights, version))
            settle(self._size.device)
            for _ in range(groups):
                self._room.release()

        self.call(loaded())

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of `work`, run between the engine's steps."""
        return self._begin(work).result()

    def close(self) -> None:
        """End everything, and release the memory."""

        async def closed() -> None:
            await self._engine.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.call(closed())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _begin(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run(self) -> None:
        with torch.cuda.stream(torch.cuda.Stream()) if self._size.device == "cuda" else nullcontext():
            self._loop.run_forever()

    async def _open(self, model: PreTrainedModel) -> GraphEngine:
        return GraphEngine(model, slots=self._size.requests, context=self._size.prompt + self._size.answer)

    async def _play(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in count():
                await self._room.acquire()
                tasks.create_task(self._attempt(number))

    async def _attempt(self, number: int) -> None:
        requests = _requests(self._size, number)
        answers = await asyncio.gather(*map(self._engine.generate, requests))
        self._groups.put(list(zip(requests, answers, strict=True)))


class FarPlayer(Closing):
    """A player in a process of its own, which reads new weights in the learner's memory.

    It begins with the first call. On a CPU its process is a fork: begin it before there are threads.
    """

    def __init__(self, size: ModelSize, *, room: int) -> None:
        context: Any = torch.multiprocessing.get_context("fork" if size.device == "cpu" else "spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, size, room), daemon=True)
        self._process.start()
        theirs.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._ask, name)

    @override
    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._ours.close()

    def _ask(self, name: str, *args: Any) -> Any:
        self._ours.send((name, args))
        if not self._ours.poll(PATIENCE_S):
            raise TimeoutError(f"the engine's process has not answered {name} for {PATIENCE_S:g} s")
        answer, error = self._ours.recv()
        if error is not None:
            raise PolicyError(f"the engine's process: {error}")
        return answer


def _serve(theirs: Connection, size: ModelSize, room: int) -> None:
    """In the engine's process: answer with what a player's methods return."""
    die_with_parent(os.getppid(), by=signal.SIGKILL)
    player: Player | None = None
    while True:
        name, args = theirs.recv()
        try:
            player = player or Player(size, build_model(size), room=room)
            theirs.send((getattr(player, name)(*args), None))
        except Exception as error:  # noqa: BLE001 - the boundary
            theirs.send((None, f"{type(error).__name__}: {error}"))


def _requests(size: ModelSize, number: int) -> list[Request]:
    """A group's attempts, which end after half of the answer's tokens or more."""
    rng = np.random.default_rng([3, number])
    prompt_T = rng.integers(10, size.vocabulary, size.prompt, np.int32)
    found = []
    for index, tokens in enumerate(rng.integers(size.answer // 2, size.answer + 1, GROUP)):
        sampling: Any = SimpleNamespace(temperature=1.0, top_p=1.0, max_tokens=int(tokens), entropies=False)
        found.append(Request(prompt_T, sampling, frozenset(), number * GROUP + index))
    return found


def _samples(group: Sequence[tuple[Request, Completion]], version: int) -> Iterator[Sample]:
    """A group with advantages: the reward is the share of even tokens."""
    reward_G = np.array([float((answer.ids_T % 2 == 0).mean()) for _, answer in group])
    advantage_G = (reward_G - reward_G.mean()) / (reward_G.std() + 1e-6)
    for (request, answer), advantage in zip(group, advantage_G, strict=True):
        before_T = np.zeros(len(request.prompt_T), np.float32)
        columns = {
            "advantage": np.full(len(answer.ids_T), advantage, np.float32),
            "engine": answer.logprobs_T.astype(np.float32),
            "age": (version - answer.versions_T).astype(np.float32),
        }
        yield Sample(
            np.concatenate([request.prompt_T, answer.ids_T]),
            np.arange(len(before_T) + len(answer.ids_T)) >= len(before_T),
            {name: np.concatenate([before_T, column_T]) for name, column_T in columns.items()},
        )


class Learner:
    """Optimizer steps of a model, in flat rows; compiled on a GPU."""

    def __init__(self, size: ModelSize, model: PreTrainedModel, *, rate: float) -> None:
        self._size = size
        self.model = model
        if not use_flat(self.model):
            raise ArithmeticError("flat and plain attention differ")
        self._read: Reader = blocks_of if size.device == "cpu" else variable_of
        if size.device == "cuda":
            compile_layers(self.model)
        self._held: Dtypes = hold_in_float32(self.model)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, fused=True)

    def step(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """One step of GRPO over these attempts."""
        lesson = BenchLesson(self._size, read=self._read, samples=samples)
        loss = torch.zeros((), device=self.model.device)
        logp = torch.zeros((), device=self.model.device)
        drift: list[Tensor] = []
        for batch in lesson.batches(self.model.device):
            loss_K, logp_K = _loss(self.model, batch)
            (loss_K.sum() / lesson.targets).backward()
            loss += loss_K.detach().sum()
            logp += logp_K.sum()
            columns = batch.packed.columns
            drift.append((logp_K - columns["engine"]).abs()[columns["age"] == 0])
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)  # an engine may need their memory
        return {
            "loss": float(loss) / lesson.targets,
            "mean_logp": float(logp) / lesson.targets,
            "gradient_norm": float(norm),
            "drift": float(torch.cat(drift).mean()),  # not a number where nothing is of the present version
            "tokens": lesson.tokens,
        }

    def weights(self) -> dict[str, Tensor]:
        """The weights as engines compute with them, for any stream."""
        computed = as_computed(self.model.state_dict(), self._held)
        settle(self._size.device)
        return computed


def _loss(model: PreTrainedModel, batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """Per token: the clipped surrogate against the engine's log-probabilities, and the learner's own."""
    logp_K = score(model, inputs(batch.packed))["logp_K"]
    clip: Any = SimpleNamespace(low=0.2, high=0.2, dual=None)
    columns = batch.packed.columns
    loss_K, _ = policy_loss(logp_K, columns["engine"], columns["advantage"], clip=clip)
    return loss_K, logp_K.detach()


def update(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """Whole updates of GRPO on one device, by every way of sharing it: tokens per second, and the idle share."""
    size = model_size(cpu=cpu, tiny=tiny)
    failed = []
    with ExitStack() as stack:
        rooms = {name: sharing.ahead * size.requests // GROUP for name, sharing in SHARINGS.items()}
        far = {
            name: stack.enter_context(FarPlayer(size, room=rooms[name]))
            for name, sharing in SHARINGS.items()
            if sharing.apart
        }
        learner = Learner(size, build_model(size), rate=RATE)
        for name, sharing in SHARINGS.items():
            try:
                player = far.get(name) or Player(size, build_model(size), room=rooms[name])
                yield {name: _share(learner, player, size, sharing)}
            except Exception as error:  # noqa: BLE001 - the boundary
                failed.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    if failed:
        raise ArithmeticError("; ".join(failed))


def _share(learner: Learner, player: Player | FarPlayer, size: ModelSize, sharing: Sharing) -> dict[str, Any]:
    """The first update is not counted: it compiles, captures and fills what later ones find."""
    groups = size.requests // GROUP
    lines: list[dict[str, float]] = []
    seconds = 0.0
    learnt = 0
    if size.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def ask() -> Callable[[], Worked]:
        worked = player.worked()
        return lambda: worked

    try:
        player.load(learner.weights(), 1, 0)
        for version in range(1, size.rounds + 2):
            begun = time.perf_counter()
            pace = Pace(ask)
            taken = player.take(groups)
            rolled_s = time.perf_counter()
            samples = [sample for group in taken for sample in _samples(group, version)]
            with pace.learning():
                if sharing.pauses:
                    player.pause()
                found = learner.step(samples)
                settle(size.device)
            if found["drift"] > DRIFT[size.dtype]:
                raise ArithmeticError(f"engine and learner are {found['drift']:.3g} apart over the same weights")
            learnt_s = time.perf_counter()
            player.load(learner.weights(), version + 1, groups)
            whole_s = time.perf_counter() - begun
            if version > 1:
                seconds += whole_s
                learnt += found["tokens"]
                lines.append(
                    {
                        "update_s": whole_s,
                        "wait_s": rolled_s - begun,
                        "learn_s": learnt_s - rolled_s,
                        "publish_s": begun + whole_s - learnt_s,
                        "drift": found["drift"],
                        **{
                            name.value.rpartition("/")[2]: pace.overlapping()[name]
                            for name in (Metric.IDLE, Metric.OVERLAP)
                        },
                    }
                )
        apart_gib = player.peak_gib() if sharing.apart else 0.0
    finally:
        player.close()
    told: dict[str, Any] = {name: _median([line[name] for line in lines]) for name in lines[0]}
    told["update_tokens_per_s"] = round(learnt / seconds)
    told["planned_gib"] = round(_planned(learner.model, size, sharing) / 2**30, 2)
    if size.device == "cuda":
        told["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30 + apart_gib, 2)
    return told


def _planned(model: PreTrainedModel, size: ModelSize, sharing: Sharing) -> float:
    """The bytes that `loomrl show --plan` counts for learner and engine."""
    shape = ModelShape.of(model.config)
    parts = planned_learner(model, size)
    cache = shape.cache_bytes(size.requests * (size.prompt + size.answer), size.dtype)
    shared = min(parts["activations"] + parts["gradients"], cache) if sharing.pauses else 0
    return sum(parts.values()) + shape.engine_bytes(size.dtype) + cache - shared


def _median(values: Sequence[float]) -> float | None:
    known = [value for value in values if not np.isnan(value)]
    return float(f"{np.median(known):.3g}") if known else None


def curves(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """The first updates from the same attempts in float32 on the CPU and as a GPU makes them: their curves agree."""
    shape = replace(SMOLLM2, prompt=64, answer=32, requests=16, rounds=STEPS)
    size = model_size(shape, cpu=cpu, tiny=tiny)
    size = replace(size, requests=16, rounds=STEPS)
    exact = replace(size, device="cpu", dtype="float32")
    groups = [_requests(exact, number) for number in range(exact.requests // GROUP)]
    model = build_model(exact)
    engine = GraphEngine(copy.deepcopy(model), slots=exact.requests, context=exact.prompt + exact.answer)

    async def sample() -> list[list[Completion]]:
        return [list(await asyncio.gather(*map(engine.generate, group))) for group in groups]

    played = zip(groups, asyncio.run(sample()), strict=True)
    samples = [one for asked, got in played for one in _samples(list(zip(asked, got, strict=True)), 0)]
    found = {}
    for name, each in {"float32": exact, "as_here": size}.items():
        same: Any = copy.deepcopy(model)
        learner = Learner(each, same.to(device=each.device, dtype=getattr(torch, each.dtype)), rate=FAST)
        found[name] = [learner.step(samples) for _ in range(STEPS)]
        yield {name: {curve: [line[curve] for line in found[name]] for curve in ("loss", "mean_logp", "gradient_norm")}}
    apart = {curve: _distance(found, curve) for curve in ("loss", "mean_logp")}
    yield {"apart": apart}
    if not apart["loss"] <= CURVE[size.device]:
        raise ArithmeticError(f"losses are apart by {apart['loss']:.3g} of the way that they go")


def _distance(found: dict[str, list[dict[str, Any]]], curve: str) -> float:
    one, other = (np.array([line[curve] for line in lines]) for lines in found.values())
    return float(np.abs(one - other).max() / max(np.ptp(one), 1e-12))
