import json
from typing import Any

import pytest
from event_samples import foreign_event
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loomrl.bus.agent import hub_name
from loomrl.bus.clean import cleaned
from loomrl.bus.event import TRAJECTORY
from loomrl.bus.foreign import trajectory_from
from loomrl.bus.outgoing import trajectory_event
from loomrl.hub.codec import decode, encode
from loomrl.safety.redaction import PatternRedactor
from loomrl.store import beside
from loomrl.types import End, Failure, Message, Reward, Source, Task, Trajectory, Turn

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz012345"


def parsed(event: dict[str, Any]) -> Any:
    return TRAJECTORY.parse(json.dumps(event).encode())


def taken_in(event: dict[str, Any]) -> Trajectory:
    clean, _ = cleaned(parsed(event), PatternRedactor())
    return trajectory_from(clean)


def test_a_foreign_trajectory_is_text_without_tokens_with_the_agent_as_environment_and_the_domain_as_family() -> None:
    event = foreign_event()
    made = taken_in(event)
    assert (made.id, made.group, made.source, made.end) == (
        event["trajectory_id"],
        event["trajectory_id"],
        Source.FOREIGN,
        End.TERMINATED,
    )
    assert (made.task.environment, made.task.version, made.task.family) == ("zero", "their-model", "data_analysis")
    assert made.finished_at - made.started_at == 60
    assert made.tokens is None
    assert made.turns == (
        Turn(
            (Message("system", "Help the shop."), Message("user", "Which orders are late?")),
            '<tool_call>\n{"name": "orders", "arguments": {"late": true}}\n</tool_call>',
        ),
        Turn((Message("tool", '{"orders":[4711]}'),), "Done."),
    )
    rest = made.extra["foreign"]
    assert (rest["session"], rest["agent"], rest["profile"]) == ("session 1", "zero", "developer")
    assert rest["turns"][0] | {"at": 0} == {
        "number": 1,
        "at": 0,
        "observation": "user_message",
        "action": "tool_call",
        "success": True,
        "tool": "orders",
        "thoughts": ["The orders are in a table."],
        "ms": 12.5,
    }
    assert decode(encode(made)) == made


def turn(number: int, seen: str, content: Any, action: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {
        "turn_id": number,
        "timestamp": "2026-01-31T12:00:00Z",
        "observation": {"type": seen, "content": content},
        "action": action,
        "result": {"success": True, **result},
    }


def test_a_result_that_the_next_observation_does_not_show_is_shown_before_it() -> None:
    call, answer = {"type": "tool_call", "tool_name": "f", "raw_response": "I call f."}, {"type": "response"}
    turns = [
        turn(1, "user_message", "Help the shop.", call, {"output": None, "error": "no such order"}),
        turn(2, "user_message", "And now?", answer, {"output": "Nothing."}),
        turn(3, "system_message", "end", {"type": "memory_update", "tool_args": {"k": 1}}, {"output": "kept"}),
    ]
    made = taken_in(foreign_event(turns=turns))
    assert made.turns == (
        Turn((Message("user", "Help the shop."),), "I call f."),
        Turn((Message("tool", "no such order"), Message("user", "And now?")), "Nothing."),
        Turn(
            (Message("system", "end"),),
            '<tool_call>\n{"name": "memory_update", "arguments": {"k": 1}}\n</tool_call>',
        ),
    )
    assert made.extra["foreign"]["turns"][-1]["output"] == "kept"
    assert made.extra["foreign"]["turns"][0]["error"] == "no such order"


def test_a_call_that_the_raw_response_does_not_show_is_appended() -> None:
    call = {"type": "tool_call", "tool_name": "orders", "tool_args": {}, "raw_response": "Let me look."}
    made = taken_in(foreign_event(turns=[turn(1, "user_message", "?", call, {})]))
    assert made.turns[0].action == 'Let me look.\n<tool_call>\n{"name": "orders", "arguments": {}}\n</tool_call>'


def test_secrets_are_gone_from_every_text_and_from_what_is_named_like_one() -> None:
    event = foreign_event(says=f"The key is {KEY}.", session_id="bob@example.com")
    first = event["turns"][0]
    first["observation"]["content"] = {"ask": f"use {KEY}"}
    first["thought_process"] = [f"Their mail is bob@example.com, {KEY}"]
    first["action"]["tool_args"] = {"password": "correct horse", "deep": [{"x": KEY}]}
    first["result"]["error"] = f"401 {KEY}"
    first["observation"]["context"] = {"memory_state": {"api_key": "a1b2c3d4e5"}, "further": KEY}
    event["task_context"] |= {"instructions": f"Help. {KEY}", "note": KEY}
    event["metadata"]["model"] = f"m {KEY}"
    made = taken_in(event)
    stored = encode(made)
    for secret in (KEY, "bob@example.com", "correct horse", "a1b2c3d4e5"):
        assert secret.encode() not in stored
    assert '"password": "<password-1>"' in made.turns[0].action
    assert made.turns[1].action == "The key is <key-1>."
    assert made.id == event["trajectory_id"]


def test_equal_events_become_equal_bytes() -> None:
    event = foreign_event()
    shuffled = dict(reversed(list(event.items())))
    assert encode(taken_in(event)) == encode(taken_in(shuffled))


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
MESSAGES = st.builds(Message, st.sampled_from(["user", "tool", "assistant", "system"]), TEXTS, st.just(()))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.lists(MESSAGES, min_size=1, max_size=3), TEXTS), min_size=1, max_size=3))
def test_what_we_publish_another_store_takes_in_with_the_same_messages_and_actions(parts: Any) -> None:
    turns = tuple(Turn(tuple(messages), f"say {text}") for messages, text in parts)
    first, *rest = turns[0].observation
    assume(first.role != "system" or all(first.content != message.content for message in rest))
    ours = Trajectory(
        id="a session",
        task=Task("shop", "run/1", "session", 1, 0),
        turns=turns,
        end=End.TERMINATED,
        reward=Reward(),
        group="a session",
        source=Source.PRODUCTION,
        started_at=1_700_000_000.0,
        finished_at=1_700_000_060.0,
    )
    event = trajectory_event(ours)
    theirs = trajectory_from(TRAJECTORY.parse(TRAJECTORY.encode(event)))
    assert [turn.action for turn in theirs.turns] == [turn.action for turn in turns]
    shown = [message for turn in theirs.turns for message in turn.observation]
    assert shown == [message for turn in turns for message in turn.observation]


