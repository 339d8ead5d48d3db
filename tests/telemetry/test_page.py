"""The report as a page: whole, harmless, and with the numbers of the run."""

import math
import re
from html.parser import HTMLParser

import pytest

from loomrl.evaluation.report import judge
from loomrl.telemetry.curve import Curve, figure, line_chart, percent, smooth, stacked_chart
from loomrl.telemetry.metric import PHASES, Metric
from loomrl.telemetry.page import Answer, RunReport, Sample, duration, render_page
from loomrl.telemetry.page_table import Comparison
from loomrl.types import End, Reward, Task, Trajectory

HOSTILE = "</pre></title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;$title${body}"
VOID = {"meta"}


class Page(HTMLParser):
    """The page as a browser reads it: tags in order, text, and whether all tags are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.text += data


def report(history: list[dict[str, float]], **over: object) -> RunReport:
    settled: dict[str, object] = {
        "title": "A run",
        "run": "run-1",
        "experiment": "ab" * 32,
        "machine": "2 cores",
        "date": "2026-01-01",
        "duration_s": 222.4,
        "status": "all updates done",
        "history": history,
    }
    return RunReport(**{**settled, **over})  # type: ignore[arg-type]


def judged(rights: int, *, family: str = "algebra", count: int = 100) -> dict[str, object]:
    def attempt(index: int) -> Trajectory:
        right = float(index < rights)
        task = Task("Math", "1", family, 1 + 9 * (index % 2), index)
        return Trajectory(
            id=str(index),
            task=task,
            turns=(),
            end=End.TERMINATED,
            reward=Reward(right, {"r": right}, right),
            group=str(index),
        )

    return judge("p", map(attempt, range(count))).as_dict()


def run(updates: int) -> list[dict[str, float]]:
    return [
        {"step": n, "time": n * 1.5, Metric.SUCCESS: n / 100, Metric.POLICY_KL: n / 700} for n in range(1, updates + 1)
    ]


def test_hostile_text_stays_text_wherever_it_comes_from() -> None:
    history = [
        {"step": n, Metric.SUCCESS.of(HOSTILE): 0.5, Metric.REWARD_PART.of(HOSTILE): 0.1, HOSTILE: 1.0} for n in (1, 2)
    ]
    answer = Answer(text=HOSTILE, reward=0.5, success=1.0)
    named: dict[str, object] = dict.fromkeys(
        ("title", "run", "experiment", "machine", "date", "status", "resolved"), HOSTILE
    )
    page = report(
        history,
        **named,
        comparisons=[Comparison(name=HOSTILE, before=judged(3, family=HOSTILE), after=judged(90, family=HOSTILE))],
        samples=[Sample(task=HOSTILE, prompt=HOSTILE, before=answer, after=answer)],
    )
    html = render_page(page)
    parsed = Page(html)
    assert "<script" not in html
    assert not {"script", "img"} & set(parsed.tags)
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert parsed.text.count("alert(1)") >= 16


def test_the_page_needs_nothing_but_itself() -> None:
    html = render_page(report(run(30), comparisons=[Comparison(name="greedy", before=judged(7), after=judged(95))]))
    assert not re.findall(r"(?:src=|href|url\(|@import|https?:)", html)
    assert "prefers-color-scheme: dark" in html
    assert "default-src 'none'" in html


@pytest.mark.parametrize("updates", [0, 1, 2, 19, 1000])
def test_a_run_of_any_length_has_a_page(updates: int) -> None:
    html = render_page(report(run(updates)))
    assert "nan" not in html
    assert "No update was done." in html or updates
    assert len(html) < 200_000
    Page(html)


def test_one_update_is_drawn_as_a_dot_with_its_number() -> None:
    html = line_chart([Curve("success", [(1, 0.25)])])
    assert 'h0"/>' in html
    assert '<text class="end"' in html
    assert ">0.25</text>" in html


def test_numbers_in_the_charts_are_those_of_the_history() -> None:
    history = run(60)
    html = render_page(report(history))
    last = sum(row[Metric.SUCCESS] for row in history[-3:]) / 3
    assert re.search(rf'class="end"[^>]*>{re.escape(percent(last))}</text>', html)
    for step in (2, 30, 60):
        shown = f'update {step}  <tspan class="f1">■</tspan> {percent(step / 100)}</text>'
        assert shown in html


def test_numbers_in_the_tables_are_those_of_the_evaluation() -> None:
    before, after = judged(7), {**judged(95), "failures": {"environment: EpisodeError": 3}}
    html = render_page(report([], comparisons=[Comparison(name="greedy", before=before, after=after)]))
    assert "<em>7 % →</em> 95 %" in html
    assert "<b>95 %</b><small>89–98</small>" in html
    assert '<span class="apart">+88</span>' in html
    assert "Math/algebra" in html
    assert "Math, level 10" in html
    assert "after: 3 × environment: EpisodeError." in html


def test_a_difference_within_chance_is_marked_as_such() -> None:
    html = render_page(report([], comparisons=[Comparison(name="greedy", before=judged(50), after=judged(48))]))
    assert '<span class="chance">−2</span>' in html


def test_a_family_that_was_never_attempted_before_has_a_row() -> None:
    comparison = Comparison(name="greedy", before=judged(0, count=0), after=judged(9, family="new"))
    text = Page(render_page(report([], comparisons=[comparison]))).text
    assert "Math/new" in text


def test_a_value_that_is_no_number_leaves_a_gap() -> None:
    points = [(1, 0.1), (2, 0.2), (3, math.nan), (4, 0.4), (5, 0.5)]
    drawn = re.findall(r'class="mean c1" d="([^"]+)"', line_chart([Curve("x", points)]))[0]
    assert drawn.count("M") == 2
    assert "nan" not in drawn
    html = render_page(report([{"step": step, Metric.SUCCESS: value} for step, value in points]))
    assert "nan" not in html
    assert "update 3  <tspan" in html


def test_nothing_but_gaps_is_said_in_words() -> None:
    gaps = Curve("x", [(1, math.nan), (2, math.inf)])
    assert "No values" in line_chart([gaps])
    assert "No values" in stacked_chart([gaps])


def test_means_are_over_the_last_values_that_are_numbers() -> None:
    assert smooth([(1, 1.0), (2, math.nan), (3, 3.0), (4, 5.0)], 2)[2:] == [(3, 2.0), (4, 4.0)]


def test_a_lone_peak_does_not_flatten_the_curve() -> None:
    values = [(n, 1 + n / 100) for n in range(100)]
    html = line_chart([Curve("x", [*values[:50], (50, 1e6), *values[51:]])])
    assert "highest 1M</text>" in html
    assert max(map(float, re.findall(r'text-anchor="end">([\d.]+)</text>', html))) < 10


def test_phases_are_stacked_with_their_shares() -> None:
    history = [{"step": n, PHASES[0]: 3.0, PHASES[1]: 1.0} for n in range(1, 11)]
    html = render_page(report(history))
    assert "rollout <b>75 %</b>" in html
    assert "learn <b>25 %</b>" in html
    assert ">4 s</text>" in html


def test_findings_of_the_doctor_are_on_the_page() -> None:
    sick = [{**row, Metric.POLICY_DRIFT: 0.4} for row in run(40)]
    assert "differ by 0.400" in render_page(report(sick))
    assert "finds nothing wrong" in render_page(report(run(40)))


def test_two_updates_without_success_are_no_healthy_run() -> None:
    barren = [{"step": n, Metric.SUCCESS: 0.0, Metric.REWARD_TOTAL: 0.0, Metric.EVALUATED: 0.0} for n in (1, 2)]
    html = render_page(report(barren))
    assert "Nothing is rewarded" in html
    assert "best of" not in html, "of evaluations without success none is the best"
    few = render_page(report(run(2)))
    assert "finds nothing wrong" not in few + html
    assert "Too little to judge yet: 2 rows" in few


def test_evaluations_on_the_way_stand_beside_the_success_in_training() -> None:
    rows = [{**row, **({Metric.EVALUATED: 0.4 + n / 100} if n % 5 == 0 else {})} for n, row in enumerate(run(40), 1)]
    html = render_page(report(rows))
    assert "held-out tasks" in html
    assert "best of 8 evaluations, at update 40" in html


def test_answers_say_whether_they_were_right() -> None:
    answers = [Answer(text=f"text {s}", reward=s, success=s) for s in (0.0, 0.5, 1.0)]
    samples = [Sample(task="t", prompt="p", before=None, after=answer) for answer in answers]
    text = Page(render_page(report([], samples=samples))).text
    assert "✗ wrong" in text
    assert "50 % right" in text
    assert "✓ right" in text
    assert text.count("there is no answer") == 3


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.9123, "0.912"),
        (8234, "8.23k"),
        (3e-4, "3e-4"),
        (-0.5, "−0.5"),
        (2.5e6, "2.5M"),
        (999.9, "1k"),
        (2e10, "20G"),
        (math.nan, "–"),
    ],
)
def test_figures_have_three_digits_that_matter(value: float, shown: str) -> None:
    assert figure(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0 %"), (0.072, "7.2 %"), (0.07, "7 %"), (0.958, "96 %"), (1, "100 %")]
)
def test_percentages_have_a_decimal_where_it_matters(value: float, shown: str) -> None:
    assert percent(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.25, "0.25 s"), (42, "42 s"), (222.4, "3 min 42 s"), (7380, "2 h 3 min")]
)
def test_durations_are_told_as_people_do(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
