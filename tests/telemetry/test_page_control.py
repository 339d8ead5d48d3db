"""The report's page of a control run: returns on their own scale, axes in steps, and nothing of language."""

import math
import re

import pytest

from loomrl.evaluation.returns import judge_returns
from loomrl.telemetry.curve import Curve, amount, line_chart, round_span, stacked_chart
from loomrl.telemetry.metric import PHASES, Metric
from loomrl.telemetry.page import render_page
from loomrl.telemetry.page_table import Comparison
from tests.telemetry.control_history import History, made, recorded
from tests.telemetry.test_page import HOSTILE, Page, judged, report, run


def page(history: History, **over: object) -> str:
    return render_page(report(history, unit="steps", **over))


def titles(html: str) -> list[str]:
    """Of all charts."""
    return re.findall(r'<figure class="card"><h4>([^<]+)</h4>', html)


def chart(html: str, title: str) -> str:
    return re.findall(rf'<figure class="card"><h4>{title}</h4>.*?</figure>', html, re.DOTALL)[0]


def returns(*rewards: float, steps: int = 200) -> dict[str, object]:
    return judge_returns("p", rewards, [steps] * len(rewards)).as_dict()


def test_a_real_run_has_the_charts_of_what_it_measured_and_no_others() -> None:
    html = page(recorded("ppo_cartpole"))
    Page(html)
    assert titles(html) == [
        "Return",
        "Episode length",
        "Distance of one update",
        "Entropy",
        "Clip fraction",
        "Policy loss",
        "Gradient norm",
        "Value loss",
        "Explained variance",
        "Environment steps per second",
        "Seconds between measurements",
    ]
    assert "Everything else" not in html
    assert "The same tasks" not in html
    assert "nan" not in html
    assert "finds nothing wrong" in html


def test_a_language_run_has_nothing_of_control() -> None:
    html = render_page(report(run(60)))
    assert titles(html) == ["Success", "KL from the reference policy"]
    assert "Return" not in html


@pytest.mark.parametrize("rows", [0, 1, 2, 1000])
def test_a_run_of_any_length_has_a_page(rows: int) -> None:
    html = page(made(rows=rows))
    assert "nan" not in html
    assert ("No step was done." in html) == (rows == 0)
    Page(html)


def test_axes_and_numbers_under_the_pointer_are_in_steps() -> None:
    html = page(recorded("ppo_cartpole"))
    assert "step 62,219</text>" in html
    assert not re.findall(r"\bupdates? \d", html)
    assert "step 1,234,567</text>" in line_chart([Curve("x", [(0, 1.0), (1234567, 2.0)])], unit="steps")
    many = stacked_chart([Curve("x", [(1000 * n, 1.0) for n in range(1, 101)])], unit="steps")
    assert "steps 1,000 to 2,000" in many


def test_tiles_tell_steps_and_returns() -> None:
    text = Page(page(recorded("ppo_cartpole"))).text
    assert "Steps62,219in 3 min 42 s" in text
    assert "Return in training24.6 → 500" in text
    assert "Return in evaluation500best of 12 evaluations, at step 11,118" in text


def test_evaluations_far_apart_are_joined_and_not_averaged() -> None:
    history = made(rows=100)
    evaluations = [row[Metric.RETURN_EVALUATED] for row in history if Metric.RETURN_EVALUATED in row]
    drawn = chart(page(history), "Return")
    paths = re.findall(r'class="(raw|mean) c(\d)" d="([^"]+)"', drawn)
    assert [(kind, color) for kind, color, _ in paths] == [("mean", "1"), ("mean", "2")]
    path = paths[1][2]
    assert (path.count("M"), path.count("L")) == (1, len(evaluations) - 1)
    assert f">{amount(evaluations[-1])}</text>" in drawn
    assert f'step 5,120  <tspan class="f1">■</tspan> {amount(history[4][Metric.RETURN])} ' in drawn
    assert f'<tspan class="f2">■</tspan> {amount(evaluations[0])}</text>' in drawn


