"""The report as Markdown, and the numbers in it and in charts."""

import math

import pytest

from loomrl.telemetry.metric import Metric
from loomrl.telemetry.number import amount, figure, percent, round_ticks
from loomrl.telemetry.report import Answer, AnswerPair, Comparison, render_text
from tests.telemetry.control_history import recorded
from tests.telemetry.reports import judged, report, returns, rows


def test_language_report_has_facts_findings_tables_metrics_and_answers() -> None:
    answer = Answer(text="ANSWER 42\n\nI am sure.", reward=0.5, success=1.0)
    text = render_text(
        report(
            rows(30),
            comparisons=[Comparison(name="greedy", before=judged(7), after=judged(95))],
            samples=[AnswerPair(task="Math/algebra, level 3", prompt="6 · 7?", before=None, after=answer)],
        )
    )
    assert text.startswith("# A run\n\n- Run: run-1\n- Ended: all updates done\n")
    assert "- Duration: 3 min 42 s" in text
    assert "## The training doctor" in text
    assert "| all | 7 % (3.4 % to 14 %) | 95 % (89 % to 98 %) |" in text
    assert "| family Math/algebra | 7 %" in text
    assert text.count("\n| ") == 1 + 5 + 1 + 2
    assert f"| {Metric.SUCCESS} | 0.01 | 0.3 | {Metric.SUCCESS.meaning} |" in text
    assert "    6 · 7?\n\nBefore: the attempt failed; there is no answer.\n\nAfter: success 100 %, reward 0.5\n" in text
    assert text.endswith("    ANSWER 42\n\n    I am sure.\n")


def test_control_report_has_returns() -> None:
    text = render_text(
        report(
            recorded("ppo_cartpole"),
            unit="steps",
            comparisons=[Comparison(name="greedy", before=returns(10.0, 30.0), after=returns(200.0, 200.0))],
        )
    )
    assert "## Before and after: return, greedy" in text
    assert "| all | 20" in text
    assert "| 200 (200 to 200) |" in text
    assert "Nothing wrong was found." in text


@pytest.mark.parametrize(
    ("form", "value", "shown"),
    [
        (figure, 0, "0"),
        (figure, 0.9123, "0.912"),
        (figure, 8234, "8.23k"),
        (figure, 3e-4, "3e-4"),
        (figure, -0.5, "−0.5"),
        (figure, 999.9, "1k"),
        (figure, 2e10, "20G"),
        (figure, math.nan, "–"),
        (percent, 0.072, "7.2 %"),
        (percent, 0.07, "7 %"),
        (percent, 0.958, "96 %"),
        (percent, 1, "100 %"),
        (amount, 9.3712, "9.37"),
        (amount, 475.6, "476"),
        (amount, -1334.2, "−1,334"),
        (amount, 2.5e6, "2.5M"),
    ],
)
def test_numbers_have_the_digits_that_matter(form, value, shown) -> None:
    assert form(value) == shown


@pytest.mark.parametrize(("low", "high"), [(0, 1), (450, 550), (-1276, -127), (1e-4, 3e-4), (0, 1e6)])
def test_round_ticks_hold_both_ends(low: float, high: float) -> None:
    first, *_, last = round_ticks(low, high)
    assert first <= low <= high <= last
