"""Questions: the standard ones have the right figures; none runs for ever; the command."""

import csv
import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loomrl.analytics.place import StoreLocation, place_of
from loomrl.analytics.question import QueryLimits, open_asking
from loomrl.analytics.schema import STANDARD, VIEWS
from loomrl.errors import AnalyticsError, ConfigError
from loomrl.experiments.cli import app
from loomrl.parquet import from_parquet
from tests.analytics.world import VERSIONS, World


def test_time_rows_and_memory_are_limited(full: World) -> None:
    with open_asking(full.place, QueryLimits(rows=3, timeout_s=0.5, memory_mb=100)) as asking:
        answer = asking.ask("SELECT number FROM numbers(100)")
        assert (answer.rows, answer.is_cut) == ([(0,), (1,), (2,)], True)
        assert not asking.ask("SELECT number FROM numbers(3)").is_cut
        with pytest.raises(AnalyticsError, match="Timeout exceeded"):
            asking.ask("SELECT sum(sipHash64(number)) FROM numbers(1000000000000)")
        with pytest.raises(AnalyticsError, match=r"[Mm]emory limit|Timeout"):
            asking.ask("SELECT groupArray(number) FROM numbers(1000000000)")
        with pytest.raises(AnalyticsError, match="system"):
            asking.ask("SELECT name FROM system.databases")


def test_baselines_have_the_rewards_that_hold(full: World) -> None:
    rows = {row["task"]: row for row in full.ask("SELECT * FROM baselines")}
    assert set(rows) == {"talk/session/1", "walk/session/1", "Math/algebra/1", "Zero/coding/1"}
    talk, run, walk = rows["talk/session/1"], rows["Math/algebra/1"], rows["walk/session/1"]
    assert (talk["attempts"], talk["judged"], talk["success"], talk["sampled"]) == (10, 10, 1.0, 2.0)
    assert talk["reward"] == pytest.approx((3 * 1.0 + 7 * 0.5) / 10)
    assert talk["deviation"] == pytest.approx(math.sqrt((3 * 0.35**2 + 7 * 0.15**2) / 9))
    assert (run["attempts"], run["known"], run["failed"], run["reward"]) == (4, 3, 1, None)
    assert run["success"] == pytest.approx(2 / 3), "an attempt that failed is no answer"
    assert (walk["attempts"], walk["judged"], walk["reward"]) == (3, 0, None)
    for silent in (walk, rows["Zero/coding/1"]):
        assert (silent["known"], silent["success"]) == (0, None), "what nobody stated is unknown"


def test_versions_cohorts_cost_and_satisfaction_add_up(full: World) -> None:
    first, second, cost, said = full.ask_all(
        "SELECT * FROM versions",
        "SELECT * FROM cohorts WHERE metric = 'reward'",
        "SELECT source, sum(attempts), sum(known), sum(solved), sum(tokens), sum(usd) FROM cost GROUP BY source",
        "SELECT day, version, said, mean, negative FROM satisfaction",
    )
    versions = {row["version"]: row for row in first}
    assert [versions[VERSIONS[0]][name] for name in ("attempts", "judged", "known", "success")] == [5 + 2, 5, 5, 1]
    assert versions[VERSIONS[0]]["reward"] == pytest.approx((3 * 1.0 + 2 * 0.5) / 5)
    assert versions["math-1/2"]["success"] == 0.0
    cohorts = {row["arm"]: row for row in second}
    assert {arm: (row["units"], row["mean"]) for arm, row in cohorts.items()} == {"stable": (6, 0.25), "new": (5, 0.75)}
    assert sorted(tuple(row.values()) for row in cost) == [
        ("foreign", 2, 0, None, 2 * 90, 0.5),
        ("production", 13, 10, 10.0, 13 * 3, None),
        ("rollout", 4, 3, 2.0, 4 * 3, None),
    ]
    assert [(row["version"], row["mean"], row["negative"]) for row in said] == [
        (VERSIONS[0], n % 2, 1 - n % 2) for n in range(4)
    ]


