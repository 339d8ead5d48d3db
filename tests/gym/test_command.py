"""Commands in text: one line with a verb, the last one counts, and nothing but an exact verb is one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.gym.command import LONGEST, command_format, parse_command

VERBS = ("QUERY", "SOLVE")


def test_a_command_may_follow_reasoning_and_has_all_that_comes_after_it():
    command = parse_command("First I ask.\nQUERY: Anna, cat\nbecause I need it ", VERBS)
    assert command == ("First I ask.\n", "QUERY", "Anna, cat\nbecause I need it")


def test_the_last_command_counts():
    command = parse_command("QUERY: one\nSOLVE: two\nQUERY: three", VERBS)
    assert command is not None
    assert (command.verb, command.argument) == ("QUERY", "three")


@pytest.mark.parametrize("text", ["", "query: x", "a QUERY: x", "QUERY : x", "QUERY x", "ASK: x", " QUERY: x"])
def test_what_is_not_exactly_a_verb_at_the_start_of_a_line_is_no_command(text):
    assert parse_command(text, VERBS) is None


def test_an_argument_that_is_too_long_is_no_command():
    assert parse_command("SOLVE:" + "x" * LONGEST, VERBS) is not None
    assert parse_command("SOLVE:" + "x" * (LONGEST + 1), VERBS) is None


@given(st.text(), st.sampled_from(VERBS), st.text(alphabet=st.characters(exclude_characters=":\n")))
def test_whatever_is_said_before_it_a_command_is_found(before, verb, argument):
    command = parse_command(f"{before}\n{verb}:{argument}", VERBS)
    assert command == (f"{before}\n", verb, argument.strip())


def test_the_format_lists_the_usages():
    assert command_format(["SOLVE: answer"]).splitlines()[1:] == ["SOLVE: answer"]
