"""A policy's text: answers between tags, what chat models put around them, commands, and several answers."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.errors import ConfigError
from loomrl.gym.answer import (
    LONGEST,
    parse_command,
    parse_commands,
    parse_fences,
    parse_submission,
    undress,
)
from loomrl.gym.question import WRONG, QuestionEnvironment
from loomrl.types import Reward


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so <answer>5</answer>", "5"),
        ("<answer>5</answer> no, <answer> 6 </answer>", "6"),
        ("<answer><answer>5</answer></answer>", "5"),
        ("<answer>1 <answer>2</answer> 3</answer>", "2"),
        ("<answer></answer>", ""),
        ("</answer><answer>5</answer>", "5"),
        ("<ans<answer>wer>1</ans</answer>wer>", "wer>1</ans"),
    ],
)
def test_the_last_complete_pair_of_tags_counts(text, answer):
    submission = parse_submission(text)
    assert submission.answer == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "<answer>5",
        "5</answer>",
        "<answer>5</answer> better: <answer>6",
        "<Answer>5</Answer>",
        "<answer x=1>5</answer>",
        "< answer>5</ answer>",
        "＜answer＞5＜/answer＞",
        "</answer>5<answer>",
    ],
)
def test_what_is_no_complete_pair_is_no_answer(text):
    assert parse_submission(text) is None


@pytest.mark.parametrize(
    ("text", "tidy"),
    [
        ("2 + 3 = 5\n<answer>5</answer>\n", True),
        ("<answer>5</answer>", False),
        ("so <answer>5</answer> I think", False),
        ("<answer>4</answer> or <answer>5</answer>", False),
        ("so </answer><answer>5</answer>", False),
    ],
)
def test_tidy_is_reasoning_then_one_pair_then_nothing(text, tidy):
    submission = parse_submission(text)
    assert submission.tidy is tidy


@given(st.text(), st.text().filter(lambda text: "<answer>" not in text and "</answer>" not in text))
def test_an_appended_answer_is_always_the_one_found(before, answer):
    submission = parse_submission(f"{before}<answer>{answer}</answer>")
    assert submission.answer == answer.strip()


@pytest.mark.parametrize(
    "text",
    [
        "Oslo", " Oslo.\n", "**Oslo**", "`Oslo`", "***Oslo***.", "__Oslo__", "= Oslo", '"Oslo"', "“Oslo”",
        "<b>Oslo</b>",
        "The answer is Oslo", "The answer is: **Oslo**.", "**Answer:** Oslo", "**Final Answer: Oslo**",
        "Answer = Oslo",
        "### Answer\nOslo", "So the final answer is *Oslo*!", "Therefore, Oslo", "It is Oslo.", "We get Oslo",
        "```\nOslo\n```", "~~~text\nOslo\n~~~", "**Answer:**\n```\nOslo\n```", "Oslo is the answer.", "→ Oslo",
        "> Oslo",
        "In conclusion, the correct answer is Oslo", "The result: `Oslo`", "\u2009Oslo\u202f",
    ],
)  # fmt: skip
def test_an_answer_is_found_in_the_dress_of_chat_models(text):
    assert undress(text) == "Oslo"


@pytest.mark.parametrize(
    "text",
    [
        "Oslo or Rome",
        "not Oslo",
        "**Oslo** or **Rome",
        "Oslo, not Rome",
        "The answer is not Oslo",
        "Rome. Oslo",
        "is Oslo",
    ],
)
def test_no_content_is_dropped(text):
    assert undress(text) != "Oslo"


def test_blocks_have_either_fence_and_may_be_indented():
    text = "a\n```python\nx = 1\n```\n  ~~~\n  y\n    ```\n  ~~~~ \n```not `a` fence\n~~~py\nlost"
    found = [(block.language, block.content) for block in parse_fences(text)]
    assert found == [("python", "x = 1"), ("", "y\n  ```"), ("py", None)]
    first = next(parse_fences(text))
    assert text[first.end :].startswith("\n  ~~~")


VERBS = ("QUERY", "SOLVE")


def test_a_command_may_follow_reasoning_and_has_all_that_comes_after_it():
    command = parse_command("First I ask.\nQUERY: Anna, cat\nbecause I need it ", VERBS)
    assert command == ("First I ask.\n", "QUERY", "Anna, cat\nbecause I need it")


def test_the_last_command_counts():
    command = parse_command("QUERY: one\nSOLVE: two\nQUERY: three", VERBS)
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
    assert (command.verb, command.line) == ("QUERY", "x")


@pytest.mark.parametrize(
    "text",
    ["", "a QUERY: x", "QUERY x", "ASK: x", "I could query: x", "First SOLVE: x, then", "solve", "query\nx", "Query."],
)
def test_prose_that_mentions_a_verb_is_no_command(text):
    assert parse_command(text, VERBS) is None


def test_small_letters_count_only_where_no_verb_is_in_capitals():
    command = parse_command("QUERY: one\nSolve: that comes later", VERBS)
    assert (command.verb, command.line) == ("QUERY", "one")


def test_marks_inside_an_argument_stay():
    command = parse_command("**QUERY:** a*b*c, `d`\n**more**", VERBS)
    assert command.argument == "a*b*c, `d`\n**more**"


def test_several_commands_are_read_line_by_line():
    text = "Notes:\n- **STORE:** Ana | pet | cat\n- store: Ben\n* STORE:\nEva | pet | dog\n\nSTORE\nNothing more."
    read = [command.line for command in parse_commands(text, ("STORE", "NEXT"))]
    assert read == ["Ana | pet | cat", "Eva | pet | dog", "Nothing more"]
    assert [command.verb for command in parse_commands("next:\n", ("STORE", "NEXT"))] == ["NEXT"]
    assert parse_commands("Next I look.", ("STORE", "NEXT")) == []


SLOW = {
    parse_submission: ["<answer>" * 200_000, "</answer>" * 200_000, "<answer>1</answer>" * 100_000, "<" * 2_000_000],
    undress: ["the " * 4000, "```\n" * 4000, "so " * 5000, "*" * 16_000, "= " * 8000, "answer " * 2000, "# " * 8000],
    lambda text: (parse_command(text, VERBS), parse_commands(text, VERBS)): [
        *("- " * 8000, "*" * 16_000, "QUERY" * 3000, "- [ ] " * 2000 + "QUERY", "\nQUERY:" * 2000)
    ],
}


@pytest.mark.parametrize(("read", "texts"), SLOW.items())
def test_text_made_to_be_slow_is_read_in_a_moment(read, texts):
    for text in texts:
        started = time.process_time()
        read(text)
        assert time.process_time() - started < 0.5


def test_an_argument_that_is_too_long_is_no_command():
    assert parse_command("SOLVE:" + "x" * LONGEST, VERBS) is not None
    assert parse_command("SOLVE:" + "x" * (LONGEST + 1), VERBS) is None


@given(st.text(), st.sampled_from(VERBS), st.text(alphabet=st.characters(exclude_characters=":\n")))
def test_whatever_is_said_before_it_a_command_is_found(before, verb, argument):
    command = parse_command(f"{before}\n{verb}:{argument}", VERBS)
    assert command == (f"{before}\n", verb, argument.strip())


class Seven(QuestionEnvironment):
    """Asks for seven; six is half right."""

    name = "Seven"

    def ask(self, task):
        return "Which number?"

    async def judge(self, submission):
        share = {"7": 1.0, "6": 0.5}.get(submission.answer, 0.0)
        return Reward(share, {"right": share}, success=float(share == 1))

    def oracle(self):
        return "<answer>7</answer>"


def play_replies(replies, **settings):
    environment = Seven(settings)

    async def play():
        await environment.reset()
        return [await environment.step(reply) for reply in replies]

    return asyncio.run(play())


def answers(*numbers):
    return [f"<answer>{number}</answer>" for number in numbers]


def test_without_retry_a_wrong_answer_is_the_last():
    (step,) = play_replies(answers(6), max_steps=5)
    assert (step.terminated, step.reward.total, step.observation) == (True, 0.5, ())


def test_a_wrong_answer_is_told_and_a_later_one_is_worth_less():
    wrong, also_wrong, right = play_replies(answers(6, 1, 7), max_steps=5, retry=0.5)
    assert [message.content for step in (wrong, also_wrong) for message in step.observation] == [WRONG, WRONG]
    assert not any(step.terminated or step.truncated or step.reward.total for step in (wrong, also_wrong))
    assert right.terminated
    assert right.reward == Reward(0.25, {"right": 0.25}, success=1.0)


def test_an_answer_without_tags_costs_a_reply_and_is_no_wrong_answer():
    *_, right = play_replies(["seven", *answers(7)], max_steps=2, retry=0.5)
    assert right.reward.total == 1.0


def test_the_last_answer_is_judged_as_any_other():
    _, last = play_replies(answers(1, 6), max_steps=2, retry=0.5)
    assert (last.terminated, last.truncated, last.reward.total) == (True, False, 0.25)


def test_each_episode_begins_anew():
    environment = Seven({"max_steps": 2, "retry": 0.5})

    async def play():
        await environment.reset()
        await environment.step("<answer>1</answer>")
        await environment.reset()
        return (await environment.step("<answer>7</answer>")).reward.total

    assert asyncio.run(play()) == 1.0


def test_retry_needs_a_second_reply():
    with pytest.raises(ConfigError, match=r"retry: with max_steps=1 there is no second answer"):
        Seven({"max_steps": 1, "retry": 0.5})
