"""Alarms that begin and end, and reports for people."""

import json
from pathlib import Path

import pytest

from loomrl.artifacts import open_artifacts
from loomrl.config.loop import Alarms
from loomrl.coordinator.alarm import CLEARED, BusWatch, Collection, Signs, alarms, open_alarms, record_alarms
from loomrl.coordinator.contract import ALERT
from loomrl.coordinator.decision import Alert
from loomrl.coordinator.job import Code, JobFault, JobPhase
from loomrl.coordinator.report import DailyReport, after, daily, find_report, keep, markdown, store
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event
from tests.coordinator.plans import DAY, HOUR, MINUTE, NOW, job, plan


def names(signs: Signs) -> list[str]:
    return [alert.name for alert in alarms(Alarms(), signs)]


def test_alarms_begin_beyond_their_bounds_and_not_at_them() -> None:
    assert names(Signs(collected=90, lost=10)) == []
    assert names(Signs(collected=89, lost=11)) == ["collection_errors"]
    assert names(Signs(collected=1, lost=9)) == [], "ten say nothing about a share"
    assert names(Signs(bus_away_s=5 * MINUTE)) == []
    assert names(Signs(bus_away_s=5 * MINUTE + 1)) == ["bus_away"]
    assert names(Signs(unreachable="no dashboard")) == ["training_unreachable"]
    assert names(Signs(stuck_s=61 * MINUTE, stuck_by="a release is open")) == ["release_stuck"]


def test_alarm_is_told_once_when_it_begins_and_once_when_it_ends(store: LoomDB) -> None:
    first, other = Alert("bus_away", "for 6 minutes"), Alert("bus_away", "for 7 minutes")
    assert record_alarms(store, "e", [first], at=NOW) == [first]
    assert record_alarms(store, "e", [other], at=NOW + 60) == []
    assert open_alarms(store, "e") == {"bus_away": NOW}
    assert record_alarms(store, "e", [], at=NOW + 90) == []
    assert record_alarms(store, "e", [other], at=NOW + 99) == [other]
    raised = [event.data["reason"] for _, event in EVENTS.read(store, kind=ALERT)]
    assert raised == ["for 6 minutes", "for 7 minutes"]
    ((_, cleared),) = EVENTS.read(store, kind=CLEARED)
    assert cleared.data == {"alert": "bus_away", "seconds": 90.0}


def test_bus_is_away_until_outbox_and_sink_are_both_back(store: LoomDB) -> None:
    watch = BusWatch(store)

    def said(kind: str, subject: str, at: float, **data: int) -> None:
        EVENTS.append(store, [Event(kind=kind, subject=subject, data=data, created_at=at)])
        watch.look()

    assert watch.away_since is None
    said("bus.away", "outbox", 10.0)
    said("bus.away", "sink", 12.0)
    assert watch.away_since == 10.0
    said("bus.back", "outbox", 20.0)
    assert watch.away_since == 12.0
    said("bus.back", "sink", 21.0)
    assert watch.away_since is None
    said("bus.rejected", "s", 22.0, contract=2, reused=1)
    said("bus.rejected", "s", 23.0, contract=1)
    assert watch.rejected == 4


def test_what_was_collected_counts_for_an_hour() -> None:
    counts = Collection()
    assert counts.last_hour(1000, 5, at=0.0) == (0, 0)
    assert counts.last_hour(1100, 5, at=HOUR / 2) == (100, 0)
    assert counts.last_hour(1150, 25, at=HOUR) == (150, 20)
    assert counts.last_hour(1150, 25, at=1.6 * HOUR) == (50, 20)
    assert counts.last_hour(1150, 25, at=2.1 * HOUR) == (0, 0)


