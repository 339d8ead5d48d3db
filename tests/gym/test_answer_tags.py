"""The place of an answer, and tricks that make none."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.gym.answer import parse_submission


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
    assert submission is not None
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
    assert submission is not None
    assert submission.tidy is tidy


@given(st.text(), st.text().filter(lambda text: "<answer>" not in text and "</answer>" not in text))
def test_an_appended_answer_is_always_the_one_found(before, answer):
    submission = parse_submission(f"{before}<answer>{answer}</answer>")
    assert submission is not None
    assert submission.answer == answer.strip()


def test_a_flood_of_tags_costs_no_more_than_its_length():
    start = time.process_time()
    for text in ("<answer>" * 200_000, "</answer>" * 200_000, "<answer>1</answer>" * 100_000, "<" * 2_000_000):
        parse_submission(text)
    assert time.process_time() - start < 0.5
