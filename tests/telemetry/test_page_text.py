"""The report as Markdown: what the page says, without a browser."""

from loomrl.telemetry.metric import Metric
from loomrl.telemetry.page import Answer, Sample
from loomrl.telemetry.page_table import Comparison
from loomrl.telemetry.page_text import render_text
from tests.telemetry.control_history import recorded
from tests.telemetry.test_page import judged, report, run
from tests.telemetry.test_page_control import returns


def test_language_report_has_facts_findings_tables_metrics_and_answers() -> None:
    answer = Answer(text="ANSWER 42\n\nI am sure.", reward=0.5, success=1.0)
    text = render_text(
        report(
            run(30),
            comparisons=[Comparison(name="greedy", before=judged(7), after=judged(95))],
            samples=[Sample(task="Math/algebra, level 3", prompt="6 · 7?", before=None, after=answer)],
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
