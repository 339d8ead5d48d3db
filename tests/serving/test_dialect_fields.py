"""The fields of each dialect: read into an Ask, accepted with a neutral value only, or refused; and pictures."""

import base64
import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from loomrl.picture import size_of, to_png
from loomrl.serving.body import MOST_JPEGS
from loomrl.serving.call import ChatRequest, Drawing, ToolSpec
from loomrl.serving.dialect.form import schema_form
from loomrl.serving.refusal import Refusal
from loomrl.types import Form
from tests.needs import ROOT
from tests.serving.wires import SCHEMA, WIRES

CHAT, TEXT, RESPONSES, MESSAGES = WIRES
TALKS = (CHAT, RESPONSES, MESSAGES)
PICTURE = to_png(np.full((2, 3, 3), 200, np.uint8))


def jpeg(width: int = 3, height: int = 2) -> bytes:
    made = BytesIO()
    Image.new("RGB", (width, height), (200, 0, 0)).save(made, "JPEG")
    return made.getvalue()


def read(name: str, **more: Any) -> ChatRequest:
    return WIRES[name].dialect.read(WIRES[name].body | WIRES[name].tools | more)


def shown(name: str, picture: bytes, kind: str = "image/png") -> dict[str, Any]:
    """The fields of a conversation with a picture."""
    data = base64.b64encode(picture).decode()
    url = f"data:{kind};base64,{data}"
    field, parts = {
        CHAT: ("messages", [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": url}}]),
        RESPONSES: ("input", [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": url}]),
        MESSAGES: (
            "messages",
            [
                {"type": "text", "text": "a"},
                {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}},
            ],
        ),
    }[name]
    return {field: [{"role": "user", "content": parts}]}


@pytest.mark.parametrize(
    ("name", "fields", "drawing"),
    [
        (CHAT, {"max_tokens": 3, "stop": "a"}, Drawing(max_tokens=3, stop=("a",))),
        (CHAT, {"stop": ["a"] * 64}, Drawing(stop=("a",) * 64)),
        (CHAT, {"max_completion_tokens": 3, "max_tokens": 3, "n": 2}, Drawing(max_tokens=3, n=2)),
        (CHAT, {"temperature": 0, "top_p": 0.5, "seed": -7}, Drawing(temperature=0.0, top_p=0.5, seed=-7)),
        (CHAT, {"logprobs": True, "top_logprobs": 20}, Drawing(logprobs=True, top_logprobs=20)),
        (TEXT, {"stop": ["a", "b"], "n": 2, "best_of": 2}, Drawing(max_tokens=16, stop=("a", "b"), n=2)),
        (TEXT, {"logprobs": 0}, Drawing(max_tokens=16, logprobs=True)),
        (RESPONSES, {"max_output_tokens": 3, "temperature": 2}, Drawing(max_tokens=3, temperature=2.0)),
        (MESSAGES, {"stop_sequences": ["a"], "temperature": 1}, Drawing(max_tokens=9, stop=("a",), temperature=1.0)),
    ],
)
def test_sampling_is_read(name: str, fields: dict[str, Any], drawing: Drawing) -> None:
    assert read(name, **fields).drawing == drawing


NAMED = {"name": "sum", "schema": SCHEMA, "strict": True}
STRICT = schema_form(SCHEMA, strict=True)
ANTHROPIC = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize(
    ("name", "fields", "form"),
    [
        (CHAT, {"response_format": {"type": "json_object"}}, Form("json")),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": NAMED}}, STRICT),
        (
            CHAT,
            {"response_format": {"type": "json_schema", "json_schema": NAMED | {"strict": None}}},
            schema_form(SCHEMA, strict=False),
        ),
        (CHAT, {"guided_regex": "a+"}, Form("regex", "a+")),
        (CHAT, {"guided_choice": ["ja", "é"]}, Form("choice", '["ja", "é"]')),
        (TEXT, {"guided_json": json.dumps(SCHEMA)}, STRICT),
        (TEXT, {"guided_grammar": 'root ::= "a"'}, Form("grammar", 'root ::= "a"')),
        (TEXT, {"structured_outputs": {"json": SCHEMA}}, STRICT),
        (TEXT, {"structured_outputs": {"json_object": True}}, Form("json")),
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}, Form("json")),
        (RESPONSES, {"text": {"format": {"type": "json_schema"} | NAMED}}, STRICT),
        (MESSAGES, {"output_config": {"format": ANTHROPIC}}, STRICT),
        (MESSAGES, {"output_format": ANTHROPIC}, STRICT),
    ],
)
def test_form_of_the_answer_is_read(name: str, fields: dict[str, Any], form: Form) -> None:
    ask = read(name, **fields)
    assert ask.drawing.form == form
    if name == RESPONSES:
        assert ask.shown["text"] == fields["text"]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (CHAT, {"response_format": {"type": "json_object"}, "guided_regex": "a"}),
        (CHAT, {"guided_json": {}, "guided_choice": ["a"]}),
        (TEXT, {"structured_outputs": {"regex": "a"}, "guided_regex": "a"}),
        (MESSAGES, {"output_config": {"format": ANTHROPIC}, "output_format": ANTHROPIC}),
    ],
)
def test_answer_has_one_form(name: str, fields: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="set one of them"):
        read(name, **fields)


