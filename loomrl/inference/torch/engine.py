"""The embedded engine: continuous batching in this process, on the caller's event loop, on CPU or GPU."""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from typing_extensions import override

from loomrl.errors import PolicyError
from loomrl.inference.engine import (
    CLOSED,
    Completion,
    Engine,
    EngineTurn,
    Pieces,
    Request,
    Sight,
    Top,
    Unsupported,
    check_ids,
    check_prompt,
)
from loomrl.inference.form import FormCompiler, FormMatcher
from loomrl.inference.torch.adapters import LowRankAdapter
from loomrl.inference.torch.fused import open_network
from loomrl.inference.torch.network import CachedNetwork
from loomrl.inference.torch.rows import OpenRequest, RowDraw, Rows, TokenFeed, draw
from loomrl.inference.vision import Vision, check_sights
from loomrl.inference.weights.adapter import refuse_other_base
from loomrl.inference.weights.sealed import Sealed, checksums, identify, load_weights, not_what_was_sealed, read_back

TURNS = 8
"""Turns of the event loop after a request ends, so that follow-up requests can join the next step; and after every
step whose tokens are read as they come: they leave, and new requests arrive, through several turns.
"""
GAP_S = 0.002
"""The time without a new stream after which an idle engine begins."""
GATHER_S = 0.012
"""The longest time that an idle engine waits for more streams."""
PIECES_PER_S = 200
"""Pieces of all streams together: each one wakes its reader, and costs its way through gateway and network."""
PAUSE_S = (0.025, 0.1)
"""The shortest and the longest pause of a stream."""
FILL_TOKENS = 8192
"""Maximum prompt tokens in one forward pass, padding included; a single longer prompt is allowed."""


def _pause_s(streams: int) -> float:
    """The time in which tokens gather into a stream's next piece. The first and the last one wait for nothing."""
    least, most = PAUSE_S
    return min(max(streams / PIECES_PER_S, least), most)


Key = tuple[bytes, tuple[Sight, ...], LowRankAdapter | None]


class Base(NamedTuple):
    """The weights that adapters are additions to."""

    identity: str
    checksums: Mapping[str, str]


