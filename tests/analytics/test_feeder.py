"""The feeder: every row once, whoever is killed; what LoomDB deletes goes; all of it can be made anew."""

import signal
import time
from multiprocessing.synchronize import Event as EventClass
from pathlib import Path

import pytest
from sqlalchemy import update

from loomrl.analytics import feeder
from loomrl.analytics.engine import ChdbEngine
from loomrl.analytics.feeding import Feeding
from loomrl.analytics.place import StoreLocation
from loomrl.analytics.warehouse import open_warehouse
from loomrl.bus.agent import origin_of
from loomrl.config import HubConfig
from loomrl.errors import AnalyticsError
from loomrl.hub.open import open_endpoint_hub, open_hub
from loomrl.serving.retention.erasure import carry_out
from loomrl.serving.retention.sweep import Sweeper, SweepTerms
from loomrl.store import beside, open_store
from loomrl.store.erasures import Erasure, begin_erasure
from loomrl.store.hub_tables import trajectories
from loomrl.store.observations import forget_observations, unit_hash
from loomrl.store.sessions import person_hash, record_participants
from tests.analytics.world import AT, DAY, VERSIONS, World
from tests.forks import FORKS

TABLES = ("trajectories", "rewards", "feedback", "exposures")


def counts(world: World) -> dict[str, int]:
    parts = " UNION ALL ".join(f"SELECT '{name}' AS what, count() AS n FROM {name}" for name in TABLES)
    return {row["what"]: row["n"] for row in world.ask(parts)}


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_what_is_new_is_loaded_once(world: World) -> None:
    world.fill()
    every = {"trajectories": 19, "rewards": 13, "feedback": 4, "exposures": 11}
    assert world.feed().loaded == every
    assert world.feed().total == 0
    world.judge(["talk-9"], 0.1, round=2)
    assert world.feed().loaded == {"rewards": 1}
    assert counts(world) == every | {"rewards": 14}


def test_rows_say_what_the_trajectory_says(full: World) -> None:
    (talk,), (roll,), (zero,), (judgement,) = full.ask_all(
        "SELECT * FROM trajectories WHERE id = 'talk-9'",
        "SELECT * FROM trajectories WHERE id = 'roll-3'",
        "SELECT * FROM trajectories WHERE id = 'zero-0'",
        "SELECT * FROM rewards WHERE id = 'talk-0:1'",
    )
    assert {name: talk[name] for name in ("hub", "source", "task", "version", "arms", "ending")} == {
        "hub": "endpoint-talk",
        "source": "production",
        "task": "talk/session/1",
        "version": VERSIONS[1],
        "arms": ["stable"],
        "ending": "terminated",
    }
    assert (talk["turns"], talk["tokens"], talk["sampled"], talk["seconds"], talk["success"]) == (1, 3, 2, 1.5, 1.0)
    assert talk["finished_at"].timestamp() == AT + DAY / 2
    assert (roll["hub"], roll["run"], roll["version"], roll["seconds"]) == ("math-1", "math-1", "math-1/3", 2.0)
    assert (zero["hub"], zero["version"], zero["tokens"]) == ("agent-Zero", "gpt", 90)
    assert (zero["usd"], zero["seconds"]) == (0.25, 0.5)
    assert (judgement["replaces"], judgement["version"], judgement["components"]) == (
        1,
        VERSIONS[0],
        {"task_completion": 1.0},
    )


def test_no_word_is_in_the_columns(full: World) -> None:
    for file in full.place.folder.rglob("*"):
        if file.is_file():
            assert b"secret word" not in file.read_bytes()


def test_pages_and_rounds_make_no_difference(filled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "PAGE", 2)
    monkeypatch.setattr(feeder, "OBSERVED", 1)
    assert filled.feed().loaded == {"trajectories": 19, "rewards": 13, "feedback": 4, "exposures": 11}


def test_a_reward_finds_the_version_of_a_trajectory_that_comes_with_it_and_feedback_counts_before(small: World) -> None:
    small.say("open", 1.0)
    small.feed()
    assert [(row["version"], row["said"]) for row in small.ask("SELECT * FROM satisfaction")] == [("", 1)]
    small.judge(small.serve(4), 0.5)
    small.feed()
    found = small.ask("SELECT version, count() AS n FROM rewards GROUP BY version")
    assert {row["version"]: row["n"] for row in found} == {VERSIONS[0]: 2, VERSIONS[1]: 2}


def forgotten(world: World, person: str, sessions: list[str]) -> None:
    with world.db.write() as connection:
        record_participants(connection, {(id, person_hash("talk", person)): "talk" for id in sessions})
    with open_endpoint_hub(world.url, "talk", HubConfig()) as hub:
        erasure: Erasure = begin_erasure(world.db, "talk", person, at=AT)
        carry_out(world.db, hub, erasure, at=AT)


def test_a_person_who_was_forgotten_is_in_no_table(fed: World) -> None:
    forgotten(fed, "ada", ["talk-0", "talk-1"])
    assert fed.feed(check=False).deleted == {"trajectories": 2, "rewards": 4, "feedback": 2, "exposures": 3}
    owned = (("trajectories", "id"), ("rewards", "trajectory"), ("feedback", "trajectory"))
    left = [f"SELECT {column} AS id FROM {table} WHERE id IN ('talk-0', 'talk-1')" for table, column in owned]
    left.append(f"SELECT test AS id FROM exposures WHERE unit = {unit_hash('ada')}")
    assert fed.ask(" UNION ALL ".join(left)) == []
    assert fed.feed(check=False).deleted == {}


