"""One contract for all dialects: nothing is ignored, streams equal whole answers, and answers come back equal."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.serving.asgi import DIALECTS, errors_of
from loomrl.serving.body import DEEPEST, MOST_VALUES
from loomrl.serving.call import (
    AnswerChoice,
    ChatAnswer,
    ChoiceClosed,
    Event,
    Heading,
    PromptOpened,
    Token,
    TokenCandidate,
    TokensDrawn,
    ToolCall,
    Usage,
)
from loomrl.serving.refusal import Refusal, RefusalCause
from tests.serving.scripted import tokens_drawn
from tests.serving.wires import WIRES, Wire, as_said, events

NAMES = list(WIRES)
CHATS = [name for name in NAMES if name != "/v1/completions"]
HEADING = Heading(id="0123", created=1.5, model="m", version="run/7", arm="stable", session="s", trajectory="t")
USAGE = Usage(prompt=7, cached=3, completion=5)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 40), 1 << 40) | st.text(max_size=4), st.lists, max_leaves=3
)
calls = st.lists(
    st.builds(
        lambda id, arguments: ToolCall(
            id=f"call_{id}", name="add", arguments=json.dumps(arguments, ensure_ascii=False)
        ),
        st.integers(0, 1 << 40),
        st.dictionaries(st.text(max_size=4), json_values, max_size=3),
    ),
    max_size=3,
    unique_by=lambda call: call.id,
)


@pytest.fixture(params=NAMES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


def drawn(text: str, *, tokens: tuple[Token, ...] = ()) -> TokensDrawn:
    return tokens_drawn([], text, tokens=tokens)


def streamed(wire: Wire, body: dict[str, Any], happened: list[Event]) -> bytes:
    stream = wire.dialect.stream(wire.dialect.read(body | {"stream": True}))
    written = stream.begin(HEADING) + b"".join(map(stream.write, happened))
    return written + stream.finish(USAGE)


def whole(wire: Wire, body: dict[str, Any], closed: ChoiceClosed, tokens: tuple[Token, ...] = ()) -> dict[str, Any]:
    answer = ChatAnswer(heading=HEADING, choices=(AnswerChoice(closed=closed, tokens=tokens),), usage=USAGE)
    made: dict[str, Any] = json.loads(json.dumps(wire.dialect.whole(wire.dialect.read(body), answer)))
    return made


def refused(wire: Wire, body: dict[str, Any]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        wire.dialect.read(body)
    return caught.value


def objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a request, but what is inside a schema."""
    if isinstance(value, dict):
        yield path, value
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        if name not in ("parameters", "input_schema"):
            yield from objects(inner, f"{path}.{name}".removeprefix("."))


def test_every_path_has_its_dialect() -> None:
    assert {dialect.path for dialect in DIALECTS.values()} == set(NAMES)


def test_smallest_request_is_read(wire: Wire) -> None:
    ask = wire.dialect.read(wire.body)
    assert (ask.model, ask.stream, ask.store) == ("m", False, True)
    assert ask.prompt == "1 + 2 =" or [said.text for said in ask.messages] == ["1 + 2?"]


def test_unknown_field_is_refused_by_name_wherever_it_is(wire: Wire) -> None:
    body = wire.body | wire.tools
    paths = [path for path, _ in objects(body)]
    assert paths[0] == ""
    for path in paths:
        changed = copy.deepcopy(body)
        dict(objects(changed))[path]["surprise"] = 1
        refusal = refused(wire, changed)
        where = f"{path}.surprise".removeprefix(".")
        assert (refusal.cause, refusal.where) == (RefusalCause.INVALID, where)
        assert where in json.dumps(wire.dialect.refusal(refusal))


def test_missing_field_is_refused_by_name(wire: Wire) -> None:
    for name in wire.body:
        assert refused(wire, {key: value for key, value in wire.body.items() if key != name}).where == name


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 2.5), ("temperature", "hot"), ("top_p", True), ("stream", "yes"), ("model", ""), ("model", "a\n")],
)
def test_value_that_is_wrong_is_refused_by_name(wire: Wire, field: str, value: Any) -> None:
    assert refused(wire, wire.body | {field: value}).where == field