def test_a_place_that_was_never_fed_says_so(tmp_path: Path) -> None:
    said = r"nothing was loaded into .* yet\. loomrl query load does it"
    with pytest.raises(AnalyticsError, match=said), open_asking(StoreLocation(folder=tmp_path / "empty")):
        pass
    assert not (tmp_path / "empty").exists()


def test_places_are_named_or_beside_loomdb(tmp_path: Path) -> None:
    assert place_of(None, f"sqlite:///{tmp_path}/loom.db").folder == tmp_path / "loom-analytics"
    assert place_of(str(tmp_path), "sqlite:///loom.db").folder == tmp_path
    place = place_of("http://me:secret@there:8123/mine", "sqlite:///loom.db")
    assert (place.database, place.name) == ("mine", "http://there:8123/mine")
    for wrong in ("ftp://there", "http://there:port"):
        with pytest.raises(AnalyticsError, match=r"ftp|port"):
            place_of(wrong, "sqlite:///loom.db")
    with pytest.raises(AnalyticsError, match="--analytics FOLDER"):
        place_of(None, "postgresql://me@there/loom")


def told(world: World, *words: str) -> Any:
    result = CliRunner().invoke(
        app, [*words, "--store", world.url, "--analytics", str(world.place.folder)], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result


def test_the_command_prints_a_table_json_csv_and_parquet(full: World, tmp_path: Path) -> None:
    result = told(full, "query", "baselines")
    assert "talk/session/1" in result.stdout
    assert "4 rows, as of 20" in result.stderr
    answer = json.loads(told(full, "query", "SELECT nan AS x, total FROM judged", "--json", "--limit", "2").stdout)
    assert (answer["columns"], len(answer["rows"]), answer["is_cut"]) == (["x", "total"], 2, True)
    assert answer["rows"][0][0] is None
    rows = list(csv.DictReader(io.StringIO(told(full, "query", "judged", "--csv").stdout)))
    assert len(rows) == 10
    many = "SELECT number FROM numbers(1001)"
    assert len(told(full, "query", many, "--csv").stdout.splitlines()) == 1002  # a file gets all rows, a screen 1,000
    assert json.loads(told(full, "query", many, "--json").stdout)["is_cut"]
    told(full, "query", "SELECT total FROM judged ORDER BY total", "--parquet", str(tmp_path / "rows.parquet"))
    assert from_parquet((tmp_path / "rows.parquet").read_bytes())["total"] == [0.5] * 7 + [1.0] * 3
    told(full, "query", "trajectories", "--parquet", str(tmp_path / "all.parquet"))
    assert len(from_parquet((tmp_path / "all.parquet").read_bytes())["id"]) == 19
    with pytest.raises(ConfigError, match="exclude each other"):
        told(full, "query", "judged", "--csv", "--json")


def test_the_command_feeds_and_makes_anew(full: World) -> None:
    assert json.loads(told(full, "query", "load", "--json").stdout)["loaded"] == {}
    assert json.loads(told(full, "query", "load", "--anew", "--json").stdout)["loaded"]["trajectories"] == 19
    assert set(STANDARD) < set(VIEWS)


@pytest.mark.system
def test_a_folder_that_is_fed_is_refused_and_may_be_asked_between_rounds(small: World) -> None:
    small.fill()
    where = ["--store", small.url, "--analytics", str(small.place.folder)]
    command = [sys.executable, "-m", "loomrl", "query", "load", "--follow", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        assert b"loaded 19 trajectories" in follower.stdout.readline()
        with pytest.raises(AnalyticsError, match=f"is fed by process {follower.pid} already: one feeder is enough"):
            told(small, "query", "load")
        assert small.value("SELECT count() FROM trajectories") == 19
        small.serve(1, first=50)
        assert b"loaded 1 trajectories" in follower.stdout.readline()
        assert "/_chdb." not in Path(f"/proc/{follower.pid}/maps").read_text(), "it would leave descriptors behind"
        follower.terminate()