def test_who_is_forgotten_between_reading_and_loading_goes_with_the_next_round(filled: World) -> None:
    with Feeding(filled.url, filled.place, engine=filled.engine) as feeding:
        feeding.round(report=lambda _: Midway(filled))
        assert feeding.round(check=False).deleted == {}
    assert filled.value("SELECT count() FROM trajectories WHERE id = 'talk-0'") == 0


class Midway:
    """Forgets a person when the first rows are loaded."""

    def __init__(self, world: World) -> None:
        self._world, self._is_done = world, False

    def __enter__(self) -> "Midway":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, done: int, note: str = "") -> None:
        if not self._is_done:
            self._is_done = True
            forgotten(self._world, "ada", ["talk-0"])


def test_archived_trajectories_stay_until_their_files_go(fed: World, tmp_path: Path) -> None:
    terms, later = SweepTerms(days=1, archive_days=1), time.time() + 5 * DAY
    with open_hub(beside(fed.url, "endpoint-talk"), HubConfig()) as hub:
        sweeper = Sweeper(fed.db, hub, "talk", artifact_url=str(tmp_path / "artifacts"), terms=terms)
        assert sweeper._move(later) == 10
        assert fed.feed().deleted == {}
        assert fed.feed(anew=True).loaded["trajectories"] == 19, "those in files are found there"
        assert sweeper._delete(AT + 9 * DAY) == 10
    assert fed.feed().deleted == {"trajectories": 10, "rewards": 13, "feedback": 4}


def test_old_observations_go_from_the_oldest_on(fed: World) -> None:
    assert forget_observations(fed.db, "talk", before=AT + 1) == 2
    assert fed.feed().deleted == {"exposures": 11}


def test_an_empty_place_is_made_and_another_loomdbs_is_refused(small: World, tmp_path: Path) -> None:
    small.feed()
    other = World(f"sqlite:///{tmp_path}/other.db", tmp_path)
    with pytest.raises(AnalyticsError, match=r"another LoomDB.*loomrl query load --anew"):
        other.feed()
    assert other.feed(anew=True).total == 0
    with pytest.raises(AnalyticsError, match="another LoomDB"):
        small.feed()
    other.close()


def test_another_schema_is_refused_until_it_is_made_anew(fed: World) -> None:
    with open_warehouse(fed.place, origin=origin_of(fed.db), engine=fed.engine) as warehouse:
        warehouse.remember({"schema": "7"})
    for use in (fed.feed, lambda: fed.ask("SELECT 1")):
        with pytest.raises(AnalyticsError, match=r"has schema '7', and this loomrl reads '2'.*query load --anew"):
            use()
    assert fed.feed(anew=True).loaded["trajectories"] == 19


def test_rows_that_were_loaded_twice_are_one(fed: World) -> None:
    """As by a feeder that was stopped in the middle while another one went on."""
    with open_warehouse(fed.place, origin=origin_of(fed.db), engine=fed.engine) as warehouse:
        for table in ("trajectories", "rewards"):
            warehouse.do(f"INSERT INTO {table} SELECT * FROM {table}")
    fed.feed()
    assert counts(fed) == {"trajectories": 19, "rewards": 13, "feedback": 4, "exposures": 11}


def test_a_damaged_trajectory_stops_none_of_the_others(small: World, caplog: pytest.LogCaptureFixture) -> None:
    small.serve(3)
    with open_store(beside(small.url, "endpoint-talk")) as db, db.write() as connection:
        connection.execute(update(trajectories).where(trajectories.c.position > 1).values(payload=b"LRT damaged"))
    assert small.feed().loaded == {"trajectories": 1}
    assert "the trajectory at 3: its 11 bytes are damaged" in caplog.text
    small.serve(1, first=7)
    assert small.feed().loaded == {"trajectories": 1}


def feed_in_small_pages(url: str, place: StoreLocation, has_engine: bool, loads: EventClass) -> None:
    feeder.PAGE = 20
    with Feeding(url, place, engine=ChdbEngine() if has_engine else None) as feeding:
        loads.set()
        feeding.round()


@pytest.mark.slow
@pytest.mark.system
def test_twenty_kills_leave_the_counts_of_loomdb(small: World) -> None:
    for part in range(20):
        small.judge(small.serve(150, first=150 * part), 0.5)
    small.train(2000)
    kills = 0
    while kills < 20:
        loads = FORKS.Event()
        process = FORKS.Process(target=feed_in_small_pages, args=(small.url, small.place, bool(kills % 2), loads))
        process.start()
        loads.wait(60)
        time.sleep(0.013 * kills)
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert small.feed().total > 0, "it was killed before the end"
    assert counts(small) == {"trajectories": 5000, "rewards": 3000, "feedback": 0, "exposures": 0}
    assert small.value("SELECT uniqExact(id) FROM trajectories") == 5000
    assert small.feed().deleted == {}