def day(**changes: object) -> DailyReport:
    usual = {
        "at": NOW,
        "endpoint": "policy",
        "jobs": (
            job("1", phase=JobPhase.DONE, at=NOW - 2 * DAY),
            job("2", phase=JobPhase.DONE, at=NOW - HOUR),
            job("3", phase=JobPhase.FAILED, at=NOW - HOUR, fault=JobFault(Code.OOM, "x")),
            job("4", phase=JobPhase.RUNNING, at=NOW, reason="run r"),
        ),
        "rewards": (0.4, 0.6),
        "confidence": 0.4,
        "collected": 900,
        "new": 40,
        "policy": "r/9",
        "since": NOW - 3 * DAY,
        "means": (0.6, 0.5),
        "alerts": [(NOW - HOUR, "jobs_failed", "three in a row")],
        "open_alarms": {"bus_away": NOW - HOUR},
    }
    return DailyReport(**usual | changes)  # type: ignore[arg-type]


def test_daily_report_has_all_that_people_want_to_know() -> None:
    report = daily(plan(), day())
    assert report["trajectories"] == {"judged": 2, "collected": 900, "since_last_training": 40}
    assert report["reward"] == {"mean": 0.5, "deviation": pytest.approx(0.1414), "confidence": 0.4}
    assert (report["jobs"]["done"], report["jobs"]["failed"]) == (1, 1)
    assert (report["model"]["policy"], report["model"]["difference"]) == ("r/9", pytest.approx(-0.1))
    assert report["issues"] == [
        "bus_away, since 2027-01-15 07:00 UTC",
        "2027-01-15 07:00 UTC jobs_failed: three in a row",
    ]
    assert any("smaller batches" in each for each in report["recommendations"])
    assert any("have callers tell outcomes" in each for each in report["recommendations"])
    page = markdown(report)
    for shown in ("# policy, 2027-01-15 08:00 UTC", "0.5 ± 0.1414", "r/9 since 2027-01-12", "4 running: run r"):
        assert shown in page
    empty = daily(plan(), day(jobs=(), rewards=(), confidence=None, means=(), alerts=[], open_alarms={}, collected=0))
    assert empty["recommendations"] == []
    assert "–" in markdown(empty)


def test_report_of_a_job_tells_duration_samples_improvement_validation_deployment_and_cost() -> None:
    made = job(
        "1",
        phase=JobPhase.DONE,
        begun_at=NOW,
        ended_at=NOW + HOUR,
        samples=500,
        policy="r/9",
        result={"after": {"greedy": 0.5}},
    )
    verdict = {"id": "v", "outcome": "allowed", "failed": [], "improvement": 0.123456}
    passage = {"id": "policy-1", "state": "done", "strategy": "canary", "reason": "it is the stable one"}
    priced = plan(reports__usd_per_hour=2.5)
    report = after(made, plan=priced, verdict=verdict, release=passage, at=NOW)
    assert (report["duration_s"], report["samples"], report["improvement"]) == (3600, 500, 0.1235)
    assert (report["cost"], report["final"]) == ({"gpu_hours": 0.0, "usd": 2.5}, {"greedy": 0.5})
    page = markdown(report)
    for shown in ("greedy 0.5", "v allowed", "policy-1 done", "2.5 USD"):
        assert shown in page
    failed = job("1", phase=JobPhase.FAILED, fault=JobFault(Code.DATA, "nothing is left"))
    bare = after(failed, plan=plan(), verdict=None, release=None, at=NOW)
    assert "Error: DATA: nothing is left" in markdown(bare)
    assert bare["cost"] == {"gpu_hours": None, "usd": None}


def test_report_is_made_once_and_its_files_follow(store_db: LoomDB, tmp_path: Path) -> None:
    artifacts = open_artifacts(str(tmp_path / "artifacts"))
    report = daily(plan(), day())
    assert keep(store_db, artifacts, "policy/2027-01-15", report, at=NOW)
    assert not keep(store_db, artifacts, "policy/2027-01-15", report | {"endpoint": "other"}, at=NOW)
    assert find_report(store_db, "policy/2027-01-15") == json.loads(json.dumps(report))
    page = tmp_path / "artifacts/reports/policy/2027-01-15.md"
    page.unlink()
    store(store_db, artifacts, "policy/2027-01-15")
    assert json.loads(page.with_suffix(".json").read_text()) == json.loads(json.dumps(report))
    assert page.is_file()


@pytest.fixture
def store_db(store: LoomDB) -> LoomDB:
    """By another name than the function that stores."""
    return store
