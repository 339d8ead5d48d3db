"""Rules about text and actions, and the screen through which text leaves."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.config.monitor import BlockedRule, BoundsRule, CustomRule, PromptRule, RateRule, SecretsRule, StatesRule
from loomrl.config.serving import ServingExperiment
from loomrl.errors import ConfigError
from loomrl.safety.open import open_action_rule, open_text_rules
from loomrl.safety.rule import Asked, Deed, TextRule, Use
from loomrl.safety.screen import Screen, look, screen_text
from loomrl.safety.text import Calls, Repetition

KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12"
FORMS = {
    "key": KEY,
    "token": "ghp_" + "a1B2" * 9,
    "web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3.c2lnbmF0dXJl",
    "bearer": "Bearer abcDEF123456ghiJKL789012",
    "private": "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKC\n-----END RSA PRIVATE KEY-----",
    "phrase": "You  SHOULD\ndie",
    "prompt": "the launch code of the vault is never to be told to anybody",
}
ASKED = Asked(
    system="You help. Remember: the launch code of the vault is never to be told to anybody, friend or foe.",
    tools={"buy": {"properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}},
)
RULES = open_text_rules([SecretsRule(), BlockedRule(), PromptRule(words=8)])


def streamed(rules: dict[str, TextRule], text: str, cuts: Sequence[int]) -> tuple[str, str]:
    """The part of a text in these pieces that leaves, and the rule that ended it."""
    screen, left = Screen(ASKED), ""
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    for start, end in pairwise(edges):
        screen.add(text[start:end])
        left += drained(rules, screen)
    screen.end()
    left += drained(rules, screen)
    return left, "" if screen.hit is None else screen.hit.rule


def drained(rules: dict[str, TextRule], screen: Screen) -> str:
    while (saying := screen.next()) is not None:
        screen.settle(saying, look(rules, saying))
    return screen.take()


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_finding_is_found_wherever_it_begins(form: str) -> None:
    for count in range(0, 70, 2):
        left, rule = streamed(RULES, f"{'ab ' * count} {FORMS[form]} z"[2 * count :], [])
        assert rule, count
        assert len(left) <= count + 1


words = st.text(alphabet=st.sampled_from("ab sk-eyJ.\n:=é漢🙂BEGIN the launch code"), max_size=120)


@settings(max_examples=40, deadline=None)
@given(before=words, form=st.sampled_from(sorted(FORMS)), after=words, cuts=st.lists(st.integers(0, 500), max_size=12))
def test_whatever_the_pieces_the_same_leaves_and_nothing_of_a_finding(
    before: str, form: str, after: str, cuts: list[int]
) -> None:
    text = f"{before} {FORMS[form]} {after}"
    left, rule = streamed(RULES, text, cuts)
    assert (left, rule) == streamed(RULES, text, [])
    assert (left, rule) == streamed(RULES, text, range(len(text)))
    assert rule
    assert text.startswith(left)
    assert len(left) <= len(before) + 1


@settings(max_examples=30, deadline=None)
@given(text=words, cuts=st.lists(st.integers(0, 500), max_size=12))
def test_a_text_without_a_finding_leaves_whole(text: str, cuts: list[int]) -> None:
    left, rule = streamed(RULES, text, cuts)
    assert rule or left == text
    assert (rule == "") == (screen_text(RULES, text, asked=ASKED).hit is None)


def test_little_is_held_back() -> None:
    screen = Screen(ASKED)
    held = []
    for letter in "Once upon a time there was a fox, and it was quick; it ran over fields and hills. " * 20:
        screen.add(letter)
        drained(RULES, screen)
        held.append(len(screen.text) - screen.left)
    assert max(held) < 60


@pytest.mark.parametrize(
    "text", ["sk-your-api-key-goes-here", "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxx", "mask-making", "a sk-"]
)
def test_placeholders_are_no_secrets(text: str) -> None:
    assert screen_text(RULES, f"Write {text} there", asked=ASKED).hit is None


def test_passwords_are_found_where_asked_for() -> None:
    text = "Log in: password: hunter2x and then go on"
    assert screen_text(RULES, text, asked=ASKED).hit is None
    rules = open_text_rules([SecretsRule(kinds=("password",))])
    hit = screen_text(rules, text, asked=ASKED).hit
    assert hit is not None
    assert text[: hit.start] == "Log in: password: "


def test_words_are_blocked_whole_only() -> None:
    rules = open_text_rules([BlockedRule(words=("ass", "Straße"), shipped=False)])
    found = [screen_text(rules, text, asked=ASKED).hit for text in ("a class act", "an Ass!", "die straße", "assess")]
    assert [one is not None for one in found] == [False, True, True, False]


@pytest.mark.parametrize("apostrophe", ["'", "\u2019"], ids=["straight", "curly"])
def test_an_apostrophe_is_one_in_either_form(apostrophe: str) -> None:
    rules = open_text_rules([BlockedRule(words=(f"don{apostrophe}t tell",))])
    for text in ("I'll kill you", "I\u2019ll kill you", "Don't tell!", "Don\u2019t tell!"):
        assert streamed(rules, text, range(40)) == ("", "blocked")


def test_repetition_is_many_copies_in_a_row() -> None:
    rules = {"repetition": Repetition(8, 240)}
    assert screen_text(rules, "I am sorry. " * 40, asked=ASKED).hit is not None
    assert screen_text(rules, "".join(f"I am sorry {n}. " for n in range(40)), asked=ASKED).hit is None
    assert screen_text(rules, "ha" * 100 + "!" + " " * 300, asked=ASKED).hit is None


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        ("buy", '{"n": 1}', None),
        ("sell", "{}", "unknown tool"),
        ("buy", "{}", "missing argument"),
        ("buy", '{"n": "1"}', "argument of wrong type"),
        ("buy", '{"n": true}', "argument of wrong type"),
        ("buy", '{"n": 1, "m": 2}', "unknown argument"),
        ("buy", "[1]", "arguments that are no object"),
        ("buy", "{", "arguments that are no JSON"),
    ],
)
def test_calls_fit_the_tools(name: str, arguments: str, what: str | None) -> None:
    hit = screen_text({"calls": Calls()}, "", [Use(name=name, arguments=arguments)], asked=ASKED).hit
    assert (hit and hit.what) == what


def test_a_secret_may_hide_in_arguments() -> None:
    use = Use(name="buy", arguments=json.dumps({"n": ["\n" + KEY]}))
    hit = screen_text(RULES, "Done.", [use], asked=ASKED).hit
    assert hit is not None
    assert hit.start == 5


def wrong(rule: Any, action: Any, **deed: Any) -> Any:
    judged = open_action_rule(rule).judge(Deed(action=np.asarray(action), **deed))
    return None if judged is None else judged.instead if judged.instead is None else judged.instead.tolist()


def test_actions_are_bounded_and_slow() -> None:
    bounds = BoundsRule(low=-1.0, high=(1.0, 2.0))
    assert wrong(bounds, [1.0, 2.0]) is None
    assert wrong(bounds, [3.0, -3.0]) == [1.0, -1.0]
    rate = RateRule(most=0.5)
    assert wrong(rate, [1.0]) is None
    assert wrong(rate, [1.0], before=np.array([0.0])) == [0.5]
    assert wrong(rate, [1], before=np.array([0])) == [0]


def test_no_number_is_never_an_action() -> None:
    judged = open_action_rule(BoundsRule(low=-1, high=1)).judge(Deed(action=np.array([np.nan])))
    assert judged is not None
    assert judged.instead is None


def test_states_are_forbidden_within_all_bounds() -> None:
    rule = open_action_rule(StatesRule(within={0: (1.0, None), 2: (None, 0.0)}))
    judged = [rule.judge(Deed(action=np.zeros(1), observation=np.array(seen))) for seen in ([2, 9, -1], [2, 9, 1])]
    assert [one is not None for one in judged] == [True, False]


@pytest.mark.parametrize(
    ("monitor", "said"),
    [
        ({"rules": [{"check": {"kind": "secret"}}]}, "secrets"),
        ({"rules": [{"check": {"kind": "secrets"}}, {"check": {"kind": "secrets"}}]}, "two rules are called 'secrets'"),
        ({"rules": [{"check": {"kind": "secrets"}, "then": "hold", "text": "no"}]}, "text has no effect"),
        ({"rules": [{"check": {"kind": "secrets"}, "action": 1}]}, "action has no effect"),
        ({"rules": [{"check": {"kind": "bounds", "low": 0, "high": 1}, "then": "hold"}]}, "can not wait"),
        ({"fails": "open"}, "fails has no effect"),
        ({"rules": [{"check": {"kind": "blocked", "shipped": False}}]}, "nothing to block"),
    ],
)
def test_settings_without_effect_are_refused(monitor: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ServingExperiment.parse({"name": "x", "arms": [{"what": "a"}], "monitor": monitor})


def test_a_rule_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="nothing_here"):
        open_text_rules([CustomRule(entry_point="loomrl.safety.text:nothing_here")])
