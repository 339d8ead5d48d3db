"""Random sessions: what is recorded is what the engine drew, each token once, in every kind of recorder."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loomrl.safety.redaction import NoRedactor
from loomrl.serving.call import ChatMessage, ChatRequest, Drawing, ToolSpec
from loomrl.serving.durable import StoreSettings, open_recorder
from loomrl.serving.recorder import MemoryRecorder, Recorder
from loomrl.serving.recording.record import CallToRecord
from loomrl.types import Tokens, Trajectory, joined
from tests.serving.scripted import Desk, Script, reply, user

TOOLS = ((), (ToolSpec(name="find"),), (ToolSpec(name="find"), ToolSpec(name="add", parameters={"type": "object"})))
WORDS = ["go on", "ähm 漢字 🙂", "", " spaces ", "\u200bzero", "e\u0301", '{"json": [1]}', "[assistant:", "x" * 300]


class Agent:
    """Somebody's agent: it keeps its own conversation, and does what agents do to conversations."""

    def __init__(self, desk: Desk, session: str, rng: random.Random) -> None:
        self.desk, self.session, self.rng = desk, session, rng
        self.tools = rng.choice(TOOLS)
        self.messages: tuple[ChatMessage, ...] = (
            ChatMessage(role="system", text="be " + rng.choice(WORDS)),
            self._user(),
        )

    async def run(self, turns: int, *, depth: int = 0) -> None:
        for _ in range(turns):
            await self._turn()
            if depth < 2 and self.rng.random() < 0.2:
                others = [self._sub() for _ in range(self.rng.randint(1, 3))]
                await asyncio.gather(*(other.run(self.rng.randint(1, 3), depth=depth + 1) for other in others))
            if self.rng.random() < 0.2:
                self._meddle()

    def _sub(self) -> "Agent":
        """A sub-agent: it begins from nothing, or from the whole conversation so far."""
        other = Agent(self.desk, self.session, self.rng)
        if self.rng.random() < 0.5:
            other.tools, other.messages = self.tools, (*self.messages, self._user())
        return other

    async def _turn(self) -> None:
        n = self.rng.choice([1, 1, 1, 2, 3])
        asked = ChatRequest(model="m", messages=self.messages, tools=self.tools, drawing=Drawing(n=n))
        await asyncio.sleep(0)
        call = await self.desk.call(self.session, asked)
        if self.rng.random() < 0.15:  # it never got the answer, and asks again
            call = await self.desk.call(self.session, asked)
        if self.rng.random() < 0.15:  # the gateway kept it twice
            await self.desk.recorder.keep(call)
        said = reply(call, self.rng.randrange(n), id=f"own{self.rng.random()}")
        results = tuple(ChatMessage(role="tool", text=self.rng.choice(WORDS), answers=one.id) for one in said.calls)
        self.messages = (*self.messages, said, *(results or (self._user(),)))

    def _meddle(self) -> None:
        """An edit of something earlier, a shorter memory, other tools, or the way back."""
        kind, at = self.rng.randrange(4), self.rng.randrange(len(self.messages))
        if kind == 0:
            edited = replace(self.messages[at], text=self.messages[at].text + "!")
            self.messages = (*self.messages[:at], edited, *self.messages[at + 1 :])
        elif kind == 1:
            self.messages = (self.messages[0], *self.messages[-2:])
        elif kind == 2:
            self.tools = self.rng.choice(TOOLS)
        else:
            self.messages = (*self.messages[: max(at, 1)], self._user())

    def _user(self) -> ChatMessage:
        return user(self.rng.choice(WORDS))


def spans(tokens: Tokens) -> list[tuple[int, int]]:
    """Beginning and end of each sampled run of a thread, split where given tokens lie between."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], tokens.mask_T.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def check(made: Trajectory, script: Script) -> None:
    """Every sampled run is one of the engine's log, with exactly its context; and all of the log is there, once."""
    logged = sorted((one.context, one.ids, one.logprobs, one.versions) for one in script.log)
    found = []
    for turns in made.sequences:
        tokens = joined(turns)
        assert tokens is not None
        for begin, end in spans(tokens):
            ids, columns = tokens.ids_T.tolist(), slice(begin, end)
            drawn = (tokens.logprobs_T[columns].tolist(), tokens.versions_T[columns].tolist())
            found.append((tuple(ids[:begin]), tuple(ids[begin:end]), *map(tuple, drawn)))
        assert not tokens.logprobs_T[~tokens.mask_T].any()
        assert (tokens.versions_T[~tokens.mask_T] == -1).all()
    assert sorted(found) == logged


async def play(recorder: Recorder, seed: int, other: Recorder | None = None) -> tuple[Trajectory, Script]:
    rng = random.Random(seed)
    desk = Desk(recorder, Script(rng))
    agents = [Agent(desk, f"s{seed}", rng) for _ in range(rng.choice([1, 1, 2]))]
    await asyncio.gather(*(agent.run(rng.randint(1, 5)) for agent in agents))
    if other is not None:  # the front sends the rest to another gateway
        desk.recorder = other
        await asyncio.gather(*(agent.run(rng.randint(1, 3)) for agent in agents))
    return await desk.recorder.complete(f"s{seed}", reward=1.0, success=1.0), desk.policy


async def truth_in_memory(seeds: range) -> None:
    recorder = MemoryRecorder()
    for seed in seeds:
        check(*await play(recorder, seed))


async def truth_in_a_store(url: str, seeds: range) -> None:
    """Two processes with little memory on one database."""
    settings = StoreSettings(most_sessions=2, most_bytes=20_000)
    one, other = (open_recorder(url, redactor=NoRedactor(), settings=settings) for _ in range(2))
    for seed in seeds:
        check(*await play(one, seed, other))
    await one.close()
    await other.close()


async def test_recorded_ids_are_the_engines_in_memory() -> None:
    await truth_in_memory(range(110))


async def test_recorded_ids_are_the_engines_in_a_database_with_two_gateways(sqlite_url: str) -> None:
    await truth_in_a_store(sqlite_url, range(1000, 1040))


@pytest.mark.slow
async def test_recorded_ids_are_the_engines_in_a_thousand_sessions(tmp_path: Path) -> None:
    await truth_in_memory(range(10_000, 11_000))
    await truth_in_a_store(f"sqlite:///{tmp_path}/loom.db", range(20_000, 20_200))


def conversation_of(call: CallToRecord) -> tuple[ChatMessage, ...]:
    return (*call.ask.messages, reply(call))


async def test_a_text_that_was_sampled_is_never_tokenised_again() -> None:
    """The answer's tokens differ from those of its text; the continuation has the sampled ones."""
    desk = Desk(MemoryRecorder(), Script(random.Random(3)))
    first = await desk.call("s", ChatRequest(model="m", messages=(user("a"),)))
    odd = replace(first.choices[0], ids_T=first.choices[0].ids_T + 7_000_000)
    await desk.recorder.keep(replace(first, id="odd", session="t", choices=(odd,)))
    again = ChatRequest(model="m", messages=(*conversation_of(first), user("b")))
    known = await desk.recorder.find_beginning("t", again)
    assert known is not None
    assert known.ids_T.tolist() == [*first.choices[0].opened_T.tolist(), *odd.ids_T.tolist()]
