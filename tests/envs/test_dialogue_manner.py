"""Claims and manners in what is said."""

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.dialogue.manner import CULTURES, GLAD, UPSET, Manners
from loomrl.envs.dialogue.support import ACTIONS, read_claims

ABOUT = (("budget",), ("city", "day"))
TURN = 0


def manners(country="Germany", mood=UPSET, level=5):
    """The first conversation that has this partner."""
    for seed in range(2000):
        found = Manners(level, Random(seed))
        culture = next(known for known in CULTURES if known.form.format(**found._names) == found._address)
        if culture.country == country and found._moods[TURN] == mood:
            return found
    raise AssertionError("no such partner")


def fitting(rules, opening="I am sorry.", polite="Thank you", about="What about the budget?"):
    return f"{opening} {polite}, {rules._address}. {about}"


@pytest.mark.parametrize("country", [culture.country for culture in CULTURES])
@pytest.mark.parametrize(("mood", "opening"), [(UPSET, "I am sorry."), (GLAD, "I’m glad."), ("", "")])
def test_a_line_that_keeps_all_rules_keeps_all(country, mood, opening):
    rules = manners(country, mood)
    assert all(rules.mark(TURN, fitting(rules, opening), ABOUT))


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("politeness", {"polite": "Well"}),
        ("politeness", {"polite": "Please, thank you"}),
        ("politeness", {"polite": "Please please please"}),
        ("politeness", {"polite": "Thank you, you idiot"}),
        ("emotional_appropriateness", {"opening": ""}),
        ("emotional_appropriateness", {"opening": "I am glad."}),
        ("emotional_appropriateness", {"opening": "I am sorry. I am glad."}),
        ("emotional_appropriateness", {"opening": "I am sorry, I am sorry."}),
        ("emotional_appropriateness", {"opening": "I am not sorry."}),
        ("coherence", {"about": "What about it?"}),
        ("coherence", {"about": "Budget, city, day?"}),
        ("coherence", {"about": "What about the city?"}),
    ],
)
def test_one_rule_is_broken_alone(rule, change):
    rules = manners()
    kept = rules.mark(TURN, fitting(rules, **change), ABOUT)._asdict()
    assert [name for name, value in kept.items() if not value] == [rule]


@pytest.mark.parametrize("country", [culture.country for culture in CULTURES])
def test_every_other_form_of_address_is_wrong(country):
    rules = manners(country)
    forms = {culture.form.format(**rules._names) for culture in CULTURES} - {rules._address}
    forms |= {"you", rules._names["surname"], "{forename} {surname}".format(**rules._names)}
    forms |= {f"{rules._address}, {rules._address}", ", ".join(sorted(forms)), f"{rules._address} {min(forms)}"}
    for form in forms - {rules._address}:
        kept = rules.mark(TURN, f"I am sorry. Thank you, {form}. The budget?", ABOUT)
        assert not kept.cultural_appropriateness, form


def test_the_same_line_again_is_not_coherent():
    rules = manners()
    assert rules.mark(TURN, fitting(rules), ABOUT).coherence
    assert not rules.mark(TURN, fitting(rules), ABOUT).coherence


@pytest.mark.parametrize("say", ["", "please " * 61, "x" * 601])
def test_an_empty_or_endless_line_keeps_nothing(say):
    assert not any(manners().mark(TURN, say, ABOUT))


def test_no_single_line_keeps_the_rules_of_all_partners():
    stuffed = "I am sorry. Thank you, Frau Weber. What about the budget?"
    kept = [Manners(5, Random(seed)).mark(TURN, stuffed, ABOUT) for seed in range(300)]
    assert sum(line.cultural_appropriateness for line in kept) / 300 < 0.1
    assert sum(line.emotional_appropriateness for line in kept) / 300 < 0.45


def test_easy_tasks_ask_for_no_manners():
    assert Manners(2, Random(0)).prompt == ""
    assert Manners(2, Random(0)).tone(0) == ""


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
