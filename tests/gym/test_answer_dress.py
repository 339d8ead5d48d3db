"""What stands around an answer is taken off, and nothing else."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.gym.answer import LONGEST, parse_fences, undress


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


@given(st.text(alphabet="ab.*`=\"' \n#>!_-", max_size=40))
def test_undressing_twice_changes_nothing_more_than_once_and_adds_nothing(text):
    bare = undress(text)
    assert bare in text


def test_blocks_have_either_fence_and_may_be_indented():
    text = "a\n```python\nx = 1\n```\n  ~~~\n  y\n    ```\n  ~~~~ \n```not `a` fence\n~~~py\nlost"
    found = [(block.language, block.content) for block in parse_fences(text)]
    assert found == [("python", "x = 1"), ("", "y\n  ```"), ("py", None)]
    first = next(parse_fences(text))
    assert text[first.end :].startswith("\n  ~~~")


def test_text_made_to_be_slow_is_undressed_in_a_moment():
    for text in ("the " * 4000, "```\n" * 4000, "so " * 5000, "*" * 16_000, "= " * 8000, "answer " * 2000, "# " * 8000):
        assert len(text) <= LONGEST
        started = time.process_time()
        undress(text)
        assert time.process_time() - started < 0.5
