"""Metrics of runs, lists and the index of trajectories, on both databases."""

from dataclasses import replace
from typing import Any

import pytest

from loomrl.config import HubConfig
from loomrl.hub.open import open_hub
from loomrl.hub.query import Tried, count_attempts, find_stored, glimpses, places_with, read_stored, siblings_of
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.events import EVENTS, Event
from loomrl.store.policies import record_policy
from loomrl.store.runs import Run, RunStatus, finish_run, start_run
from loomrl.store.view.metrics import (
    append_metrics,
    cut_metrics,
    headlines,
    last_numbers,
    newest_metrics,
    read_metrics,
    sample_metrics,
)
from loomrl.store.view.policy_list import ancestors_of, page_of_policies
from loomrl.store.view.run_list import RunFilter, page_of_runs
from loomrl.store.view.trajectory_index import (
    Indexed,
    TrajectoryFilter,
    choices,
    drop_indexed,
    extend_index,
    find_indexed,
    page_of,
    read_index_cursor,
)
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import Stored, new_metrics
from loomrl.types import PolicyVersion
from tests.hub.hub_samples import attempts

RUN = Run(id="a", name="a", kind="train", experiment="0" * 64, resolved="{}", code="c", environments={}, started_at=1.0)
ROW = Indexed(
    hub="", place=1, id="t-1", run="a", environment="Math", family="f", level=1, source="rollout", ending="terminated",
    reward=0.5, success=0.0, length=10, version=3, created_at=1.0,
)  # fmt: skip


def test_metrics_of_a_resumed_run_equal_those_of_one_that_never_stopped(store: LoomDB) -> None:
    def made(step: int) -> dict[str, float]:
        return {
            Metric.SUCCESS: step / 10,
            Metric.POLICY_LOSS: float("nan"),
            Metric.ENGINE_TOKENS_PER_S: 100.0,
            Metric.TIME_ROLLOUT: 2.0,
        }

    with Stored(store, "a", step=0, clock=lambda: 5.0) as sink:
        for step in (1, 2, 2, 3, 4):  # a step again, as after a restart
            sink.write(step, made(step))
    with Stored(store, "b", step=0, clock=lambda: 5.0) as sink:
        for step in (1, 2, 3):
            sink.write(step, made(step))
    with Stored(store, "b", step=2, clock=lambda: 5.0) as sink:  # the third was after the last checkpoint
        assert [row.step for row in read_metrics(store, "b")] == [1, 2]
        for step in (2, 3, 4):
            sink.write(step, made(step))
    first, second = read_metrics(store, "a"), read_metrics(store, "b")
    assert [replace(row, run="") for row in first] == [replace(row, run="") for row in second]
    assert [row.number for row in first] == [1, 2, 3, 4]
    assert [row.tokens for row in first] == [200.0, 400.0, 600.0, 800.0]
    assert first[0].values["policy/loss"] is None
    assert read_metrics(store, "a", after=3)[0].step == 4


def test_curves_are_thinned_out_evenly_and_end_at_the_end(store: LoomDB) -> None:
    for step in range(1, 101):
        append_metrics(store, new_metrics("a", step, {Metric.RETURN: float(step)}), at=1.0)
    append_metrics(store, new_metrics("b", 7, {"other": 1.0}), at=1.0)
    every, rows = sample_metrics(store, "a", most=30)
    assert every == 4
    assert [row.step for row in rows] == [1, *range(4, 101, 4)]
    assert last_numbers(store, ["a", "b", "none"]) == {"a": 100, "b": 1}
    curves = headlines(store, {"a": 100, "b": 1}, most=10)
    assert curves == {"a": [float(step) for step in range(10, 101, 10)], "b": []}
    assert [run for _, run in newest_metrics(store, after=99)] == ["a", "b"]
    cut_metrics(store, "a", step=50)
    assert last_numbers(store, ["a"]) == {"a": 50}