def test_calls_and_failures_of_ours_are_told_and_a_control_session_is_no_event() -> None:
    call = '<tool_call>\n{"name": "orders", "arguments": {"late": true}}\n</tool_call>'
    ours = Trajectory(
        id="s",
        task=Task("shop", "run/1", "session", 1, 0),
        turns=(Turn((Message("user", "?"),), call), Turn((Message("tool", "4711"),), "4711 is late.")),
        end=End.FAILED,
        failure=Failure("policy", "Timeout", "too late"),
        reward=Reward(),
        group="s",
    )
    event = trajectory_event(ours)
    first, last = event["turns"]
    assert (first["action"]["type"], first["action"]["tool_name"]) == ("tool_call", "orders")
    assert first["action"]["tool_args"] == {"late": True}
    assert first["result"] == {"success": True, "output": "4711"}
    assert (last["action"]["type"], last["result"]) == ("response", {"success": False, "error": "too late"})
    control = Trajectory(id="c", task=ours.task, turns=(), end=End.TERMINATED, reward=Reward(), group="c")
    assert trajectory_event(control) is None


@pytest.mark.parametrize("agent", ["zero", "a b", "", "../../etc", "x" * 400, "é", "agent\0", "UPPER.case-1_2"])
def test_every_agent_has_a_name_that_a_file_and_a_schema_can_have(agent: str) -> None:
    name = hub_name(agent)
    assert "/" not in beside("sqlite:///loom.db", name).removeprefix("sqlite:///")
    assert name == hub_name(agent)
    assert (name == f"agent-{agent}") is (agent in ("zero", "UPPER.case-1_2"))


def test_agents_whose_names_differ_in_what_is_replaced_have_different_hubs() -> None:
    assert len({hub_name(agent) for agent in ("a b", "a/b", "a  b", "a-b")}) == 4


# -- events without secrets, also without those that are said over two messages ----------------------------------------


SAID = st.sampled_from(
    ["ada@example.org", "password=hunter2-x9", "my PIN is 4711", "+49 30 1234567", "order 31877", ""]
)


@given(SAID, SAID, st.dictionaries(st.sampled_from(["note", "content"]), st.integers() | st.none(), max_size=2))
def test_an_event_changes_only_where_something_was_found(says: str, asks: str, found: dict[str, Any]) -> None:
    event = foreign_event(says=says)
    event["turns"][0]["observation"]["content"] = asks
    event["turns"][0]["action"]["tool_args"] = found
    before = parsed(event)
    after, kinds = cleaned(before, PatternRedactor())
    assert (after == before) is (kinds == ())
    assert bool(kinds) is any(PatternRedactor().find(text) for text in (says, asks))


def test_both_halves_of_a_secret_leave_an_event() -> None:
    event = foreign_event(says="And what is the rest?")
    event["turns"][0]["observation"]["content"] = "The first half of the password is Korb7x"
    event["turns"][1]["observation"]["content"] = "and the second half is Lampe3"
    clean, kinds = cleaned(parsed(event), PatternRedactor())
    assert kinds
    assert not {"Korb7x", "Lampe3"} & set(json.dumps(clean, default=str).replace('"', " ").split())
