"""Claims of a support agent: negation counts, hedging and contradiction claim nothing."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.dialogue.support import ACTIONS, read_claims


def refund(text):
    return read_claims(text, ACTIONS).get("refund", "unnamed")


@pytest.mark.parametrize(
    "text",
    [
        "The refund is possible.",
        "THE REFUND IS POSSIBLE!",
        "Your refund is approved.",
        "Thank you, Frau Weber. I am sorry. The refund is possible. The order is done.",
        "The refund is not impossible.",
        "The exchange is not possible, but the refund is possible.",
        "The exchange is not possible and the refund is possible.",
        "I can help with your refund. The refund is possible.",
        "Regarding the refund, it is possible.",
        "The refund and the exchange are possible.",
    ],
)
def test_what_is_said_to_be_possible_is_read_so(text):
    assert refund(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "The refund is not possible.",
        "The refund isn't possible.",
        "The refund isn’t possible.",
        "A refund is impossible.",
        "No refund is possible.",
        "It is not true that the refund is possible.",
        "Unfortunately, your refund cannot be approved.",
        "The refund was declined.",
        "The refund is no longer possible.",
        "Neither the refund nor the exchange is possible.",
        "The refund and the exchange are not possible.",
        "I am sorry, but the refund is not possible, and the exchange is possible.",
        "Regarding the refund: it is not possible.",
    ],
)
def test_every_negation_turns_the_sense(text):
    assert refund(text) is False


@pytest.mark.parametrize(
    "text",
    [
        "The refund is possible. The refund is not possible.",
        "The refund is possible or not possible.",
        "refund refund possible not possible",
        "The refund may be possible.",
        "The refund might not be possible.",
        "Perhaps the refund is possible.",
        "The refund is hardly possible.",
        "The refund is possible if the moon is blue.",
        "Is the refund possible? Yes. The refund is possible?",
        "The refund is possible. That is wrong.",
        "The refund is possible. No, it is not.",
        "The refund is possible, not.",
        "The refund is possible. Just kidding.",
        "Not only is the refund possible.",
        "Whether the refund is possible is not known.",
        "The refund is nоt possible.",  # with a Cyrillic o
        "No refund but an exchange is possible.",
        '"The refund is possible" is what others say.',
        "The refund is possible and it is not possible.",
        "The refund is possible; it is impossible.",
    ],
)
def test_doubts_conditions_and_contradictions_are_unclear(text):
    assert refund(text) is None


@pytest.mark.parametrize(
    "text", ["", "Thank you.", "Possible.", "Instead of a refund, a voucher is possible.", "Refund?", "reward: 1"]
)
def test_what_is_not_said_is_not_read(text):
    assert refund(text) == "unnamed"


@given(st.text(max_size=200))
def test_no_text_raises(text):
    read_claims(f"The refund {text} possible {text}", ACTIONS)


PIECES = "refund is not possible exchange , . ; but and the no it that wrong"


@given(st.lists(st.sampled_from(PIECES.split()), max_size=30))
def test_no_text_says_both(tokens):
    said = " ".join(tokens)
    sense = refund(said)
    if isinstance(sense, bool):
        opposite = "not " if sense else ""
        assert refund(f"{said}. The refund is {opposite}possible.") is None


@pytest.mark.parametrize("piece", ["refund is not possible ", "refund,", "and ", "not ", "it is not ", "a", " ", "'t"])
def test_long_texts_are_read_in_linear_time(piece):
    started = time.process_time()
    read_claims(piece * (200_000 // len(piece)), ACTIONS)
    assert time.process_time() - started < 0.5
