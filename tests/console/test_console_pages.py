"""What every page shows, of a store with something of everything."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from loomrl.config import HubConfig
from loomrl.console.source import RecordSource
from loomrl.experiments.shipped import resolve_any
from loomrl.gym.catalogue import make
from loomrl.hub import open_hub
from loomrl.hub.query import find_stored
from loomrl.load import dump
from loomrl.store.releases import list_releases
from loomrl.store.runs import start_run
from loomrl.store.verdicts import VERDICTS
from loomrl.store.view.trajectory_index import count_indexed
from tests.console.console_samples import HOSTILE, PAGES, new_run, played, url_in
from tests.console.console_support import Browser, console
from tests.hub.hub_samples import attempts

UNKNOWN = (
    "/runs/nope",
    "/runs/nope/metrics.json",
    "/runs/nope/report.html",
    "/runs/math-1?with=nope",
    "/compare/runs?run=math-1&run=nope",
    "/runs.csv?run=nope",
    "/reference?hub=&place=999",
    "/runs/..%2F..%2Fetc%2Fpasswd",
    "/trajectories/nope",
    "/part?hub=&place=999",
    "/part?hub=../other&place=1",
    "/tokens.json?hub=endpoint-nope&place=1",
    "/policies/nope/1",
    "/compare?a=nope&b=nope",
    "/environments/nope",
    "/sweeps/math-1",
    "/endpoints/nope",
    "/releases/nope",
    "/verdicts/nope",
    "/rewards/nope",
    "/datasets/nope",
    "/trainings/nope",
    "/ab/nope",
    "/games/nope",
    "/nope",
    "/static/nope.js",
    "/static/..%2Fapp.py",
    "/static/%2e%2e/%2e%2e/app.py",
)
MALFORMED = (
    "/trajectories/%00",
    "/runs?text=%00",
    "/runs?sort=nope",
    "/runs?status=nope",
    "/compare/runs?run=math-1",
    "/compare/runs?" + "&".join(f"run=r{number}" for number in range(9)),
    "/runs.json?sort=nope",
    "/runs?after=nope",
    "/runs?after=WzFd",
    "/policies?after=WyJ4IiwieCJd",
    "/trajectories?level_min=x",
    "/trajectories?reward_max=nan",
    "/trajectories?reward_max=1e999",
    "/trajectories?level_min=3&level_max=1",
    "/trajectories?source=nope",
    "/trajectories?before=-1",
    "/trajectories?before=1x",
    "/audit?after=99999999999999999999999",
    "/tokens.json?hub=&place=1&from=-1",
    "/tokens.json?hub=&place=1&count=1000000",
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RecordSource, Browser]]:
    url = url_in(Path(tmp_path_factory.mktemp("console")))
    with console(url) as (source, app):
        yield source, Browser(app)


def refuse_inline(text: str, path: str) -> None:
    """Nothing in a page runs, styles or loads anything that is not a file of ours."""

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            for name, value in attributes:
                assert name != "style", path
                assert not name.startswith("on"), f"{path}: {name}={value}"
                if name in ("src", "href", "action", "data-src", "data-load"):
                    assert re.match(r"/(?!/)|#|data:image/png|\?", value or ""), f"{path}: {name}={value}"
            assert tag not in ("iframe", "object", "embed", "style", "base"), path
            assert tag != "script" or dict(attributes)["src"], path

    Tags().feed(text)


@pytest.fixture
def browser(shown: tuple[RecordSource, Browser]) -> Browser:
    return shown[1]


def test_every_page_is_shown_in_strict_headers(browser: Browser) -> None:
    for path in (*PAGES.values(), "/releases/support-1/evidence", "/audit?kind=run&subject=math-1"):
        answer = browser.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text[:500]}"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy, path
        refuse_inline(answer.text, path)


@pytest.mark.parametrize(("paths", "status"), [(UNKNOWN, 404), (MALFORMED, 400)], ids=["unknown", "malformed"])
def test_what_is_not_there_or_malformed_is_answered_in_one_sentence(
    browser: Browser, paths: tuple[str, ...], status: int
) -> None:
    for path in paths:
        answer = browser.get(path)
        assert answer.status_code == status, f"{path}: {answer.text[-400:]}"
        plain = browser.get(path, headers={"accept": "application/json"})
        assert plain.status_code == status
        assert 10 < len(plain.json()["error"]) < 400, path


def test_hostile_text_is_shown_letter_by_letter_and_never_as_markup(browser: Browser) -> None:
    for path in (
        "/trajectories/hostile",
        "/trajectories?text=onerror",
        "/feedback",
        "/trajectories/session-2",
        "/audit",
    ):
        text = browser.get(path).text
        assert "<script>document" not in text, path
        assert "<img src=x" not in text, path
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\u2066\u200b\ufeff]", text), path
    shown = browser.get("/trajectories/hostile").text
    assert "&lt;script&gt;document.title" in shown
    for sign in ("⟨U+001B⟩[31m", "⟨U+202E⟩gnp.exe", "nul:⟨U+0000⟩", "⟨U+200B⟩zero", "{{7*7}}"):
        assert sign in shown, sign
    assert HOSTILE.count("{{7*7}}") == 1


def test_runs_are_sorted_filtered_and_paged_by_cursor(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomrl.console.run_table.PAGE", 2)
    for sort in ("started", "name", "headline", "status"):
        seen: list[str] = []
        path = f"/runs?sort={sort}&order=up&kind=train"
        while path:
            text = browser.get(path).text
            seen += re.findall(r'<th scope="row"><a href="/runs/([\w-]+)"', text)
            following = re.search(r'rel="next" href="([^"]+)"', text)
            path = following[1].replace("&amp;", "&") if following else ""
        assert sorted(seen) == sorted({*seen}), sort
        assert len(seen) == 6, sort
    assert "cartpole-3" not in browser.get("/runs?text=math").text
    assert 'href="/runs/math-2"' in browser.get("/runs?status=failed").text


def test_trajectories_are_filtered_by_columns_bounds_and_text(browser: Browser) -> None:
    def found(query: str) -> set[str]:
        return set(re.findall(r'<tr data-href="/trajectories/([^"]+)"', browser.get(f"/trajectories?{query}").text))

    assert found("environment=CartPole-v1") == {"episode"}
    assert found("hub=endpoint-support&text=order 7?") == {"session-7"}
    assert found("length_min=50000") == {"long"}
    assert found("ending=failed") == {"hostile", "failed"}
    assert {id.rpartition("/")[0] for id in found("run=math-1&level_min=4&level_max=4")} == {"math-1/task-3"}
    assert found("reward_min=1&success_max=0.5") == set()
    assert found("run=math-1&reward_max=0.5&source=rollout") & {"math-1/task-0/0"}


def test_a_deleted_trajectory_leaves_the_list_and_its_page(shown: tuple[RecordSource, Browser]) -> None:
    from loomrl.hub.open import open_endpoint_hub

    source, browser = shown
    assert browser.get("/trajectories/session-11").status_code == 200
    with open_endpoint_hub(source.url, "support", HubConfig()) as hub:
        hub.delete(["session-11"])
    assert browser.get("/trajectories/session-11").status_code == 404
    assert "session-11" not in browser.get("/trajectories?hub=endpoint-support").text
    assert "session-10" in browser.get("/trajectories?hub=endpoint-support").text


def test_a_long_trajectory_comes_in_parts_and_its_tokens_in_chunks(shown: tuple[RecordSource, Browser]) -> None:
    source, browser = shown
    turns: list[str] = []
    text = browser.get("/trajectories/long").text
    parts = 1
    while True:
        assert len(text) < 400_000
        turns += re.findall(r'id="turn-(\d+)"', text)
        later = re.search(r'data-src="([^"]+)"', text)
        if later is None:
            break
        text = browser.get(later[1].replace("&amp;", "&")).text
        parts += 1
    assert turns == [str(number) for number in range(1, 52)]
    assert parts > 1
    place = find_stored(source.db, "long")
    chunk = browser.get(f"/tokens.json?hub=&place={place}&from=97000&count=4000").json()
    assert chunk["total"] == 100_000
    assert len(chunk["ids"]) == 3_000
    assert all(logprob <= 0 for logprob in chunk["logprobs"])
    assert set(chunk["entropies"]) == {None}
    assert '<option value="entropy">' in browser.get("/trajectories/long").text
    assert "The quick brown fox jumps over the lazy dog" in "".join(chunk["texts"])
    aside = browser.get(f"/tokens.json?hub=&place={place}&thread=1").json()
    assert "".join(aside["texts"]) == "GoIt is right."
    assert aside["mask"] == sorted(aside["mask"])
    assert [entropy > 0 for entropy in aside["entropies"]] == [bool(drawn) for drawn in aside["mask"]]


def test_tokens_without_a_tokenizer_at_hand_stay_numbers(tmp_path: Path) -> None:
    with console(f"sqlite:///{tmp_path}/loom.db") as (source, app):
        with open_hub(source.url, HubConfig()) as hub:
            (place,) = hub.append(attempts("g", 1))
        chunk = Browser(app).get(f"/tokens.json?hub=&place={place}").json()
        page = Browser(app).get(f"/trajectories/{attempts('g', 1)[0].id}").text
    assert chunk["texts"] is None
    assert chunk["entropies"] == [None] * 3
    assert "algorithm.sampling.entropies=true" in page
    assert chunk["ids"] == [5, 6, 151_000]
    assert chunk["logprobs"] == [0, -0.5, -1.25]


def test_metrics_are_thinned_out_and_continued_from_a_number(browser: Browser) -> None:
    whole = browser.get("/runs/math-1/metrics.json").json()
    assert whole["last"] == 120
    assert whole["step"] == list(range(1, 121))
    assert whole["tokens"][-1] > whole["tokens"][0] > 10_000
    rest = browser.get("/runs/math-1/metrics.json?after=118").json()
    assert rest["step"] == [119, 120]


def test_the_page_of_a_run_is_saved_as_a_file_that_shows_it(browser: Browser) -> None:
    answer = browser.get("/runs/math-1/report.html")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''math-1.html"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "Success, greedy" in answer.text
    assert "csrf" not in answer.text


def test_each_metric_is_in_one_chart(browser: Browser) -> None:
    panels = browser.get("/runs/math-1/metrics.json").json()["panels"]
    (success,) = (each for each in panels if each["title"] == "Success")
    assert (success["note"], success["isShare"]) == ("Share of attempts that did what was asked.", True)
    named = sorted(name for panel in panels for name in panel["names"].values())
    assert named == sorted(browser.get("/runs/math-1/metrics.json").json()["values"]), "each metric in one chart"


def test_an_attempt_says_why_it_earned_nothing_and_what_would_have_been_right(
    shown: tuple[RecordSource, Browser],
) -> None:
    source, browser = shown
    wrong = browser.get("/trajectories/wrong").text
    assert re.search(r"<dt>match</dt><dd[^>]*>different</dd>", wrong)
    assert re.search(r"<dt>rank</dt><dd[^>]*>rank 2 of 2, shown 1\.: It answers &lt;another&gt; question\.</dd>", wrong)
    load = re.search(r'data-load="([^"]+)"', wrong)
    assert load is not None
    place = source.find("right")
    assert place is not None
    answer = place.trajectory.turns[0].action
    assert f">{escape(answer)}</pre>" in browser.get(unescape(load[1])).text, "the oracle's answer to the same task"
    other = re.search(r'data-load="([^"]+)"', browser.get("/trajectories/math-1/task-0/1").text)
    assert other is not None
    assert "asks something else" in browser.get(unescape(other[1])).text, "never another task's answer"
    assert "Reference answer" not in browser.get("/trajectories/session-3").text


def test_no_program_that_a_run_names_is_started_for_a_reference(tmp_path: Path) -> None:
    trap, attempt = tmp_path / "stockfish", played()[1]
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    settings = f"{{stockfish: {trap}, max_steps: 7}}"
    experiment = resolve_any(["language/math_tiny", f"environments=[{{id: Game, settings: {settings}}}]"])
    begun = new_run("r", experiment=experiment.sha256, resolved=dump(experiment))
    task = make("Game").task("chess", 1, 7)
    with console(f"sqlite:///{tmp_path}/loom.db") as (source, app):
        start_run(source.db, begun)
        with open_hub(source.url, HubConfig()) as hub:
            (place,) = hub.append([replace(attempt, id="game", run="r", task=task)])
        answer = Browser(app).get(f"/reference?hub=&place={place}")
    assert answer.status_code == 200
    assert not (tmp_path / "sprung").exists()


def test_the_audit_pages_back_to_the_first_event(browser: Browser) -> None:
    positions: list[int] = []
    path = "/audit"
    while path:
        text = browser.get(path).text
        positions += (int(each.replace(",", "")) for each in re.findall(r'<td class="num">([\d,]+)</td>\s*</tr>', text))
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = following[1].replace("&amp;", "&") if following else ""
    assert positions == sorted(positions, reverse=True)
    assert positions[-1] == 1
    assert len(positions) == positions[0]


def test_a_person_plays_an_environment(browser: Browser) -> None:
    begun = browser.submit("/environments/Math", page="/environments/Math", family="", level="1")
    assert begun.status_code == 303, begun.text
    path = begun.headers["location"]
    assert 'name="action"' in browser.get(path).text
    acted = browser.submit(path.partition("#")[0], page=path, action="<answer>12345</answer>")
    assert acted.status_code == 303, acted.text
    assert re.search("Over, success|Your action", browser.get(path).text)


def test_the_index_is_whole_and_built_once_by_two(shown: tuple[RecordSource, Browser]) -> None:
    from loomrl.console.source import Indexer

    source, _ = shown
    before = count_indexed(source.index)
    assert Indexer(source).round() == Indexer(source).round() == 0
    assert count_indexed(source.index) == before
    assert before in (24 + 7 + 12, 24 + 7 + 11), "with or without one that a test deletes"


def test_verdict_and_its_release_are_shown_after_a_thousand_later_verdicts(tmp_path: Path) -> None:
    with console(url_in(tmp_path)) as (source, app):
        with source.db.write() as connection:
            row = dict(connection.execute(select(VERDICTS.table)).mappings().one())
            del row["position"]
            connection.execute(insert(VERDICTS.table), [{**row, "id": f"later-{number}"} for number in range(1000)])
        browser = Browser(app)
        assert browser.get("/verdicts/verdict-1").status_code == 200
        release = next(iter(list_releases(source.db))).release
        assert "/verdicts/verdict-1" in browser.get(f"/releases/{release}").text
