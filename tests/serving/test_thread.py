"""The answer that a conversation continues."""

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loomrl.hub.codec import encode
from loomrl.serving.call import ChatMessage, ToolCall, ToolSpec
from loomrl.serving.durable import open_recorder
from loomrl.serving.recorder import MemoryRecorder, Recorder
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.thread import marks
from tests.serving.scripted import Desk, Script, ask, reply, user


@pytest.fixture(params=["memory", "durable"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """The contract: in memory, and in a database."""
    recorder: Recorder = MemoryRecorder()
    if request.param == "durable":
        recorder = open_recorder(request.getfixturevalue("sqlite_url"))
    yield Desk(recorder, Script(random.Random(0)))
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


async def test_what_was_edited_begins_anew(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    for other in ("A", "a "):
        edited = await desk.call("s", ask(user(other), reply(first), user("b")))
        assert edited.parent == ""
    changed = await desk.call("s", ask(user("a"), ChatMessage(role="assistant", text="no"), user("b")))
    assert changed.parent == ""
    made = await desk.recorder.complete("s")
    assert len(made.threads) == 3


async def test_other_tools_begin_anew(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    second = await desk.call("s", ask(user("a"), reply(first), user("b"), tools=(ToolSpec(name="t"),)))
    assert second.parent == ""


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


async def test_a_call_is_kept_once(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    await desk.recorder.keep(first)
    made = await desk.recorder.complete("s")
    assert len(made.turns) == 1
    assert not made.threads


async def test_a_session_is_nobody_elses(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    stranger = Desk(desk.recorder, desk.policy, key="other")
    for attempt in (
        stranger.recorder.find_beginning("s", ask(user("a")), key="other"),
        stranger.recorder.keep(replace(first, id="x", key="other")),
        stranger.recorder.complete("s", key="other"),
        stranger.recorder.complete("never", key="other"),
    ):
        with pytest.raises(Refusal) as refused:
            await attempt
        assert refused.value.cause is RefusalCause.UNKNOWN


async def test_an_ended_session_takes_no_calls_and_no_other_end(desk: Desk) -> None:
    first = await desk.call("s", ask(user("a")))
    made = await desk.recorder.complete("s", reward=0.5)
    assert encode(await desk.recorder.complete("s", reward=0.5)) == encode(made)
    for attempt in (
        desk.recorder.find_beginning("s", ask(user("a"))),
        desk.recorder.keep(replace(first, id="x")),
        desk.recorder.complete("s", reward=0.6),
    ):
        with pytest.raises(Refusal) as refused:
            await attempt
        assert refused.value.cause is RefusalCause.CONFLICT


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
    with pytest.raises(Refusal) as refused:
        await desk.recorder.complete("s")
    assert refused.value.cause is RefusalCause.UNKNOWN


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
    with pytest.raises(Refusal) as refused:
        await desk.recorder.complete("s", **told)
    assert refused.value.cause is RefusalCause.INVALID
    assert (await desk.recorder.complete("s", reward=1.0)).reward.total == 1.0
