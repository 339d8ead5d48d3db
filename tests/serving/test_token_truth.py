"""The record has what the engine saw and drew, id by id, whatever callers do: over HTTP, from a real model."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from loomrl.config import Sampling
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import Completion, CompletionPiece, Pieces, Request
from loomrl.inference.policy import Voice
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.sealed import Sealed
from loomrl.serving.durable import open_recorder
from loomrl.serving.gateway import GatewaySettings
from loomrl.serving.speech import LanguageServedPolicy
from loomrl.types import Trajectory, join_shifts
from tests.inference.sample_models import logprobs, tiny_forms, tiny_model, tiny_tokenizer
from tests.serving.local_gateway import LocalGateway

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("one_thread")]
CONTEXT = 250
TOOLS = [{"type": "function", "function": {"name": "f", "description": "Of é.", "parameters": {"type": "object"}}}]
Drawn = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...], tuple[int, ...], tuple[float, ...]]
"""Context, ids, log-probabilities, versions, shifts."""


@dataclass
class Logged:
    """An engine that writes down every request and what it drew for it."""

    engine: TorchEngine
    log: list[tuple[Request, list[CompletionPiece]]] = field(default_factory=list)

    @property
    def version(self) -> int:
        return self.engine.version

    async def generate(self, request: Request) -> Completion:
        raise NotImplementedError

    async def stream(self, request: Request) -> Pieces:
        pieces: list[CompletionPiece] = []
        self.log.append((request, pieces))
        async for piece in self.engine.stream(request):
            pieces.append(piece)
            yield piece

    async def load(self, sealed: Sealed) -> None:
        await self.engine.load(sealed)

    async def close(self) -> None:
        await self.engine.close()

    def drawn(self) -> Iterator[Drawn]:
        for request, pieces in self.log:
            ids, logps, versions = (
                tuple(number for piece in pieces for number in getattr(piece, name).tolist())
                for name in ("ids_T", "logprobs_T", "versions_T")
            )
            shifts_T = join_shifts((piece.ids_T, piece.shifts_T) for piece in pieces)
            if ids:
                yield tuple(request.prompt_T.tolist()), ids, logps, versions, shifts_of(shifts_T)


def shifts_of(shifts_T: np.ndarray | None) -> tuple[float, ...]:
    return () if shifts_T is None else tuple(shifts_T.tolist())


@dataclass
class Client:
    """A caller who does everything that callers do."""

    http: httpx.AsyncClient
    rng: random.Random
    session: str

    async def live(self) -> None:
        """A session: conversations that grow, are edited, tried again, forked into parallel ones."""
        conversations: list[list[dict[str, Any]]] = [[self._message()]]
        tools = self.rng.random() < 0.3
        for _ in range(self.rng.randint(2, 5)):
            each = self.rng.choice(conversations)
            if self.rng.random() < 0.25:  # parallel calls of sub-agents, or a retry
                both = [self._say(each, tools=tools), self._say(each, tools=tools)]
                answers = [one for one in await asyncio.gather(*both) if one]
            else:
                answers = [one for one in [await self._say(each, tools=tools)] if one]
            for answer in answers[0] if answers else []:
                conversations.append([*each, answer, self._message()])
            if self.rng.random() < 0.2 and len(each) > 1:
                edited = [dict(message) for message in each]
                edited[self.rng.randrange(len(edited))]["content"] = self._text()
                conversations.append(edited)

    async def _say(self, messages: list[dict[str, Any]], *, tools: bool) -> list[dict[str, Any]] | None:
        rng = self.rng
        body: dict[str, Any] = {"model": "m", "messages": messages, "max_tokens": rng.choice([1, 3, 8, 40])}
        body["temperature"] = rng.choice([0.7, 1.0])
        if tools:
            body |= {"tools": TOOLS, "tool_choice": rng.choice(["auto", "auto", "required"])}
        if rng.random() < 0.3:
            body["stop"] = rng.choice([["e"], ["a", " t"], ["é"]])
        elif rng.random() < 0.3 and not tools:
            body["guided_choice"] = ["a", "é <", "漢🙂"]
        if rng.random() < 0.2:
            body["n"] = 2
        body["stream"] = stream = rng.random() < 0.5 and "n" not in body and not tools
        path = f"/sessions/{self.session}/v1/chat/completions"
        answer = await self.http.post(path, json=body)
        if answer.status_code == 400:
            assert answer.json()["error"]["code"] == "context_length_exceeded", answer.text
            return None
        assert answer.status_code == 200, answer.text
        if not stream:
            found = [choice["message"] for choice in answer.json()["choices"]]
            return [{k: v for k, v in each.items() if k in ("role", "content", "tool_calls") and v} for each in found]
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"].get("content") or "" for line in lines for choice in json.loads(line)["choices"]]
        return [{"role": "assistant", "content": "".join(deltas)}]

    def _message(self) -> dict[str, Any]:
        return {"role": "user", "content": self._text()}

    def _text(self) -> str:
        return "".join(self.rng.choices("ab <é漢🙂\n|>", k=self.rng.randint(1, 6)))


def recorded(trajectory: Trajectory) -> Iterator[Drawn]:
    """Every answer in a trajectory's threads."""
    for turns in (trajectory.turns, *trajectory.threads):
        ids: list[int] = []
        for turn in turns:
            assert turn.tokens is not None
            tokens = turn.tokens
            new = int(tokens.mask_T.argmax()) if tokens.mask_T.any() else len(tokens)
            context = (*ids, *tokens.ids_T[:new].tolist())
            if tokens.mask_T.any():
                assert tokens.mask_T[new:].all()
                columns = (tokens.ids_T[new:], tokens.logprobs_T[new:], tokens.versions_T[new:])
                shifts = shifts_of(None if tokens.shifts_T is None else tokens.shifts_T[new:])
                yield (context, *(tuple(column.tolist()) for column in columns), shifts)  # type: ignore[misc]
            ids += tokens.ids_T.tolist()