@pytest.mark.parametrize("value", ["1e999", "NaN", '"\\ud800"', str(1 << 70), '{"\\ud800": 1}'])
def test_what_json_should_not_have_is_refused(wire: Wire, value: str) -> None:
    assert refused(wire, wire.body | {"metadata": {"odd": json.loads(value)}}).where.startswith("metadata")


def test_request_that_is_too_deep_is_refused_before_anything_is_read(wire: Wire) -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    refusal = refused(wire, wire.body | {"metadata": deep})
    assert str(DEEPEST) in str(refusal)
    while isinstance(deep, list):  # or its deletion recurses
        deep = deep[0]


def test_request_of_too_many_values_is_refused(wire: Wire) -> None:
    assert "values" in str(refused(wire, wire.body | {"metadata": [0] * (MOST_VALUES + 1)}))


@settings(max_examples=30)
@given(
    pieces=st.lists(st.text(max_size=5)),
    calls=calls,
    rest=st.text(max_size=5),
    finish=st.sampled_from(["stop", "length"]),
)
@pytest.mark.parametrize("name", NAMES)
def test_deltas_of_a_stream_joined_are_the_whole_answer(
    name: str, pieces: list[str], calls: list[ToolCall], rest: str, finish: Any
) -> None:
    wire = WIRES[name]
    made = tuple(calls) if wire.tools else ()
    closed = ChoiceClosed(text="".join(pieces) + rest, calls=made, finish="tool_calls" if made else finish)
    happened = [PromptOpened(ids_T=np.zeros(0, np.int32)), *map(drawn, pieces), closed]
    body = wire.body | wire.tools
    heard = wire.heard(events(streamed(wire, body, happened)))
    assert heard == wire.said(whole(wire, body, closed))
    assert heard == (closed.text, [(call.id, call.name, call.arguments) for call in made])


@settings(max_examples=30)
@given(text=st.text(max_size=8), calls=calls)
@pytest.mark.parametrize("name", CHATS)
def test_answer_that_a_client_sends_back_is_read_as_what_was_said(name: str, text: str, calls: list[ToolCall]) -> None:
    wire = WIRES[name]
    body = wire.body | wire.tools
    closed = ChoiceClosed(text=text, calls=tuple(calls), finish="tool_calls" if calls else "stop")
    answer = whole(wire, body, closed)
    field, more = wire.again(answer)
    ask = wire.dialect.read(body | {field: [*body[field], *more]})
    _, said, *results, last = ask.messages
    assert said == as_said((text, [(call.id, call.name, call.arguments) for call in calls]))
    assert [(one.role, one.answers, one.text) for one in results] == [("tool", call.id, "3") for call in calls]
    assert (last.role, last.text) == ("user", "And?")


@pytest.mark.parametrize("name", CHATS)
def test_result_of_a_call_that_nobody_made_is_refused(name: str) -> None:
    wire = WIRES[name]
    closed = ChoiceClosed(text="", calls=(ToolCall(id="a", name="add", arguments="{}"),), finish="tool_calls")
    field, (said, *rest) = wire.again(whole(wire, wire.body | wire.tools, closed))
    refusal = refused(wire, wire.body | {field: [*wire.body[field], *rest]})
    assert "'a'" in str(refusal)
    assert said


@pytest.mark.parametrize("name", CHATS)
def test_tool_that_is_chosen_must_be_offered(name: str) -> None:
    wire = WIRES[name]
    choices = {
        "/v1/chat/completions": [{"type": "function", "function": {"name": "mul"}}, "required"],
        "/v1/responses": [{"type": "function", "name": "mul"}, "required"],
        "/v1/messages": [{"type": "tool", "name": "mul"}, {"type": "any"}],
    }[name]
    assert refused(wire, wire.body | wire.tools | {"tool_choice": choices[0]}).where == "tool_choice"
    assert refused(wire, wire.body | {"tool_choice": choices[1]}).where == "tool_choice"
    assert wire.dialect.read(wire.body | wire.tools | {"tool_choice": choices[1]}).tool_choice == "required"
    chosen = json.loads(json.dumps(choices[0]).replace("mul", "add"))
    assert wire.dialect.read(wire.body | wire.tools | {"tool_choice": chosen}).tool_choice == "tool:add"