def test_a_single_evaluation_is_a_dot() -> None:
    drawn = chart(page([{"step": 1000, Metric.RETURN: 20.0}, {"step": 2000, Metric.RETURN_EVALUATED: 30.0}]), "Return")
    assert 'h0"/>' in drawn
    assert ">30</text>" in drawn
    assert "best of one evaluation" in page([{"step": 2000, Metric.RETURN_EVALUATED: 30.0}])


def test_evaluations_stay_readable_where_rows_share_a_band() -> None:
    history = [{"step": n, Metric.RETURN: 1.0} for n in range(1, 1001)]
    history[2] |= {Metric.RETURN_EVALUATED: 77.5}
    assert '<tspan class="f2">■</tspan> 77.5</text>' in chart(page(history), "Return")


def test_training_without_an_evaluation_has_its_curve() -> None:
    drawn = chart(page([{"step": n, Metric.RETURN: n} for n in (1, 2, 3)]), "Return")
    assert "evaluation</li>" not in drawn
    assert ">3</text>" in drawn


@pytest.mark.parametrize(("stages", "is_shown"), [((1.0, 1.0, 1.0), False), ((1.0, 2.0, 2.0), True)])
def test_only_a_stage_that_changes_has_a_chart(stages: tuple[float, ...], is_shown: bool) -> None:
    html = page([{"step": n, Metric.RETURN: 1.0, Metric.STAGE: stage} for n, stage in enumerate(stages, 1)])
    assert ("Stage" in titles(html)) == is_shown
    assert "curriculum/stage" not in html


def test_phases_now_and_then_count_as_nothing_in_between() -> None:
    rows = [{"step": 1000 * n, Metric.TIME_ROLLOUT: 3.0, Metric.TIME_LEARN: 1.0} for n in range(1, 101)]
    for row in rows[3::4]:
        row |= {Metric.TIME_EVALUATE: 8.0}
    html = page(rows)
    assert "evaluate <b>33 %</b>" in html
    assert "rollout <b>50 %</b>" in html
    drawn = chart(html, "Seconds between measurements")
    assert 'steps 1,000 to 2,000  <tspan class="f1">■</tspan> 3 s <tspan class="f2">■</tspan> 1 s' in drawn
    assert drawn.count('<tspan class="f3">■</tspan> 4 s</text>') == 25
    assert drawn.count('<tspan class="f3">■</tspan> 0 s</text>') == 25


def test_phases_that_took_no_time_are_left_out() -> None:
    rows = [{"step": n, **dict.fromkeys(PHASES, 0.0), Metric.TIME_LEARN: 1.0} for n in (1, 2)]
    for html in (page(rows), render_page(report(rows))):
        assert re.findall(r"</i>(\w+) <b>", html) == ["learn"]


def test_numbers_in_the_table_are_those_of_the_evaluation() -> None:
    before, after = returns(10.0, 20.0, 30.0, steps=20), returns(470.0, 480.0, 490.0, steps=480)
    html = page([], comparisons=[Comparison(name="greedy", before=before, after=after)])
    assert "<span>Return, greedy</span><strong><em>20 →</em> 480</strong>" in html
    assert "3 episodes; 455 to 505 at 95 %" in html
    assert "<b>480</b><small>455 to 505</small>" in html
    assert '<span class="apart">+460</span>' in html
    for name, first, last in (("deviation", 10, 10), ("least", 10, 470), ("greatest", 30, 490), ("steps", 20, 480)):
        assert f'{name}</th><td class="range"></td><td>{first}</td><td>{last}</td>' in html


def test_bars_lie_between_the_ends_of_their_scale() -> None:
    before, after = returns(-1350.0, -1300.0, -1325.0), returns(-150.0, -170.0, -160.0)
    html = page([], comparisons=[Comparison(name="greedy", before=before, after=after)])
    assert '<th class="range"><span>−1,500</span><span>−750</span><span>0</span></th>' in html
    assert "<b>−1,325</b><small>−1,387 to −1,263</small>" in html
    lefts = [float(left) for left in re.findall(r"left:(-?[\d.]+)%", html)]
    assert all(0 <= left <= 100 for left in lefts)
    assert 'class="at after" style="left:89.3%"' in html