async def lived(folder: Path, count: int, *, seed: int = 0) -> tuple[Logged, list[Trajectory]]:
    """That many sessions, 16 at a time, and their trajectories."""
    forms = tiny_forms()
    logged = Logged(TorchEngine(tiny_model(), slots=32, context=CONTEXT, version=3, forms=forms))
    speech = LanguageServedPolicy(Voice(logged, ChatTemplate(tiny_tokenizer()), Sampling(), CONTEXT), version="r/3")
    recorder = open_recorder(f"sqlite:///{folder}/loom.db")
    many = asyncio.Semaphore(16)
    gateway = LocalGateway({"m": speech}, recorder, settings=GatewaySettings(deadline_s=100))
    async with gateway, httpx.AsyncClient(base_url=gateway.url, timeout=100) as http:

        async def one(number: int) -> Trajectory | None:
            async with many:
                await Client(http, random.Random(f"{seed} {number}"), f"s{number}").live()
                answer = await http.post(f"/sessions/s{number}/complete", json={"reward": 1.0})
                return None if answer.status_code == 404 else await recorder.complete(f"s{number}", reward=1.0)

        found = await asyncio.gather(*map(one, range(count)))
    forms.close()
    return logged, [each for each in found if each is not None]


def begins(drawn: Drawn, kept: Drawn) -> bool:
    """True if what was drawn begins with what was kept, in the same context."""
    return drawn[0] == kept[0] and all(
        more[: len(column)] == column for more, column in zip(drawn[1:], kept[1:], strict=True)
    )


async def check(folder: Path, count: int) -> None:
    logged, trajectories = await lived(folder, count)
    drawn = Counter(logged.drawn())
    kept = Counter(each for t in trajectories for each in recorded(t))
    assert any(max(shifts, default=0) > 1 for *_, shifts in kept), "forms shift odds"
    assert kept.total() == drawn.total()
    further = list((drawn - kept).elements())
    for answer in (kept - drawn).elements():  # a text ended it, and the rest of its last piece is no part of it
        further.remove(next(one for one in further if begins(one, answer)))
    assert len(further) == 0 < (kept & drawn).total()
    assert sum(bool(t.threads) for t in trajectories) > count // 3
    for request, pieces in random.Random(0).sample([pair for pair in logged.log if pair[1]], min(50, count)):
        ids = np.concatenate([piece.ids_T for piece in pieces])
        logps = np.concatenate([piece.logprobs_T for piece in pieces])
        assert np.allclose(logprobs(logged.engine._open_network().model, request, ids), logps, atol=1e-4)


async def test_every_recorded_id_is_the_engines_own(tmp_path: Path) -> None:
    await check(tmp_path, 24)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_every_recorded_id_of_a_thousand_sessions_is_the_engines_own(tmp_path: Path) -> None:
    await check(tmp_path, 1000)


CLIENTS, SWAPS = 16, 20