@pytest.mark.parametrize("name", TALKS)
def test_tools_are_read(name: str) -> None:
    assert read(name).tools == (ToolSpec(name="add", description="Sum.", parameters=SCHEMA),)
    assert (read(name).tool_choice, read(name).parallel_tool_calls) == ("auto", True)


NEUTRAL = """
chat/completions | frequency_penalty | 2 | 2.1
chat/completions | presence_penalty | -2.0 | "a"
chat/completions | repetition_penalty | 1.1 | 0
chat/completions | logit_bias | {"1": -100} | {"a": 2}
chat/completions | min_p | 1 | 1.1
chat/completions | modalities | ["text"] | ["audio"]
chat/completions | service_tier | "auto" | "flex"
chat/completions | reasoning_effort | "none" | "low"
chat/completions | verbosity | "medium" | "low"
chat/completions | response_format | {"type": "text"} | {"type": "xml"}
chat/completions | structured_outputs | null | {"json": {}, "regex": "a"}
chat/completions | guided_json | "{}" | "no JSON"
chat/completions | guided_choice | null | []
chat/completions | prediction | null | {"type": "content", "content": "a"}
chat/completions | functions | null | []
chat/completions | web_search_options | null | {}
chat/completions | stop | null | [""]
chat/completions | n | 1 | 0
chat/completions | stream_options | null | {"include_usage": true}
chat/completions | top_logprobs | 0 | 1
chat/completions | max_tokens | 1 | 0
completions | suffix | "" | "a"
completions | best_of | 1 | 2
completions | logprobs | 20 | 21
completions | prompt | ["a", [1]] | ["a", []]
completions | prompt | [1, 2] | [1, -2]
completions | prompt | "a" | [true]
responses | conversation | null | "conv_1"
responses | truncation | "disabled" | "auto"
responses | background | false | true
responses | include | ["reasoning.encrypted_content"] | ["file_search_call.results"]
responses | prompt | null | {"id": "p"}
responses | text | {"format": {"type": "text"}} | {"format": {"type": "xml"}}
responses | reasoning | {"effort": null} | {"effort": "low"}
messages | output_config | {} | {"format": {"type": "text"}}
messages | thinking | {"type": "disabled"} | {"type": "enabled", "budget_tokens": 1}
messages | top_k | 5 | -2
messages | temperature | 1 | 1.5
messages | service_tier | "auto" | "batch"
messages | container | null | "c"
messages | mcp_servers | [] | [{"type": "url"}]
messages | cache_control | {"type": "ephemeral"} | {"type": "eternal"}
"""
"""API, field, a value without effect, which is accepted, and another, which is not."""


@pytest.mark.parametrize("row", [*NEUTRAL.strip().splitlines(), f'chat/completions | user | "a" | "{"a" * 257}"'])
def test_field_is_accepted_with_its_neutral_value_only(row: str) -> None:
    name, field, neutral, other = row.split(" | ")
    read(f"/v1/{name}", **{field: json.loads(neutral)})
    with pytest.raises(Refusal) as caught:
        read(f"/v1/{name}", **{field: json.loads(other)})
    assert caught.value.where.startswith(field)