@pytest.mark.parametrize("cause", [cause.value for cause in RefusalCause])
def test_error_has_the_shape_of_its_api(wire: Wire, cause: str) -> None:
    refusal = Refusal(RefusalCause(cause), "No.", where="messages.0.role")
    for body in (wire.dialect.refusal(refusal), errors_of(f"/sessions/x{wire.name}", anthropic=False)(refusal)):
        error = body["error"]
        assert "messages.0.role: No." in error["message"]
        assert error["type"]
        if wire.name == "/v1/messages":
            assert body["type"] == "error"
        else:
            assert error["param"] == "messages.0.role"


def test_stream_that_breaks_says_why_and_claims_no_end(wire: Wire) -> None:
    stream = wire.dialect.stream(wire.dialect.read(wire.body | {"stream": True}))
    written = (
        stream.begin(HEADING) + stream.write(drawn("Hal")) + stream.write(ChoiceClosed(text="Half", finish="stop"))
    )
    written += stream.fail(Refusal(RefusalCause.UNAVAILABLE, "It is gone."))
    found = events(written)
    assert "It is gone." in json.dumps(found[-1])
    assert b"[DONE]" not in written
    for claim in ('"finish_reason":"stop"', "message_stop", "response.completed"):
        assert claim not in written.decode()


def test_ids_of_answers_have_the_prefix_of_their_api(wire: Wire) -> None:
    prefix = {"/v1/chat/completions": "chatcmpl-", "/v1/completions": "cmpl-", "/v1/responses": "resp_"}
    assert whole(wire, wire.body, ChoiceClosed(text="", finish="stop"))["id"] == prefix.get(wire.name, "msg_") + "0123"


def test_counts_of_tokens_are_told(wire: Wire) -> None:
    usage = whole(wire, wire.body, ChoiceClosed(text="3", finish="stop"))["usage"]
    given = usage.get("prompt_tokens", usage.get("input_tokens", 0))
    cached = usage.get("cache_read_input_tokens", 0)
    assert (given + cached, usage.get("completion_tokens", usage.get("output_tokens"))) == (7, 5)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 1}),
        ("/v1/completions", {"logprobs": 1}),
        ("/v1/responses", {"include": ["message.output_text.logprobs"], "top_logprobs": 1}),
    ],
)
def test_log_probabilities_of_a_stream_joined_are_those_of_the_whole_answer(name: str, more: dict[str, Any]) -> None:
    wire = WIRES[name]
    tokens = tuple(
        Token(
            drawn=TokenCandidate(id=at, token=text, logprob=-at / 2 if at < 2 else -float("inf")),
            top=(TokenCandidate(id=9, token=b"x", logprob=-0.25),),
        )
        for at, text in enumerate([b"a", b"\xc3", b"\xa9"])
    )
    closed = ChoiceClosed(text="aé", finish="stop")
    happened = [drawn("a", tokens=tokens[:1]), drawn("", tokens=tokens[1:2]), drawn("é", tokens=tokens[2:]), closed]
    body = wire.body | more
    assert (wire.dialect.read(body).drawing.logprobs, wire.dialect.read(body).drawing.top_logprobs) == (True, 1)
    found = events(streamed(wire, body, happened))
    answer = whole(wire, body, closed, tokens)
    if name == "/v1/responses":
        deltas = [one for event in found for one in event.get("logprobs", []) if event["type"].endswith("text.delta")]
        assert (
            deltas
            == answer["output"][0]["content"][0]["logprobs"]
            == found[-1]["response"]["output"][0]["content"][0]["logprobs"]
        )
        return
    told = [choice["logprobs"] for event in found for choice in event["choices"] if choice["logprobs"]]
    expected = answer["choices"][0]["logprobs"]
    for field, values in expected.items():
        if values is not None:
            assert [one for part in told for one in part[field]] == values
    assert "-9999.0" in json.dumps(expected)