def test_a_worse_return_is_marked_as_one_and_one_within_chance_as_that() -> None:
    good, bad, near = returns(100.0, 101.0), returns(5.0, 6.0), returns(80.0, 120.0)
    html = page([], comparisons=[Comparison(name="a", before=good, after=bad)])
    assert '<span class="apart">−95</span>' in html
    html = page([], comparisons=[Comparison(name="a", before=good, after=near)])
    assert '<span class="chance">−0.5</span>' in html


def test_one_episode_has_no_interval_and_none_has_no_number() -> None:
    html = page([], comparisons=[Comparison(name="greedy", before=returns(), after=returns(21.0))])
    assert "<strong><em>– →</em> 21</strong><small>one episode</small>" in html
    assert "<td>–</td><td><b>21</b></td><td>–</td>" in html
    Page(html)
    html = page([], comparisons=[Comparison(name="greedy", before=returns(20.0), after=returns(20.0))])
    assert '<span class="chance">+0</span>' in html


def test_language_and_control_stand_side_by_side() -> None:
    language = Comparison(name=HOSTILE, before=judged(7), after=judged(95))
    control = Comparison(name=HOSTILE, before=returns(1.0, 2.0), after=returns(3.0, 4.0))
    html = page([], comparisons=[language, control])
    Page(html)
    assert "<script" not in html
    assert "<b>95 %</b><small>89–98</small>" in html
    assert "<b>3.5</b>" in html


def test_findings_of_a_control_run_are_on_the_page() -> None:
    text = Page(page(recorded("ppo_collapse"))).text
    assert "Policy collapse" in text
    assert "target_kl" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (9.3712, "9.37"), (475.6, "476"), (-1334.2, "−1,334"), (2.5e6, "2.5M"), (math.nan, "–"), (-0.5, "−0.5")],
)
def test_amounts_are_whole_from_a_hundred(value: float, shown: str) -> None:
    assert amount(value) == shown


@pytest.mark.parametrize(("low", "high"), [(0, 0), (500, 500), (-200, -200), (-1276, -127), (1e-4, 3e-4), (0, 1e6)])
def test_a_round_span_holds_both_ends(low: float, high: float) -> None:
    first, last = round_span(low, high)
    assert first <= low <= high <= last
    assert last > first


def test_a_few_evaluations_high_above_much_training_are_where_they_are() -> None:
    history = [{"step": n, Metric.RETURN: 20 + 0.3 * n} for n in range(1, 101)]
    history[-1] |= {Metric.RETURN_EVALUATED: 282.0}
    drawn = chart(page(history), "Return")
    ticks = {text: float(y) for y, text in re.findall(r'y="([\d.]+)" text-anchor="end">([\d,]+)</text>', drawn)}
    (evaluated,) = re.findall(r'class="dot f2" cx="[\d.]+" cy="([\d.]+)"', drawn)
    assert "300" in ticks
    assert ticks["300"] < float(evaluated) + 3.5 < ticks["200"]
    assert "highest" not in drawn


def test_the_steps_have_round_numbers_between_the_first_and_the_last() -> None:
    drawn = chart(page([{"step": n, Metric.RETURN: 1.0 * n} for n in range(1000, 101_000, 1000)]), "Return")
    along = [(float(x), text) for x, text in re.findall(r'<text x="([\d.]+)" y="151"[^>]*>([^<]+)</text>', drawn)]
    assert [text for _, text in along if "step" not in text] == ["1,000", "25,000", "50,000"]
    assert re.search(r"M\d+\.\d 136v3", drawn)


@pytest.mark.parametrize("value", [-999_999.0, -730_298.0, 123_456.0])
def test_long_numbers_stay_on_the_card(value: float) -> None:
    drawn = chart(page([{"step": n, Metric.RETURN: value * n / 3} for n in (1, 2, 3)]), "Return")
    beside = re.findall(r'text-anchor="end">([^<]+)</text>|class="end"[^>]*>([^<]+)</text>', drawn)
    assert all(len(left + right) <= 6 for left, right in beside if "step" not in left + right), beside
