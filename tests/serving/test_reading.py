"""Calls in text: the same ones, and the same text beside them, however the text is cut."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loomrl.serving.call import ToolCall
from loomrl.serving.wording import CallReader, read_call, write_call

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(), JSON | st.just("</tool_call>"), max_size=3)
CALLS = st.builds(
    lambda name, arguments: ToolCall(id="", name=name, arguments=json.dumps(arguments)),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
    ARGUMENTS,
)
SCRAPS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<tool", "_call>", "{", '"', "}", "\\", " ", "\n", '{"name": "f"}', "é", "word"]
)
TEXTS = st.lists(SCRAPS | CALLS.map(write_call) | st.text(max_size=4), max_size=9).map("".join)


def read(text: str, cuts: list[int] | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The text shown and the calls, for a text that comes in pieces."""
    reader, shown, start = CallReader(), "", 0
    for cut in [*sorted(cuts or []), len(text)]:
        shown += reader.add(text[start : max(start, cut)])
        start = max(start, cut)
    shown += reader.end()
    return shown, [(call.name, call.arguments) for call in reader.calls]


@given(TEXTS, st.lists(st.integers(0, 200), max_size=12))
@example('<tool_call>"</tool_call><tool_call>{"name": "f"}</tool_call>', [3, 20])
def test_any_cut_of_the_text_gives_the_same_result(text: str, cuts: list[int]) -> None:
    assert read(text, [min(cut, len(text)) for cut in cuts]) == read(text) == read(text, list(range(len(text))))


@given(st.text(alphabet="ab <\n", max_size=10), st.lists(CALLS, min_size=1, max_size=3), st.text("xy\n ", max_size=5))
def test_calls_that_were_written_are_read_and_their_text_is_never_shown(
    before: str, calls: list[ToolCall], after: str
) -> None:
    shown, found = read(before + "\n".join(map(write_call, calls)) + after)
    assert [(name, json.loads(arguments)) for name, arguments in found] == [
        (call.name, json.loads(call.arguments)) for call in calls
    ]
    assert shown.strip() == (before.rstrip() + after.rstrip()).strip() or shown == before.rstrip() + after
    assert "name" not in shown


@given(TEXTS)
def test_text_without_an_opening_tag_is_shown_as_it_is(text: str) -> None:
    plain = text.replace("<tool_call>", "")
    if "<tool_call>" not in plain:
        assert read(plain) == (plain, [])


@given(TEXTS)
def test_shown_text_only_grows_and_no_character_is_lost_without_calls(text: str) -> None:
    shown, calls = read(text)
    if not calls:
        assert shown == text


@pytest.mark.parametrize(
    "malformed",
    [
        "{'name': 'f'}",
        '{"name": "f", "arguments": [1]}',
        '{"name": "", "arguments": {}}',
        '{"name": 3}',
        '{"name": "f", "arguments": {}, "extra": 1}',
        '{"name": "f", "arguments": {"x": NaN}}',
        '{"name": "f", "arguments": {"x": 1e999}}',
        '{"name": "\\ud800", "arguments": {}}',
        '["f"]',
        "",
        "[" * 100_000,
        '{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}",
    ],
)
def test_a_malformed_call_stays_in_the_text(malformed: str) -> None:
    text = f"Look:\n<tool_call>{malformed}</tool_call> so."
    assert read(text) == (text, [])


def test_a_whole_call_counts_though_the_answer_ended_before_its_tag_did() -> None:
    for ending in ("", "\n", "</tool_", "\n</tool_call"):
        shown, calls = read('Wait.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}' + ending)
        assert (shown, calls) == ("Wait.", [("f", '{"x": 1}')])
    assert read('<tool_call>{"name": "f", "argu')[1] == []


def test_a_good_call_after_a_malformed_one_is_read() -> None:
    good = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    for bad in ("<tool_call>oops</tool_call>", "<tool_call>", '<tool_call>{"name": "f</tool_call>'):
        assert read(bad + good) == (bad, [("f", "{}")])


def test_a_closing_tag_inside_an_argument_does_not_end_the_call() -> None:
    call = ToolCall(id="", name="write", arguments=json.dumps({"text": 'a </tool_call> "b" <tool_call>'}))
    assert read(write_call(call)) == ("", [(call.name, call.arguments)])


def test_line_breaks_inside_of_strings_are_forgiven_and_ids_differ() -> None:
    text = '{"name": "f", "arguments": {"x": "a\nb"}}'
    assert read_call(text).arguments == '{"x": "a\\nb"}'
    assert read_call(text).id != read_call(text).id
    assert read_call(text).id.startswith("call_")


def test_text_is_shown_before_the_call_that_follows_it_is_whole() -> None:
    reader = CallReader()
    assert reader.add("I look it up. <tool_") == "I look it up."
    assert reader.add('call>{"name"') == ""
    assert reader.add(': "f"}</tool_call>\nDone') == ("\nDone")
