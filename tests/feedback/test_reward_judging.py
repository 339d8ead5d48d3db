"""The step: every trajectory and every word of feedback becomes a reward once, on both databases, whoever dies."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from loomrl.config import HubConfig, RewardPipeline
from loomrl.feedback.reward import judging as step
from loomrl.feedback.reward.judging import Judging, JudgingRound
from loomrl.feedback.reward.pipeline import Pipeline
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.retention.erasure import forget
from loomrl.store import LoomDB, open_store
from loomrl.store.events import EVENTS
from loomrl.store.feedback import append_feedback
from loomrl.store.rewards import REWARDS, StoredReward, are_there, latest_rewards, rewards_of
from loomrl.store.sessions import person_hash, record_participants
from loomrl.types import Feedback, Trajectory
from tests.feedback.support import said, served

SETTINGS = {"window": 40, "least": 5, "watch": {"window": 50}}


@dataclass
class Desk:
    """An endpoint's database and hub, and whoever judges there."""

    url: str
    db: LoomDB
    hub: Hub

    def judging(self, db: LoomDB | None = None, **settings: Any) -> Judging:
        pipeline = Pipeline(RewardPipeline.parse(SETTINGS | settings))
        return Judging(db or self.db, self.hub, pipeline, endpoint="talk", clock=lambda: 7.0)

    def rows(self) -> list[StoredReward]:
        return [one for _, one in REWARDS.read(self.db, endpoint="talk", limit=10_000)]


@pytest.fixture
def desk(store_url: str) -> Iterator[Desk]:
    with open_store(store_url) as db, open_endpoint_hub(store_url, "talk", HubConfig()) as hub:
        yield Desk(store_url, db, hub)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "PAGE", 7)