def test_runs_page_by_every_order_without_gaps_or_repetitions(store: LoomDB) -> None:
    for number in range(7):
        start_run(store, replace(RUN, id=f"r{number}", name=f"n{number % 2}", started_at=float(number // 2)))
        if number % 3:
            append_metrics(store, new_metrics(f"r{number}", 1, {Metric.SUCCESS: number / 10}), at=1.0)
    finish_run(store, "r3", status=RunStatus.FINISHED, finished_at=9.0)
    for sort in ("started", "name", "status", "kind", "headline"):
        for down in (True, False):
            seen: list[Any] = []
            after = None
            while True:
                page = page_of_runs(store, RunFilter(sort=sort, down=down), after=after, limit=2)
                seen += page.runs
                if (after := page.next) is None:
                    break
            assert sorted(run.id for run in seen) == [f"r{number}" for number in range(7)], (sort, down)
    best = page_of_runs(store, RunFilter(sort="headline"), after=None, limit=2).runs
    assert [run.id for run in best] == ["r5", "r4"]
    assert [run.id for run in page_of_runs(store, RunFilter(status="finished"), after=None, limit=9).runs] == ["r3"]
    assert [run.id for run in page_of_runs(store, RunFilter(text="%"), after=None, limit=9).runs] == []


def test_policies_page_newest_first_and_know_their_ancestors(store: LoomDB) -> None:
    start_run(store, RUN)
    for number in range(5):
        record_policy(
            store,
            PolicyVersion(id=f"a/{number}", number=number, url="u", run="a", algorithm="x", experiment="0" * 64,
                          parent=f"a/{number - 1}" if number else None, created_at=float(number // 2)),
        )  # fmt: skip
    first = page_of_policies(store, run="a", stage="", after=None, limit=3)
    second = page_of_policies(store, run="", stage="candidate", after=first.next, limit=3)
    assert [each.number for each in (*first.policies, *second.policies)] == [4, 3, 2, 1, 0]
    assert second.next is None
    assert [each.number for each in ancestors_of(store, first.policies[0], most=2)] == [3, 2]


def test_the_index_pages_any_filter_and_says_how_far_it_looked(store: LoomDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomrl.store.view.trajectory_index.WINDOW", 7)
    rows = [replace(ROW, place=n, id=f"t-{n}", run=f"r{n % 3}", level=n % 4, reward=float(n)) for n in range(1, 31)]
    assert extend_index(store, "", rows, after=0, up_to=30)
    assert not extend_index(store, "", rows, after=0, up_to=30), "somebody else was faster"
    assert read_index_cursor(store, "") == 30

    def ids(wanted: TrajectoryFilter, **more: Any) -> list[int]:
        found: list[int] = []
        before = None
        while True:
            page = page_of(store, wanted, before=before, limit=4, **more)
            found += [row.place for _, row in page.rows]
            if (before := page.next) is None:
                return found

    assert ids(TrajectoryFilter()) == list(range(30, 0, -1))
    assert ids(TrajectoryFilter(equal={"run": "r1"}, bounds={"level": (2, None), "reward": (None, 20)})) == [19, 10, 7]
    assert ids(TrajectoryFilter(), keep=lambda rows: [each for each in rows if each[1].place % 10 == 0]) == [30, 20, 10]
    monkeypatch.setattr("loomrl.store.view.trajectory_index.BUDGET_S", 0.0)
    rare = page_of(store, TrajectoryFilter(bounds={"reward": (None, 2)}), before=None, limit=4)
    assert (rare.rows, rare.next, rare.looked) == ([], 24, 7)
    assert choices(store, "run") == ["r0", "r1", "r2"]
    drop_indexed(store, "", [30])
    assert find_indexed(store, "t-30") is None
    assert find_indexed(store, "t-29") == rows[28]


def test_events_page_backwards_by_kind_and_subject(store: LoomDB) -> None:
    new = [
        Event(kind=kind, subject=subject, created_at=1.0)
        for kind in ("run.started", "run.ended", "runner.x")
        for subject in "ab"
    ]
    EVENTS.append(store, new)
    assert EVENTS.kinds(store) == ["run.ended", "run.started", "runner.x"]
    found = EVENTS.recent(store, kind="run", limit=3)
    assert [(event.kind, event.subject) for _, event in found] == [
        ("run.ended", "b"),
        ("run.ended", "a"),
        ("run.started", "b"),
    ]
    assert len(EVENTS.recent(store, kind="run", before=found[-1][0])) == 1
    assert len(EVENTS.recent(store, kind="run.ended", subject="a")) == 1


def test_a_hub_is_looked_into_without_being_one(store_url: str) -> None:
    with open_hub(store_url, HubConfig()) as hub:
        hub.append([*attempts("g", 2), *attempts("h", 2, success=0.0)])
    db = open_store(store_url)
    try:
        reached, stored = read_stored(db, after=0, limit=3)
        assert [each.trajectory.id for each in stored] == ["g/0", "g/1", "h/0"]
        assert reached == stored[-1].place
        place = find_stored(db, "h/1")
        assert [each.id for each in siblings_of(db, place)] == ["h/0", "h/1"]
        assert places_with(db, [place, reached], "1 + 1 = ?") == {place, reached}
        assert places_with(db, [place, reached], "h/1") == {place}
        assert places_with(db, [place], "1 + 1 = !") == set()
        assert glimpses(db, [place, 999], most_bytes=10) == {place: None}
        seen = glimpses(db, [place], most_bytes=10_000)[place]
        assert seen.id == "h/1"
        assert count_attempts(db) == {"Math": Tried(attempts=4, failed=0, success=2.0)}
    finally:
        db.close()


def test_a_postgresql_beside_has_its_schema_whatever_options_the_url_has(postgres_url: str) -> None:
    with open_store(beside(f"{postgres_url}?options=-cstatement_timeout=50000", "hub")) as db, db.read() as connection:
        assert connection.exec_driver_sql("SHOW search_path").scalar() == '"hub"'
