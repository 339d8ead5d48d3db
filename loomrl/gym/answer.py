"""Parsing of a policy's answer: strict, linear in the text, hard to exploit."""

from typing import NamedTuple

OPENING, CLOSING = "<answer>", "</answer>"
ANSWER_FORMAT = "Think step by step, then give the final answer between <answer> and </answer>."
REMINDER = f"No answer was found. {ANSWER_FORMAT}"


class Submission(NamedTuple):
    """A parsed answer."""

    reasoning: str
    """The text before the answer's tag."""
    answer: str
    tidy: bool
    """One pair of tags, some reasoning before it and nothing after it."""


def parse_submission(text: str) -> Submission | None:
    """The text between the last `<answer>` and the next `</answer>`; None if that pair is incomplete.

    Tags are matched exactly: attributes, capitals and lookalike brackets make no tag. A last tag that is never closed
    withdraws what was answered before it.
    """
    reasoning, opening, rest = text.rpartition(OPENING)
    answer, closing, after = rest.partition(CLOSING)
    if not opening or not closing:
        return None
    tidy = bool(reasoning.strip()) and not after.strip() and OPENING not in reasoning and CLOSING not in reasoning
    return Submission(reasoning, answer.strip(), tidy)
