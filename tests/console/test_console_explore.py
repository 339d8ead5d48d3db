"""The explorer over columns of a real store."""

import math

import pytest

from loomrl.console.chart import bar_chart, line_chart
from loomrl.console.explore import Explorer
from loomrl.errors import AnalyticsError
from tests.analytics.world import World
from tests.console.console_support import Browser, charts_in, console
from tests.needs import need


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> World:
    need("chdb")
    folder = tmp_path_factory.mktemp("explored")
    made = World(f"sqlite:///{folder}/loom.db", folder)
    made.fill()
    made.feed()
    made.close()
    return made


def test_a_question_is_answered_as_rows_a_chart_and_a_file(fed: World) -> None:
    with console(fed.url, analytics=str(fed.place.folder)) as (_, app):
        browser = Browser(app)
        page = browser.get("/explore", params={"sql": "baselines"}).text
        assert "talk/session/1" in page
        (bars,) = charts_in(page)
        assert (bars["kind"], bars["title"], bars["form"]) == ("bars", "success", "percent"), "how good, not how many"
        assert bars["values"] == [pytest.approx(2 / 3), 1]
        text = browser.get("/explore.csv", params={"sql": "SELECT task, attempts FROM baselines ORDER BY task"}).text
        assert text.splitlines()[:2] == ['"task","attempts"', '"Math/algebra/1",4']
        sql = "SELECT number AS n, number * number AS square, n % 2 ? 'odd' : '<b>even' AS kind FROM numbers(10)"
        drawn = browser.get("/explore", params={"sql": sql, "x": "n", "y": "square", "by": "kind"}).text
        (lines,) = charts_in(drawn)
        assert [line["name"] for line in lines["lines"]] == ["<b>even", "odd"]
        assert lines["lines"][0]["values"] == [0, None, 4, None, 16, None, 36, None, 64, None]
        assert "<b>even" not in drawn


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "Syntax error"),
        ("DROP TABLE rewards", "not for questions"),
        ("SELECT * FROM file('/etc/passwd')", "is refused"),
        ("SELECT nothing FROM rewards", "nothing"),
        ("SELECT sum(sipHash64(number)) FROM numbers(1000000000000)", "Timeout exceeded"),
    ],
)
def test_what_cannot_be_asked_is_answered_by_a_sentence(
    fed: World, monkeypatch: pytest.MonkeyPatch, sql: str, said: str
) -> None:
    from dataclasses import replace

    from loomrl.console import explore

    monkeypatch.setattr(explore, "SCREEN", replace(explore.SCREEN, timeout_s=0.5))
    with console(fed.url, analytics=str(fed.place.folder)) as (_, app):
        answer = Browser(app).get("/explore", params={"sql": sql})
        assert answer.status_code == 400
        assert said in answer.text
        assert sql.partition("'")[0] in answer.text


def test_a_store_that_was_never_fed_says_how(sqlite_url: str) -> None:
    need("chdb")
    with console(sqlite_url) as (_, app):
        browser = Browser(app)
        assert browser.get("/explore").status_code == 200
        answer = browser.get("/explore", params={"sql": "baselines"})
        assert answer.status_code == 400
        assert "loomrl query load" in answer.text
        assert browser.get("/explore", params={"sql": "x" * 20_001}).status_code in (400, 414)


def test_a_column_that_is_not_there_is_refused_by_name(fed: World) -> None:
    with console(fed.url, analytics=str(fed.place.folder)) as (_, app):
        answer = Browser(app).get("/explore", params={"sql": "baselines", "x": "nope"})
        assert answer.status_code == 400
        assert "task" in answer.text


def test_one_question_at_a_time(fed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from loomrl.console import explore

    explorer = Explorer(fed.url, str(fed.place.folder))
    soon = replace(explore.SCREEN, wait_s=0.05)
    with explorer._lock(soon), pytest.raises(AnalyticsError, match="another question is being answered"):
        explorer.ask("SELECT 1", soon)
    assert explorer.ask("SELECT 1 AS one", soon).rows == [(1,)]


def test_charts_hold_what_is_strange() -> None:
    assert line_chart("nothing", [], {}) == ""
    assert line_chart("nothing", [1.0], {"a": [math.nan]}) == ""
    assert bar_chart("nothing", []) == ""
    (one,) = charts_in(line_chart('"<a>\x1b', [1.0], {"<b>": [math.inf], "c": [2.0]}, x_form="clock"))
    assert one["title"] == '"<a>⟨U+001B⟩'
    assert [line["values"] for line in one["lines"]] == [[None], [2.0]]
    values = [0.0] * 50_000
    values[31_234] = 7.0
    (long,) = charts_in(line_chart("a peak", range(50_000), {"a": values}))
    assert len(long["x"]) <= 1002
    assert long["lines"][0]["values"][long["x"].index(31_234)] == 7.0
