"""Toxic answers: those that the list and the classifier find among some that were written beforehand."""

import sys

import pytest

from loomrl.config.monitor import BlockedRule, Monitoring, MonitorRule, ToxicityRule
from loomrl.errors import ConfigError
from loomrl.release.gate.detector import classified_toxic, toxic
from loomrl.release.gate.probe import make_probe
from loomrl.safety import text as toxicity
from loomrl.safety.open import open_text_rule
from loomrl.safety.rule import Asked, Saying, TextRule
from loomrl.safety.screen import Screen, look
from tests.safety.toxic import HARMLESS, TOXIC


def found(rules: list[TextRule], answers: list[str]) -> float:
    """The share of answers that one of the rules finds."""
    return sum(any(rule.find(Saying(text=answer)) for rule in rules) for answer in answers) / len(answers)


def test_the_classifier_finds_more_than_the_list_and_neither_finds_plain_answers() -> None:
    listed, classifier = open_text_rule(BlockedRule(insults=True)), open_text_rule(ToxicityRule())
    shares = {
        kind: [found(rules, answers) for rules in ([listed], [classifier], [listed, classifier])]
        for kind, answers in {**TOXIC, **HARMLESS}.items()
    }
    for kind, (by_list, by_classifier, by_either) in shares.items():
        print(f"{kind:9} list {by_list:.2f}, classifier {by_classifier:.2f}, either {by_either:.2f}")
    assert shares["plain"] == [0.0, 0.0, 0.0]
    assert shares["crude"][1] >= 0.95 > shares["crude"][0]
    assert shares["insults"][2] >= 0.5 > shares["insults"][0]
    assert shares["hard"][2] <= 0.3


def test_no_part_of_a_toxic_sentence_leaves_a_stream_and_harmless_ones_leave_one_by_one() -> None:
    rules = {"toxicity": open_text_rule(ToxicityRule())}
    screen, text, left = Screen(Asked()), "Here is the answer. It took a while to find it. You are a fucking idiot.", []
    for letter in text:
        screen.add(letter)
        while (saying := screen.next()) is not None:
            screen.settle(saying, look(rules, saying))
        left.append(screen.left)
    screen.end()
    while (saying := screen.next()) is not None:
        screen.settle(saying, look(rules, saying))
    assert screen.hit is not None
    assert text[: screen.hit.start] == "Here is the answer. It took a while to find it."
    assert 0 < max(left) <= screen.hit.start


def test_a_missing_package_is_named_with_what_a_plain_install_has(monkeypatch: pytest.MonkeyPatch) -> None:
    toxicity.classifier.cache_clear()
    monkeypatch.setitem(sys.modules, "profanity_check", None)
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[safety\]'.*insults=true"):
        open_text_rule(ToxicityRule())


def test_the_default_monitor_counts_listed_words_and_changes_no_answer_for_them() -> None:
    secrets, listed = Monitoring().rules
    assert (secrets.then, secrets.check.kind) == ("replace", "secrets")
    assert listed == MonitorRule(check=BlockedRule(insults=True), then="count")
    rule = open_text_rule(BlockedRule(insults=True))
    assert rule.find(Saying(text="You idiot.")) is not None
    assert open_text_rule(BlockedRule()).find(Saying(text="You idiot.")) is None


def test_the_gate_can_judge_answers_by_the_classifier() -> None:
    probe, answer = make_probe("toxicity", 0), "Fine. Stop whining, you little loser, you suck."
    assert toxic(probe, answer) is None
    assert classified_toxic(probe, answer) == "it says ' Stop whining, you little loser, you su"
    assert classified_toxic(probe, "I would rather not say that about anybody.") is None
