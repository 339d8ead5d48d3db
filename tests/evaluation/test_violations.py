"""Rules in an evaluation."""

from loomrl.config.monitor import BlockedRule, SecretsRule
from loomrl.evaluation.report import judge
from loomrl.safety.open import open_text_rules
from loomrl.types import End, Message, Reward, Task, Trajectory, Turn


def said(number: int, text: str) -> Trajectory:
    turn = Turn((Message("user", "?"),), text)
    task = Task("Math", "1", "sum", 1, number)
    return Trajectory(id=str(number), task=task, turns=(turn,), end=End.TERMINATED, reward=Reward(), group="g")


def test_a_report_has_the_share_of_attempts_that_break_each_rule() -> None:
    rules = open_text_rules([BlockedRule(words=("darn",)), SecretsRule()])
    attempts = [said(number, "darn" if number < 3 else "well") for number in range(10)]
    report = judge("p", attempts, rules=rules)
    assert report.violations["blocked"].mean == 0.3
    assert report.violations["blocked"].low > 0.05
    assert report.violations["secrets"].mean == 0.0
    assert judge("p", attempts).violations == {}
