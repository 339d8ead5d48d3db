"""Calls, arguments and numbers in text: strict, bounded, exact."""

import json
import time
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.tool.amount import UnreadableAmount, same_answer, spelt, value_of
from loomrl.envs.tool.call import LONGEST, MOST, FunctionCall, MalformedCall, read_call, split_calls
from loomrl.envs.tool.kit import Invalid, check_arguments, fields, text, whole

SCHEMA = fields(room=text("which", longest=5), hour=whole("when", 8, 17), optional=("hour",))


def test_calls_and_what_follows_them_are_told_apart():
    one, two = FunctionCall("a", {"x": 1}), FunctionCall("b", {})
    assert split_calls(f"Let me see. {one} and {two}\n<answer>3</answer>") == (
        ['{"name": "a", "arguments": {"x": 1}}', '{"name": "b", "arguments": {}}'],
        "\n<answer>3</answer>",
    )


def test_last_call_need_not_be_closed():
    assert split_calls('<tool_call>{"name": "a"') == (['{"name": "a"'], "")


def test_flood_of_calls_is_not_read_to_its_end():
    calls, _ = split_calls("<tool_call>{}</tool_call>" * 10_000)
    assert len(calls) == MOST + 1


@given(
    name=st.text(max_size=20),
    arguments=st.dictionaries(st.text(max_size=9), st.integers(-(10**16), 10**16) | st.text(max_size=9)),
)
def test_every_call_that_was_written_is_read_again(name, arguments):
    raw = json.dumps({"name": name, "arguments": arguments})
    assert read_call(raw) == FunctionCall(name, arguments)
    assert read_call(f"\n{raw} \n").key == FunctionCall(name, dict(reversed(arguments.items()))).key


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ("", "no JSON"),
        ("null", "arguments"),
        ('{"name": "a"}', "arguments"),
        ('{"name": "a", "arguments": {}, "reward": 1}', "nothing else"),
        ('{"name": ["a"], "arguments": {}}', "string"),
        ('{"name": "a", "arguments": "{}"}', "object"),
        ('{"name": "a", "name": "b", "arguments": {}}', "twice"),
        ('{"name": "a", "arguments": {"x": NaN}}', "NaN"),
        ('{"name": "a", "arguments": {"x": -Infinity}}', "Infinity"),
        ('{"name": "a", "arguments": {"x": 1e999}}', "large"),
        ('{"name": "a", "arguments": {"x": ' + "9" * 3000 + "}}", "digits"),
        ('{"name": "a", "arguments": ' + "[" * 2000, "brackets"),
        ('{"name": "a", "arguments": {"x": "' + "y" * LONGEST + '"}}', "characters"),
    ],
)
def test_what_is_no_call_is_refused_with_the_reason(raw, word):
    with pytest.raises(MalformedCall, match=word):
        read_call(raw)


def test_arguments_that_fit_are_taken_and_whole_floats_become_integers():
    assert check_arguments({"room": "R1", "hour": 9.0}, SCHEMA) == {"room": "R1", "hour": 9}
    assert check_arguments({"room": "R1"}, SCHEMA) == {"room": "R1"}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({}, "missing"),
        ({"room": "R1", "day": 2}, "no property 'day'"),
        ({"room": 1}, "string expected, not integer"),
        ({"room": ""}, "characters"),
        ({"room": "R12345"}, "characters"),
        ({"room": "R1", "hour": "9"}, "integer expected, not string"),
        ({"room": "R1", "hour": True}, "integer expected, not boolean"),
        ({"room": "R1", "hour": 9.5}, "integer expected, not number"),
        ({"room": "R1", "hour": None}, "integer expected, not null"),
        ({"room": "R1", "hour": 18}, "8 to 17"),
        ({"room": "R1", "hour": [9]}, "integer expected, not array"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_where_and_why(arguments, word):
    with pytest.raises(Invalid, match=word):
        check_arguments(arguments, SCHEMA)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("2 - 3 - 4", "-5"),
        ("-2^2", "-4"),
        ("2^10", "1024"),
        ("1 / 3 + 1 / 6", "0.5"),
        ("1 / 3", "1/3"),
        ("0.1 + 0.2", "0.3"),
        ("--3", "3"),
        ("12345678901234567890 * 98765432109876543210", "1219326311370217952237463801111263526900"),
    ],
)
def test_values_are_exact(expression, value):
    assert spelt(value_of(expression)) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "2 +",
        "(2",
        "2)",
        "2 3",
        "1/0",
        "9^9^9",
        "9^99",
        "99^40^2",
        "1e5",
        "abs(2)",
        "٣",
        "²",
        "2**3",
        "(" * 50 + "1",
        "9" * 50,
    ],
)
def test_what_has_no_value_is_refused(expression):
    with pytest.raises(UnreadableAmount):
        value_of(expression)


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_numbers_are_spelt_so_that_they_are_read_as_the_same(numerator, denominator):
    value = Fraction(numerator, denominator)
    assert same_answer(spelt(value), spelt(value))
    assert not same_answer(spelt(value), spelt(value + 1))


