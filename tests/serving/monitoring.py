"""A gateway under watch for tests: a policy that says what it is told to, in pieces of any size."""

import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np

from loomrl.config import Sampling
from loomrl.config.monitor import Monitoring
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.policy import Voice
from loomrl.serving.call import ChoiceClosed, Event, PromptOpened, Token, TokenCandidate, ToolCall
from loomrl.serving.measure import Measures
from loomrl.serving.monitor.monitor import Monitor
from loomrl.serving.policy import Continuation, ServedPolicy
from loomrl.serving.recorder import MemoryRecorder
from loomrl.serving.speech import LanguageServedPolicy
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, Endpoint, Role
from loomrl.store.events import EVENTS
from loomrl.store.events import Event as Row
from tests.inference.sample_models import tiny_tokenizer
from tests.serving.local_gateway import FixedView, LocalGateway
from tests.serving.scripted import Speaker, tokens_drawn
from tests.serving.scripted_engine import ScriptedEngine

KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12"


class Says(Speaker):
    """Says the same to everybody, cut at random; every character is a token."""

    def __init__(self, text: str, *, calls: Sequence[ToolCall] = (), version: str = "v", seed: int = 0) -> None:
        self.about = replace(Speaker.about, version=version)
        self.text, self.calls, self._rng = text, tuple(calls), random.Random(seed)
        self.drawn = 0

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        for index in range(continuation.drawing.n):
            yield PromptOpened(index=index, ids_T=np.array([1, 2], np.int32))
            at = 0
            while at < len(self.text):
                part = self.text[at : at + self._rng.choice([1, 1, 2, 3, 7, 40])]
                at += len(part)
                self.drawn += len(part)
                ids = [ord(letter) + 3 for letter in part]
                tokens = tuple(Token(drawn=TokenCandidate(id=1, token=one.encode(), logprob=-0.5)) for one in part)
                yield tokens_drawn(ids, part, index=index, tokens=tokens if continuation.drawing.logprobs else ())
            yield ChoiceClosed(
                index=index, text=self.text, calls=self.calls, finish="tool_calls" if self.calls else "stop"
            )


class Watched(LocalGateway):
    """A gateway with a monitor and a LoomDB. Use it with `async with`."""

    def __init__(self, folder: Path, *policies: ServedPolicy, **settings: Any) -> None:
        stable = Arm(name="stable", policy="stable", share=1.0 if len(policies) == 1 else 1e-9)
        arms = (stable, Arm(name="canary", policy="canary", role=Role.CANARY))[: len(policies)]
        endpoint = Endpoint(name="m", revision=1, arms=arms, created_at=0.0)
        view = FixedView({"m": endpoint}, {arm.name: [policy] for arm, policy in zip(arms, policies, strict=True)})
        self.db: LoomDB = open_store(f"sqlite:///{folder}/loom.db")
        self.recorder = MemoryRecorder()
        self.monitor = Monitor(Monitoring.parse(settings), self.db)
        self.measures = Measures(self.db, view, source="test", settle_s=1e9)
        super().__init__(view, self.recorder, monitor=self.monitor, measures=self.measures)

    async def __aenter__(self) -> Self:
        await self.measures.start()
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        await self.measures.close()
        self.db.close()

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.client.post(path, json={"model": "m", **body})

    async def chat(self, *, session: str = "s", **body: Any) -> httpx.Response:
        messages = body.pop("messages", [{"role": "user", "content": "Hello"}])
        return await self.post(f"/sessions/{session}/v1/chat/completions", messages=messages, **body)

    async def rows(self, kind: str) -> list[Row]:
        await self.monitor.ledger.flush()
        return [event for _, event in EVENTS.read(self.db, kind=kind)]


def speaking(*answers: str) -> LanguageServedPolicy:
    """A language policy with a tokenizer and stop strings, whose engine samples these, one for each choice."""
    chat = ChatTemplate(tiny_tokenizer())
    return LanguageServedPolicy(Voice(ScriptedEngine(chat, answers), chat, Sampling(max_tokens=900), 4000), version="v")


def said(answer: httpx.Response, choice: int = 0) -> str:
    """The text of a whole or streamed answer in any dialect."""
    if answer.headers["content-type"].startswith("application/json"):
        return _whole(answer.json(), choice)
    return "".join(_part(event, choice) for event in _events(answer))


def finish(answer: httpx.Response, choice: int) -> str:
    """The finish reason of a chat's choice."""
    parts = [answer.json()] if answer.headers["content-type"].startswith("application/json") else _events(answer)
    told = [each["finish_reason"] for part in parts for each in part["choices"] if each["index"] == choice]
    (reason,) = [each for each in told if each]
    return str(reason)


def _events(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]


def _whole(body: dict[str, Any], choice: int) -> str:
    if "choices" in body:
        (mine,) = [each for each in body["choices"] if each["index"] == choice]
        return str(mine["text"] if "text" in mine else mine["message"]["content"] or "")
    content = body["content"] if "content" in body else body["output"][0]["content"]
    return "".join(part["text"] for part in content)


def _part(event: dict[str, Any], choice: int) -> str:
    if event.get("choices"):
        mine = [each for each in event["choices"] if each["index"] == choice]
        return "".join(str(each["text"] if "text" in each else each["delta"].get("content") or "") for each in mine)
    if event.get("type") == "content_block_delta":
        return str(event["delta"].get("text", ""))
    return str(event["delta"]) if event.get("type") == "response.output_text.delta" else ""