def production(count: int, seed: int = 0) -> tuple[list[Trajectory], list[Feedback]]:
    """Trajectories of two types, and what people said about some of them."""
    rng = Random(seed)
    trajectories = [
        served(
            f"t{n}",
            *["x " * rng.randint(1, 9)] * rng.randint(1, 4),
            success=rng.choice([None, 0.0, 0.5, 1.0]),
            family=rng.choice(["session", "help"]),
        )
        for n in range(count)
    ]
    told = [said(f"f{n}", f"t{rng.randrange(count)}", "stars", rng.randint(1, 5) / 5) for n in range(count // 2)]
    return trajectories, told


def events_of(db: LoomDB, kind: str) -> list[str]:
    return [event.subject for _, event in EVENTS.read(db, kind=kind, limit=10_000)]


def test_every_trajectory_becomes_one_reward_and_one_event(desk: Desk) -> None:
    desk.hub.append([served("t0", success=1.0), served("t1")])
    assert desk.judging().drain() == JudgingRound(trajectories=2, rewards=2)
    rows = desk.rows()
    assert [(one.trajectory, one.endpoint, one.task) for one in rows] == [
        ("t0", "talk", "talk/session/1"),
        ("t1", "talk", "talk/session/1"),
    ]
    assert events_of(desk.db, "reward.made") == [one.id for one in rows]
    assert rows[0].content["components"]["task_completion"]["value"] == 1.0
    assert rows[0].content["versions"] == ["math-1/4"]
    assert desk.judging().round().is_idle, "another process goes on from the cursors"
    desk.hub.append([served("t2")])
    assert desk.judging().drain().rewards == 1


def test_new_feedback_makes_a_new_reward_and_edits_none(desk: Desk) -> None:
    desk.hub.append([served("t0", success=1.0)])
    judging = desk.judging()
    judging.drain()
    (first,) = desk.rows()
    append_feedback(desk.db, [said("f0", "t0", value=0.0, comment="my secret"), said("f1", "nowhere")])
    assert judging.drain() == JudgingRound(feedback=2, rewards=1)
    before, after = rewards_of(desk.db, "t0")
    assert before == first
    assert after.total < before.total
    assert after.confidence > before.confidence
    assert after.content["supersedes"] == before.id
    assert latest_rewards(desk.db, ["t0"]) == {"t0": after}
    assert "my secret" not in json.dumps(after.content)
    assert events_of(desk.db, "reward.made") == [before.id, after.id]


def test_feedback_that_came_first_waits_for_its_trajectory(desk: Desk) -> None:
    append_feedback(desk.db, [said("f0", "t0", value=0.0)])
    judging = desk.judging()
    assert judging.drain() == JudgingRound(feedback=1)
    desk.hub.append([served("t0")])
    assert judging.drain() == JudgingRound(trajectories=1, rewards=1)
    (only,) = desk.rows()
    assert only.content["components"]["user_feedback"]["value"] == 0.0


def test_an_endpoint_judges_its_own_trajectories_only(desk: Desk) -> None:
    desk.hub.append([served("t0")])
    desk.judging().drain()
    append_feedback(desk.db, [said("f0", "t0")])
    with open_endpoint_hub(desk.url, "other", HubConfig()) as hub:
        other = Judging(desk.db, hub, Pipeline(RewardPipeline()), endpoint="other")
        assert other.drain() == JudgingRound(feedback=1)
    assert desk.judging().drain().rewards == 1


def test_whoever_is_forgotten_meanwhile_gets_no_reward(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.hub.append([served("t0"), served("t1")])
    with desk.db.write() as connection:
        record_participants(connection, {("t0", person_hash("talk", "Ada")): "talk"})
    real = step.feedback_of

    def meanwhile(db: LoomDB, ids: Any) -> Any:
        found = real(db, ids)
        forget(db, desk.hub, "talk", "Ada", at=3.0)
        return found

    monkeypatch.setattr(step, "feedback_of", meanwhile)
    judging = desk.judging()
    judging.round()
    monkeypatch.setattr(step, "feedback_of", real)
    assert [one.trajectory for one in desk.rows()] == ["t1"]
    desk.hub.append([served("t2")])
    assert judging.drain() == JudgingRound(trajectories=1, rewards=1)


def test_judging_again_makes_rewards_only_where_the_settings_differ(desk: Desk) -> None:
    trajectories, told = production(20)
    desk.hub.append(trajectories)
    append_feedback(desk.db, told)
    desk.judging().drain()
    judging = desk.judging()
    judging.start_over()
    assert judging.drain().rewards == 0
    stricter = desk.judging(weights={"user_feedback": 2.0})
    stricter.start_over()
    assert stricter.drain().rewards == 20
    judging.start_over()
    assert judging.drain().rewards == 20, "the settings of before hold again"
    assert len({one.id for one in desk.rows()}) == len(desk.rows()) == 60
    first, _, third = rewards_of(desk.db, "t3")
    assert third.content["grounds"] == first.content["grounds"]


def expected(desk: Desk, count: int) -> tuple[list[StoredReward], list[Trajectory]]:
    """The rewards of a judgement that nothing disturbs, which are then gone."""
    trajectories, told = production(count)
    append_feedback(desk.db, told)
    with open_endpoint_hub(desk.url, "calm", HubConfig()) as hub:
        hub.append(trajectories)
        pipeline = Pipeline(RewardPipeline.parse(SETTINGS))
        Judging(desk.db, hub, pipeline, endpoint="calm", clock=lambda: 7.0).drain()
    rows = [replace(one, endpoint="talk") for _, one in REWARDS.read(desk.db, endpoint="calm", limit=1000)]
    with desk.db.write() as connection:
        connection.execute(REWARDS.table.delete().where(REWARDS.c.endpoint == "calm"))
    return rows, trajectories


@pytest.mark.usefixtures("small_pages")
def test_a_step_that_breaks_anywhere_leaves_nothing_half_done(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, trajectories = expected(desk, 40)
    desk.hub.append(trajectories)
    rng = Random(1)

    def breaking(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if rng.random() < 0.15:
                raise KeyboardInterrupt
            found = real(*args, **more)
            if rng.random() < 0.15:
                raise KeyboardInterrupt
            return found

        return call

    for name in ("store_rewards", "put_note", "latest_rewards", "feedback_of"):
        monkeypatch.setattr(step, name, breaking(getattr(step, name)))
    judging, broken = desk.judging(), 0
    while True:
        try:
            if judging.round().is_idle:
                break
        except KeyboardInterrupt:
            broken += 1
            judging = desk.judging() if broken % 2 else judging
    assert broken > 5
    assert desk.rows() == rows, "to the last digit, as if nothing had happened"
    assert Counter(events_of(desk.db, "reward.made")) == {one.id: 2 for one in rows}, "one for each endpoint"


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
@pytest.mark.usefixtures("small_pages")
def test_any_number_of_judges_make_every_reward_once(desk: Desk) -> None:
    rows, trajectories = expected(desk, 40)
    desk.hub.append(trajectories)
    failures: list[BaseException] = []
    stale: list[bool] = []

    def judge() -> None:
        try:
            with open_store(desk.url) as db:
                judging = desk.judging(db)
                while not (done := judging.round()).is_idle:
                    stale.append(done.is_stale)
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=judge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert desk.rows() == rows
    assert any(stale), "they were in each other's way"


KILLED = """
import sys
from loomrl.config import HubConfig, RewardPipeline
from loomrl.feedback.reward import judging as step
from loomrl.feedback.reward.pipeline import Pipeline
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.retention.erasure import forget
from loomrl.store import open_store
step.PAGE = 7
url, settings = sys.argv[1], eval(sys.argv[2])
with open_store(url) as db, open_endpoint_hub(url, "talk", HubConfig()) as hub:
    judging = step.Judging(db, hub, Pipeline(RewardPipeline.parse(settings)), endpoint="talk", clock=lambda: 7.0)
    while not judging.round().is_idle:
        pass
"""


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(1800)
def test_sigkill_at_any_moment_loses_and_repeats_nothing(desk: Desk) -> None:
    rows, trajectories = expected(desk, 300)
    desk.hub.append(trajectories)
    rng, made = Random(2), 0
    while made < len(rows):
        made = min(made + rng.randint(1, 80), len(rows))
        with judging_process(desk) as judge:
            while judge.poll() is None and not are_there(desk.db, "talk", after=0, count=made):
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.01))
    with judging_process(desk) as judge:
        assert judge.wait(60) == 0
    assert desk.rows() == rows
    assert Counter(events_of(desk.db, "reward.made")) == {one.id: 2 for one in rows}


@contextmanager
def judging_process(desk: Desk) -> Iterator["subprocess.Popen[bytes]"]:
    """Somebody else who judges, until the block ends."""
    judge = subprocess.Popen([sys.executable, "-c", KILLED, desk.url, repr(SETTINGS)])
    try:
        yield judge
    finally:
        judge.kill()
        judge.wait()


def test_feedback_that_parts_from_completion_raises_an_alarm_on_record(desk: Desk) -> None:
    judging = desk.judging()
    rng = Random(0)
    alarms = []
    for window in range(6):
        is_hacked = window >= 4
        trajectories = [served(f"t{window}-{n}", success=float(rng.random() < (0.95 if is_hacked else 0.3)))
                        for n in range(50)]  # fmt: skip
        told = [said(f"f{window}-{n}", f"t{window}-{n}", value=float(rng.random() < (0.1 if is_hacked else 0.9)))
                for n in range(50)]  # fmt: skip
        append_feedback(desk.db, told)
        desk.hub.append(trajectories)
        alarms.append([alarm.reason for alarm in judging.drain().alarms])
    assert alarms[:4] == [[]] * 4
    (reason,) = alarms[4]
    assert "user_feedback falls" in reason
    assert "task_completion rises" in reason
    told_events = [event for _, event in EVENTS.read(desk.db, kind="reward.alarm")]
    assert told_events[0].subject == "talk"
    assert told_events[0].data["falls"]["high"] < 0 < told_events[0].data["rises"]["low"]
    assert told_events[0].data["to"] > told_events[0].data["from"]