class TorchEngine(Engine):
    """Samples from a Hugging Face model that it owns: its weights change only through `load`.

    The model is the base of any number of adapters: `load` takes all weights, or the adapter for requests that name
    none. A step reads one token in every open request and samples the next. Steps run on the event loop that awaits
    `generate`; a new loop may take over once the previous one has ended.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        slots: int = 256,
        context: int = 256,
        version: int = 0,
        vision: Vision | None = None,
        forms: FormCompiler | None = None,
    ) -> None:
        """Without `forms`, which know the tokens' texts, no answer can have a form."""
        super().__init__(version)
        self._forms = forms
        self._network: CachedNetwork | None = self._build(model, slots=slots, context=context, vision=vision)
        self._constants = {name: tensor.clone() for name, tensor in self._network.constants().items()}
        self._base: Base | None = None
        self._own: LowRankAdapter | None = None
        self._adapters: dict[str, LowRankAdapter] = {}
        self._slots = slots
        self._context = context
        self._vocabulary = int(model.config.get_text_config().vocab_size)
        self._rows = Rows(slots=slots, context=context)
        self._waiting: deque[OpenRequest] = deque()
        self._stale = False
        self.paused = False
        """True while it makes no step."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump: asyncio.Task[None] | None = None

    def _build(self, model: PreTrainedModel, *, slots: int, context: int, vision: Vision | None) -> CachedNetwork:
        return open_network(model, slots=slots, context=context, vision=vision)

    @override
    async def _complete(self, request: Request, turn: EngineTurn) -> Completion:
        return await self._enter(request, turn, None, await self._open_form(request)).answer

    @override
    async def _stream(self, request: Request, turn: EngineTurn) -> Pieces:
        """Each piece once it is due; closing it frees the row before the next step."""
        feed = TokenFeed()
        answer = self._enter(request, turn, feed, await self._open_form(request)).answer
        answer.add_done_callback(lambda _: feed.more.set())
        try:
            finish = None
            while finish is None:
                await feed.more.wait()
                feed.more.clear()
                finish = answer.result().finish if answer.done() else None
                yield feed.take(finish)
        finally:
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # seen, even if the reader went before it came

    @override
    async def _score(self, request: Request, turn: EngineTurn) -> Top:
        check_ids(request.prompt_T, self._vocabulary, "prompt ids")
        if request.sights:
            raise Unsupported("echo with logprobs: a prompt with pictures is not scored. Leave out one of the two.")
        turn.begin()
        began = time.perf_counter()
        adapter = self._adapters[request.adapter] if request.adapter else self._own
        with torch.inference_mode():
            found = self._open_network().score(
                request.prompt_T, temperature=request.sampling.temperature, top=request.top, adapter=adapter
            )
        self._tally.add(busy_s=time.perf_counter() - began, prompt_tokens=len(request.prompt_T))
        return found

    async def _open_form(self, request: Request) -> FormMatcher | None:
        if request.form is None or self._forms is None:
            return None
        form = await self._forms.open(request.form, request.stop)
        self._check(request)  # again: the engine, and what it holds, may have changed meanwhile
        return form

    def _enter(
        self, request: Request, turn: EngineTurn, feed: TokenFeed | None, form: FormMatcher | None
    ) -> OpenRequest:
        """Put a request into the queue, and see to it that steps are made."""
        self._attach(asyncio.get_running_loop())
        adapter = self._adapters[request.adapter] if request.adapter else None
        opened = OpenRequest(request, turn, asyncio.get_running_loop().create_future(), feed, adapter, form)
        opened.answer.add_done_callback(lambda _: turn.end())
        self._waiting.append(opened)
        self._start()
        return opened

    def _start(self) -> None:
        """See to it that steps are made."""
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
            self._pump.add_done_callback(self._on_stop)

    @override
    async def _apply(self, sealed: Sealed) -> None:
        """If the memory then differs from what was copied into it, the engine refuses work until other weights come."""
        sealed.verify()
        model = self._open_network().model
        if sealed.base is not None:
            self._own = self._open_adapter(sealed)
        elif self._adapters:
            raise PolicyError(
                f"weights of version {sealed.version}: the adapters {', '.join(self._adapters)} are additions to the "
                "weights that the engine has. Drop them first."
            )
        else:
            load_weights(model, sealed.weights, sealed.version)
            self._own = None
            self._base = None
        self._stale = True
        try:
            if self._own is not None:
                self._read_adapter(self._own, sealed)
            else:
                read_back(model, sealed)
            self._read_constants(sealed.version)
        except PolicyError as error:
            self._unsound = str(error)
            self._fail(self._unsound.rstrip("."))
            raise
        if self.paused:
            self.resume()

    @property
    @override
    def adapters(self) -> Collection[str]:
        return self._adapters.keys()

    @override
    async def _add_adapter(self, name: str, sealed: Sealed) -> None:
        # in threads, because others' requests go on meanwhile: all weights of the base are read
        await asyncio.to_thread(self._identify_base)
        adapter = self._open_adapter(sealed)
        await asyncio.to_thread(self._read_adapter, adapter, sealed)
        self._adapters[name] = adapter

    @override
    async def _drop_adapter(self, name: str) -> None:
        del self._adapters[name]

    def _open_adapter(self, sealed: Sealed) -> LowRankAdapter:
        """An adapter in the engine's memory; a PolicyError if it belongs to another base, or does not fit."""
        refuse_other_base(sealed, self._identify_base().identity)
        return self._open_network().adapted.open(sealed)

    def _identify_base(self) -> Base:
        if self._base is None:
            weights = self._open_network().model.state_dict()
            self._base = Base(identify(weights.items()), checksums(weights))
        return self._base

    def _read_adapter(self, adapter: LowRankAdapter, sealed: Sealed) -> None:
        """A PolicyError if the adapter is not what was sealed, or its base no longer what it was."""
        adapter.read_back(sealed)
        assert self._base is not None
        now = checksums(self._open_network().model.state_dict())
        wrong = [name for name, was in self._base.checksums.items() if now[name] != was]
        if wrong:
            raise not_what_was_sealed(sealed, wrong)

    def _read_constants(self, version: int) -> None:
        now = self._open_network().constants()
        wrong = sorted(name for name, was in self._constants.items() if not torch.equal(now[name], was))
        if wrong:
            raise PolicyError(
                f"weights of version {version}: beside them, {', '.join(wrong[:3])} changed in the engine since it was "
                "opened, and must not. Resume the run with fresh engines, and look for faulty memory."
            )

    def release(self) -> None:
        """Give the cache's memory back until the next request; nothing while one is open."""
        if not self._rows.opened and not self._waiting:
            self._free()

    def pause(self) -> None:
        """Make no step until other weights come, and give the cache's memory back. Open requests wait, and then go on
        from the tokens they have.
        """
        self.paused = True
        self._stale = True
        for opened in self._rows.opened:
            opened.turn.end()
        self._free()

    def resume(self) -> None:
        """Go on after a pause."""
        self.paused = False
        for opened in self._rows.opened:
            opened.turn.begin()
        if self._rows.opened or self._waiting:
            self._start()

    def _free(self) -> None:
        network = self._open_network()
        network.release()
        if network.model.device.type == "cuda":
            torch.cuda.empty_cache()

    @override
    async def close(self) -> None:
        await super().close()
        self._fail(CLOSED)
        self._network = None
        if self._forms is not None:
            self._forms.close()

    def _open_network(self) -> CachedNetwork:
        assert self._network is not None, "the engine is open"
        return self._network

    @override
    def _check(self, request: Request) -> None:
        super()._check(request)
        if request.form is not None and self._forms is None:
            raise Unsupported(f"form={request.form.kind}: this engine was opened without forms. Open it with some.")
        check_prompt(request, context=self._context, vocabulary=self._vocabulary)
        check_sights(request, self._open_network().vision)

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve this loop. Requests of a stopped loop are dropped."""
        if self._loop is loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise PolicyError("the engine serves another running event loop: give each loop an engine of its own.")
        self._fail("its event loop stopped")
        self._loop = loop
        self._pump = None

    async def _run(self) -> None:
        """Step while there is work; no request is left without an answer."""
        await self._gather()
        while not self.paused and (self._waiting or self._rows.opened):
            is_new = self._step_safely()
            is_read = any(opened.feed is not None for opened in self._rows.opened)
            for _ in range(TURNS if is_new or is_read else 1):
                await asyncio.sleep(0)

    async def _gather(self) -> None:
        """Wait for what arrives together with the first stream: one reading of many prompts is far faster than many."""
        until = time.perf_counter() + GATHER_S
        count = 0
        while self._waiting and self._waiting[-1].feed is not None and count < len(self._waiting) < self._slots:
            if time.perf_counter() > until:
                return
            count = len(self._waiting)
            await asyncio.sleep(GAP_S)

    def _on_stop(self, pump: asyncio.Task[None]) -> None:
        """Fail open requests if the task was cancelled before its first step, in which case no `finally` would run."""
        if self._pump is pump and (pump.cancelled() or not self.paused):
            self._fail("the engine's task was cancelled")

    def _step_safely(self) -> bool:
        try:
            return self._step()
        except Exception as error:  # noqa: BLE001 - the boundary
            self._fail(f"{type(error).__name__}: {error}")
            return True

    def _step(self) -> bool:
        """One token in every open request; True if requests came or went."""
        began = time.perf_counter()
        with torch.inference_mode():
            self._drop_abandoned()
            if self._stale:
                self._open_network().forget()
                self._fill(range(len(self._rows)))
                self._stale = False
            admitted = self._admit()
            ended = self._advance() if self._rows.opened else 0
        self._tally.add(busy_s=time.perf_counter() - began)
        return bool(admitted or ended)

    def _drop_abandoned(self) -> None:
        """Free the rows of cancelled tasks."""
        self._remove([row for row, opened in enumerate(self._rows.opened) if opened.answer.done()])

    def _admit(self) -> int:
        """Move waiting requests into free rows and read their prompts."""
        first = len(self._rows)
        while self._waiting and len(self._rows) < self._slots:
            opened = self._waiting.popleft()
            if not opened.answer.done():
                self._rows.add(opened)
                opened.turn.begin()
                self._tally.add(prompt_tokens=len(opened.request.prompt_T))
        self._fill(range(first, len(self._rows)))
        return len(self._rows) - first

    def _fill(self, rows: range) -> None:
        """Read all but the last token of these rows; equal prompts once, prompts of similar length together."""
        known = {self._key(row, self._rows.prompt(row)): row for row in range(rows.start)}
        same: dict[Key, list[int]] = {}
        for row in rows:
            self._open_network().empty(row)
            text = self._rows.read(row)
            key = self._key(row, text)
            if len(text) and key in known:
                self._open_network().join(known[key], row, text, key[2])
            elif len(text):
                same.setdefault(key, []).append(row)
        for adapter in dict.fromkeys(key[2] for key in same):
            self._fill_with(adapter, [group for key, group in same.items() if key[2] is adapter])

    def _fill_with(self, adapter: LowRankAdapter | None, groups: list[list[int]]) -> None:
        """Read the prompts of groups of rows with one adapter."""
        groups.sort(key=lambda group: len(self._rows.read(group[0])))
        while groups:
            longest = len(self._rows.read(groups[-1][0]))
            batch = groups[-max(1, FILL_TOKENS // longest) :]
            del groups[-len(batch) :]
            prompts = [self._rows.read(group[0]) for group in batch]
            places = [(row, prompt) for prompt, group in enumerate(batch) for row in group]
            sights = [self._rows.opened[group[0]].request.sights for group in batch]
            rows, prompt_of = zip(*places, strict=True)
            self._open_network().fill(prompts, rows, prompt_of, sights, adapter)

    def _key(self, row: int, text_T: NDArray[np.int32]) -> Key:
        """The key of rows with equal keys and values: text, pictures and adapter."""
        opened = self._rows.opened[row]
        return text_T.tobytes(), opened.request.sights, self._adapter(opened)

    def _adapter(self, opened: OpenRequest) -> LowRankAdapter | None:
        """The adapter of the request's next token."""
        return opened.adapter if opened.request.adapter else self._own

    def _version_of(self, opened: OpenRequest) -> int:
        return opened.adapter.version if opened.adapter is not None else self._version

    def _advance(self) -> int:
        """Sample one token in every row and answer those that ended; returns their number."""
        columns = self._rows.columns()
        x = torch.from_numpy(columns).to(self._open_network().model.device)
        adapters = [self._adapter(opened) for opened in self._rows.opened]
        logits_NV = self._open_network().step(x[0].long(), x[1].long(), int(columns[1].max()) + 1, adapters)
        shifted = self._rows.shift(logits_NV)  # after the step: a GPU still computes while forms are consulted
        found = draw(logits_NV, x[2], x[3] if columns[3].min() < 1 else None, x[4], shifted)
        return self._settle(np.arange(len(self._rows)), found.columns().cpu().numpy(), self._versions(), found)

    def _versions(self) -> NDArray[np.int32]:
        """The version that draws each row's next token."""
        return np.array([self._version_of(opened) for opened in self._rows.opened], np.int32)

    def _settle(
        self,
        row_N: NDArray[np.int64],
        drawn_3N: NDArray[np.float64],
        version_N: NDArray[np.int32],
        found: RowDraw | None = None,
    ) -> int:
        """Give each of these rows its token, and answer those that ended; returns their number.

        Without `found`, no row wants more than its token and log-probability.
        """
        entropies_N = found.entropy().cpu().numpy() if found is not None and self._rows.want_entropies else None
        ended = self._rows.append(row_N, drawn_3N, version_N, entropies_N)
        self._hand_out(row_N, drawn_3N, version_N, found)
        broken = np.flatnonzero(~np.isfinite(drawn_3N[1]))
        for column in broken:
            row = int(row_N[column])
            opened = self._rows.opened[row]
            self._answer(opened, f"weights of version {version_N[column]} gave logits that are not finite")
            self._open_network().clear(row, len(self._rows.read(row)))
        strayed = self._follow_forms(row_N, drawn_3N[0])
        for row in ended:
            if not self._rows.opened[row].answer.done():
                self._rows.opened[row].answer.set_result(self._rows.completion(row))
        gone = {*map(int, ended), *map(int, row_N[broken]), *strayed}
        self._tally.add(sampled_tokens=len(row_N), steps=1)
        self._remove(gone)
        return len(gone)

    def _follow_forms(self, row_N: NDArray[np.int64], ids_N: NDArray[np.float64]) -> list[int]:
        """Go on in every form after its row's token; returns the rows whose form cannot, which are answered so."""
        strayed = []
        for row, id in zip(map(int, row_N), ids_N, strict=True):
            opened = self._rows.opened[row]
            if opened.form is not None and (fault := opened.form.take(int(id))):
                self._answer(opened, f"its form became too complex ({fault}). Simplify it", Unsupported)
                strayed.append(row)
        return strayed

    def _hand_out(
        self,
        row_N: NDArray[np.int64],
        drawn_3N: NDArray[np.float64],
        version_N: NDArray[np.int32],
        found: RowDraw | None,
    ) -> None:
        """Hand the tokens of this step to those who read them as they come."""
        rows = ((column, self._rows.opened[row]) for column, row in enumerate(row_N))
        fed = [(column, opened) for column, opened in rows if opened.feed is not None]
        now = time.perf_counter()
        next_at = now + _pause_s(len(fed))
        most = max((opened.request.top for _, opened in fed), default=0)
        best = found.logp_NV.topk(min(most, self._vocabulary)) if most and found is not None else None
        ids_NK, logprobs_NK = ([], []) if best is None else (best.indices.tolist(), best.values.tolist())
        for column, opened in fed:
            assert opened.feed is not None
            top = opened.request.top
            likeliest = (ids_NK[column][:top], logprobs_NK[column][:top]) if top else None
            id, logprob, shift = drawn_3N[:, column].tolist()
            shift = shift if opened.request.shifts else None
            opened.feed.add(int(id), logprob, int(version_N[column]), top=likeliest, shift=shift)
            if now >= opened.feed.due_at:
                opened.feed.due_at = next_at
                opened.feed.more.set()

    def _remove(self, rows: set[int] | list[int]) -> None:
        for source, target, length in self._rows.remove(rows):
            self._open_network().move(source, target, length)

    def _fail(self, cause: str) -> None:
        """Answer all open requests with an error."""
        for opened in (*self._rows.opened, *self._waiting):
            self._answer(opened, cause)
        self._rows.opened.clear()
        self._waiting.clear()

    def _answer(self, opened: OpenRequest, cause: str, kind: type[PolicyError] = PolicyError) -> None:
        if not opened.answer.done() and not opened.answer.get_loop().is_closed():
            opened.answer.set_exception(kind(f"no completion: {cause}."))
