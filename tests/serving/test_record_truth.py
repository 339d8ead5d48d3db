"""Random sessions: what is recorded is what the engine drew, each token once, in every kind of recorder."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loomrl.hub.codec import encode
from loomrl.safety.redaction import NoRedactor
from loomrl.serving.call import ChatMessage, ChatRequest, Drawing, ToolCall, ToolSpec
from loomrl.serving.durable import StoreSettings, open_recorder
from loomrl.serving.recorder import MemoryRecorder, Recorder
from loomrl.serving.recording.record import CallToRecord
from loomrl.serving.refusal import RefusalCause
from loomrl.serving.thread import marks
from loomrl.types import Source, Tokens, Trajectory, joined
from tests.serving.scripted import Desk, Script, ask, reply, user
from tests.serving.waiting import refuses

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
    await truth_in_memory(range(40))


async def test_recorded_ids_are_the_engines_in_a_database_with_two_gateways(sqlite_url: str) -> None:
    await truth_in_a_store(sqlite_url, range(1000, 1012))


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


@pytest.fixture(params=["memory", "durable"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """The contract: in memory, and in a database."""
    recorder: Recorder = MemoryRecorder(source=Source.PRODUCTION)
    if request.param == "durable":
        recorder = open_recorder(request.getfixturevalue("sqlite_url"))
    yield Desk(recorder)
    await recorder.close()


async def test_a_conversation_continues_its_own_ids(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    second = await desk.call("s", ask(user("a"), reply(first), user("b")))
    assert second.parent == f"{first.id}/0"
    made = await desk.recorder.complete("s", reward=1.0, success=1.0)
    tokens = made.tokens
    assert tokens is not None
    assert not made.threads
    log = desk.policy.log[1]
    assert tuple(tokens.ids_T) == log.context + log.ids


async def test_what_was_edited_or_has_other_tools_begins_anew(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    for other in ("A", "a "):
        edited = await desk.call("s", ask(user(other), reply(first), user("b")))
        assert edited.parent == ""
    changed = await desk.call("s", ask(user("a"), ChatMessage(role="assistant", text="no"), user("b")))
    assert changed.parent == ""
    tools = await desk.call("s", ask(user("a"), reply(first), user("b"), tools=(ToolSpec(name="t"),)))
    assert tools.parent == ""
    made = await desk.recorder.complete("s")
    assert len(made.threads) == 4


async def test_the_second_continuation_forks_and_its_prefix_is_not_learnt(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    asked = ask(user("a"), reply(first), user("b"))
    second, retried = await desk.call("s", asked), await desk.call("s", asked)
    assert second.parent == retried.parent == f"{first.id}/0"
    made = await desk.recorder.complete("s")
    ((turn,),) = made.threads
    assert turn.tokens is not None
    drawn = len(retried.choices[0].ids_T)
    assert turn.tokens.mask_T.tolist() == [False] * (len(turn.tokens) - drawn) + [True] * drawn
    assert [message.role for message in turn.observation] == ["user", "assistant", "user"]
    log = desk.policy.log[2]
    assert tuple(turn.tokens.ids_T) == log.context + log.ids


async def test_each_choice_of_a_call_is_learnt_once(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a"), n=3))
    second = await desk.call("s", ask(user("a"), reply(first, 1), user("b")))
    assert second.parent == f"{first.id}/1"
    made = await desk.recorder.complete("s")
    assert [len(turns) for turns in made.sequences] == [1, 2, 1]
    drawn = [turn.tokens.mask_T.sum() for turns in made.sequences for turn in turns if turn.tokens]
    assert sum(drawn) == sum(len(log.ids) for log in desk.policy.log)


async def test_of_equal_answers_the_one_that_nobody_continued_is_continued(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    again = replace(first, id="again")
    await desk.recorder.keep(again)
    followed = ask(user("a"), reply(first), user("b"))
    parents = {(await desk.call("s", followed)).parent for _ in range(2)}
    assert parents == {f"{first.id}/0", "again/0"}


async def test_a_session_is_nobody_elses(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    stranger = Desk(desk.recorder, desk.policy, key="other")
    for attempt in (
        stranger.recorder.find_beginning("s", ask(user("a")), key="other"),
        stranger.recorder.keep(replace(first, id="x", key="other")),
        stranger.recorder.complete("s", key="other"),
        stranger.recorder.complete("never", key="other"),
    ):
        with refuses(RefusalCause.UNKNOWN):
            await attempt


async def test_an_ended_session_takes_no_calls_and_no_other_end(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    made = await desk.recorder.complete("s", reward=0.5)
    assert encode(await desk.recorder.complete("s", reward=0.5)) == encode(made)
    for attempt in (
        desk.recorder.find_beginning("s", ask(user("a"))),
        desk.recorder.keep(replace(first, id="x")),
        desk.recorder.complete("s", reward=0.6),
    ):
        with refuses(RefusalCause.CONFLICT):
            await attempt


def test_marks_do_not_depend_on_ids_of_calls_but_on_which_call_is_answered() -> None:
    def conversation(one: str, two: str, answered: str, arguments: str = '{"x":1}') -> bytes:
        calls = (ToolCall(id=one, name="f", arguments=arguments), ToolCall(id=two, name="f", arguments="{}"))
        said = ChatMessage(role="assistant", text=" t ", calls=calls)
        return marks(ask(user("a"), said, ChatMessage(role="tool", text="r", answers=answered)))[-1]

    assert conversation("1", "2", "1") == conversation("p", "q", "p") == conversation("1", "2", "1", '{ "x": 1 }')
    assert conversation("1", "2", "1") != conversation("1", "2", "2")
    assert conversation("1", "2", "1") != conversation("1", "2", "1", '{"x":2}')


async def test_pictures_keep_their_places(desk: Desk) -> None:
    first = await desk.answered("s", ask(ChatMessage(role="user", text="a", images=(b"png",))), None)
    seen = replace(first, choices=(replace(first.choices[0], sights=(1,)),))
    await desk.recorder.keep(seen)
    known = await desk.recorder.find_beginning("s", ask(*first.ask.messages, reply(first), user("b")))
    assert known is not None
    assert [(p.png, p.start) for p in known.pictures] == [(b"png", 1)]
    assert np.array_equal(known.ids_T, np.concatenate([first.choices[0].opened_T, first.choices[0].ids_T]))


async def test_who_opts_out_is_not_recorded(desk: Desk) -> None:
    asked = replace(ask(user("a")), store=False)
    assert not await desk.recorder.takes("end", asked)
    await desk.call("s", asked)
    with refuses(RefusalCause.UNKNOWN):
        await desk.recorder.complete("s")


async def test_the_session_of_who_names_none_is_found_by_the_conversation(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    followed = ask(user("a"), reply(first), user("b"))
    assert await desk.recorder.session_of("key", followed) == "s"
    assert await desk.recorder.session_of("other", followed) is None
    assert await desk.recorder.session_of("key", ask(user("a"))) is None
    await desk.recorder.complete("s")
    assert await desk.recorder.session_of("key", followed) is None


@pytest.mark.parametrize("told", [{"reward": float("nan")}, {"success": 1.5}, {"outcome": {"x": {1}}}])
async def test_an_end_that_is_no_end_is_refused(desk: Desk, told: dict[str, Any]) -> None:
    await desk.call("s", ask(user("a")))
    with refuses(RefusalCause.INVALID):
        await desk.recorder.complete("s", **told)
    assert (await desk.recorder.complete("s", reward=1.0)).reward.total == 1.0