@pytest.mark.parametrize("name", [CHAT, RESPONSES])
def test_caller_may_opt_out_of_being_recorded_and_name_its_user(name: str) -> None:
    ask = read(name, store=False, user="u", metadata={"a": "b"})
    assert (ask.store, ask.user, ask.shown["metadata"]) == (False, "u", {"a": "b"})
    assert read(MESSAGES, metadata={"user_id": "u"}).user == "u"


def test_prompts_of_completions_are_texts_or_ids() -> None:
    assert [read(TEXT, prompt=prompt).prompt for prompt in ("a", ["a"], [1, 2], [[1, 2]])] == ["a", "a", (1, 2), (1, 2)]
    several = read(TEXT, prompt=["a", [1, 2], "b"], n=2)
    assert (several.prompt, several.further, several.choices) == ("a", ((1, 2), "b"), 6)


@pytest.mark.parametrize("name", TALKS)
def test_pictures_are_read_as_png(name: str) -> None:
    (said,) = read(name, **shown(name, PICTURE)).messages
    assert (said.text, said.images) == ("a", (PICTURE,))
    (said,) = read(name, **shown(name, jpeg(), "image/jpeg")).messages
    assert size_of(said.images[0]) == (3, 2)


@pytest.mark.parametrize("name", TALKS)
@pytest.mark.parametrize(
    ("picture", "kind", "message"),
    [
        (b"GIF89a", "image/gif", "not supported"),
        (b"no picture", "image/png", "begins no PNG"),
        (b"no picture", "image/jpeg", "cannot be read"),
        (jpeg(4000, 1000), "image/jpeg", "pixels"),
    ],
    ids=["gif", "broken png", "broken jpeg", "large jpeg"],
)
def test_file_that_is_no_picture_is_refused(name: str, picture: bytes, kind: str, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        read(name, **shown(name, picture, kind))


def test_pictures_are_never_fetched_and_not_too_many() -> None:
    url = {"type": "image_url", "image_url": {"url": "http://example.org/a.png"}}
    with pytest.raises(Refusal, match="not fetched") as caught:
        read(CHAT, messages=[{"role": "user", "content": [url]}])
    assert caught.value.where == "messages.0.content.0.image_url.url"
    (message,) = shown(CHAT, jpeg(), "image/jpeg")["messages"]
    with pytest.raises(Refusal, match="JPEG"):
        read(CHAT, messages=[message] * (MOST_JPEGS + 1))


@pytest.mark.parametrize("name", TALKS)
def test_the_assistant_may_speak_last(name: str) -> None:
    field = "input" if name == RESPONSES else "messages"
    ask = read(name, **{field: [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    is_begun = name == MESSAGES
    assert ([said.text for said in ask.messages], ask.prefill) == (["a"], "b") if is_begun else (["a", "b"], "")
    for wrong in [], [{"role": "assistant", "content": "b"}] if is_begun else []:
        with pytest.raises(Refusal, match="no message"):
            read(name, **{field: wrong})


def test_result_that_is_an_error_says_so() -> None:
    use = {"type": "tool_use", "id": "c", "name": "add", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": [{"type": "text", "text": "No."}]}
    ask = read(MESSAGES, messages=[{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}])
    assert ask.messages[-1].text == "Error: No."


SCRIPTS = Path(__file__).parent / "clients"


def test_table_of_clients_has_the_versions_of_the_tests() -> None:
    files = [ROOT / f"constraints-{name}.txt" for name in ("clients", "frameworks")]
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+)$", "\n".join(file.read_text() for file in files), re.MULTILINE)
    node = json.loads((SCRIPTS / "package.json").read_text())["dependencies"]
    table = (ROOT / "docs/dialects.md").read_text().partition("## Clients")[2]
    clients = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[1:]
    named = [pair for each in clients for pair in re.findall(r"([a-z0-9-]+) (\d[\d.]*\d)", each)]
    assert len(named) > 20
    known = {*pinned, *node.items(), *(("node", version) for version in node.values())}
    known |= {(name.rpartition("-")[0], version) for name, version in pinned}  # as haystack of haystack-ai
    assert {*named} <= known