@given(st.text(alphabet="0123456789+-*/^(). ", max_size=120))
def test_no_expression_is_slow_or_raises_anything_else(expression):
    start = time.process_time()
    with suppress(UnreadableAmount):
        spelt(value_of(expression))
    assert time.process_time() - start < 0.05


@pytest.mark.parametrize(
    ("wanted", "given", "same"),
    [
        ("1760", "1,760", True),
        ("1760", "1760.0", True),
        ("1760", "1760.", True),
        ("0.5", "1/2", True),
        ("0.5", "2/4", False),
        ("1760", "176000/100", False),
        ("1760", "1760/1", False),
        ("-3", " -3 ", True),
        ("1760", "1760 or 1761", False),
        ("1760", "17,60", False),
        ("1760", "１７６０", False),
        ("1760", "1760 1761", False),
        ("Golvel Sateth", "golvel  sateth.", True),
        ("Golvel Sateth", "Golvel Sateth or Damy Sateth", False),
        ("Golvel Sateth", "Sateth", False),
        ("1/3", "2/0", False),
    ],
)
def test_answers_are_compared_by_what_they_say(wanted, given, same):
    assert same_answer(wanted, given) is same


CALL = '{"name": "a", "arguments": {"x": 1}}'


@pytest.mark.parametrize(
    "text",
    [
        f"I call it.\n```json\n{CALL}\n```\nThen I wait.", f"~~~\n{CALL}\n~~~\nThen I wait.",
        f"<tool_call>```json\n{CALL}\n```</tool_call>\nThen I wait.",
        f"```\n{CALL.replace('arguments', 'parameters')}\n```\nThen I wait.",
        f"<tool_call>{CALL.replace('arguments', 'parameters')}</tool_call>\nThen I wait.",
    ],
)  # fmt: skip
def test_a_call_may_be_fenced_and_have_parameters(text):
    (raw,), rest = split_calls(text)
    assert read_call(raw) == FunctionCall("a", {"x": 1})
    assert rest == "\nThen I wait."


@pytest.mark.parametrize(
    "text",
    ['```json\n{"result": 1}\n```', f"```json\n{CALL}", f"```json\n[{CALL}]\n```", f"I would call `{CALL}`.", CALL],
)
def test_other_blocks_are_no_calls(text):
    assert split_calls(text) == ([], text)


def test_both_words_for_arguments_at_once_are_refused():
    with pytest.raises(MalformedCall, match="nothing else"):
        read_call('{"name": "a", "arguments": {}, "parameters": {}}')


@pytest.mark.parametrize("given_", ["**42**", "The answer is 42.", "`42.0`", "= 42", "42"])
def test_an_answer_may_be_dressed(given_):
    assert same_answer("42", given_)


@pytest.mark.parametrize("given_", ["42 or 43", "not 42", "The answer is not 42", "84/2", "42, 43"])
def test_a_dress_makes_no_answer_right(given_):
    assert not same_answer("42", given_)
