"""Commands in text: a line that begins with a verb, in any dress; the last one counts, and prose is none."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.gym.answer import LONGEST, command_format, parse_command, parse_commands

VERBS = ("QUERY", "SOLVE")


def test_a_command_may_follow_reasoning_and_has_all_that_comes_after_it():
    command = parse_command("First I ask.\nQUERY: Anna, cat\nbecause I need it ", VERBS)
    assert command == ("First I ask.\n", "QUERY", "Anna, cat\nbecause I need it")


def test_the_last_command_counts():
    command = parse_command("QUERY: one\nSOLVE: two\nQUERY: three", VERBS)
    assert command is not None
    assert (command.verb, command.argument) == ("QUERY", "three")


@pytest.mark.parametrize(
    "text",
    [
        "QUERY: x", "query: x", "Query: x", " QUERY: x", "\tQUERY : x", "- QUERY: x", "* query: x", "1. QUERY: x",
        "> QUERY: x", "### QUERY: x", "**QUERY:** x", "**QUERY**: x", "**QUERY: x**", "`QUERY: x`", "__query:__ x",
        "- **Query:** `x`", "QUERY: **x**", 'QUERY: "x".', "QUERY:\nx", "QUERY\nx", "```\nQUERY: x\n```",
        "QUERY: x\n\nI ask this first.", "Answer: unknown yet.\nQUERY: x", "**`QUERY: x`**", "QUERY：x",
        "- [ ] QUERY: x",
    ],
)  # fmt: skip
def test_a_command_is_read_in_the_dress_of_chat_models(text):
    command = parse_command(text, VERBS)
    assert command is not None
    assert (command.verb, command.line) == ("QUERY", "x")


@pytest.mark.parametrize(
    "text",
    ["", "a QUERY: x", "QUERY x", "ASK: x", "I could query: x", "First SOLVE: x, then", "solve", "query\nx", "Query."],
)
def test_prose_that_mentions_a_verb_is_no_command(text):
    assert parse_command(text, VERBS) is None


def test_small_letters_count_only_where_no_verb_is_in_capitals():
    command = parse_command("QUERY: one\nSolve: that comes later", VERBS)
    assert command is not None
    assert (command.verb, command.line) == ("QUERY", "one")


def test_marks_inside_an_argument_stay():
    command = parse_command("**QUERY:** a*b*c, `d`\n**more**", VERBS)
    assert command is not None
    assert command.argument == "a*b*c, `d`\n**more**"


def test_several_commands_are_read_line_by_line():
    text = "Notes:\n- **STORE:** Ana | pet | cat\n- store: Ben\n* STORE:\nEva | pet | dog\n\nSTORE\nNothing more."
    read = [command.line for command in parse_commands(text, ("STORE", "NEXT"))]
    assert read == ["Ana | pet | cat", "Eva | pet | dog", "Nothing more"]
    assert [command.verb for command in parse_commands("next:\n", ("STORE", "NEXT"))] == ["NEXT"]
    assert parse_commands("Next I look.", ("STORE", "NEXT")) == []


def test_text_made_to_be_slow_is_read_in_a_moment():
    for text in ("- " * 8000, "*" * 16_000, "QUERY" * 3000, "- [ ] " * 2000 + "QUERY", "\nQUERY:" * 2000):
        started = time.process_time()
        parse_command(text, VERBS)
        parse_commands(text, VERBS)
        assert time.process_time() - started < 0.5


def test_an_argument_that_is_too_long_is_no_command():
    assert parse_command("SOLVE:" + "x" * LONGEST, VERBS) is not None
    assert parse_command("SOLVE:" + "x" * (LONGEST + 1), VERBS) is None


@given(st.text(), st.sampled_from(VERBS), st.text(alphabet=st.characters(exclude_characters=":\n")))
def test_whatever_is_said_before_it_a_command_is_found(before, verb, argument):
    command = parse_command(f"{before}\n{verb}:{argument}", VERBS)
    assert command == (f"{before}\n", verb, argument.strip())


def test_the_format_lists_the_usages():
    assert command_format(["SOLVE: answer"]).splitlines()[1:] == ["SOLVE: answer"]
