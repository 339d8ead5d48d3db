"""Benchmarks run whole from the command line on little work, and print every figure."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.bench.control import zoo
from loomrl.experiments.bench.rounds import medians, run_part, spread
from loomrl.experiments.commands import bench


def benched(*words: str) -> str:
    command = [sys.executable, "-m", "loomrl", "bench", *words]
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_figures_of_rounds_are_medians_and_ratios_have_their_range() -> None:
    assert medians([{"a": 1.0, "b": 6.0}, {"a": 3.0, "b": 4.0}, {"a": 2.0, "b": 5.0}]) == {"a": 2.0, "b": 5.0}
    assert spread("ours_vs_theirs", [2.0, 1.004, 3.0]) == {"ours_vs_theirs": 2.0, "ours_vs_theirs_range": [1.0, 3.0]}


def test_a_part_that_fails_is_named_with_its_last_words() -> None:
    with pytest.raises(LoomError, match=r"(?s)control.contender unknown {} ended with 1:"):
        run_part("control.contender", "unknown", "{}", env=os.environ)


def test_rows_are_printed_as_a_table_and_other_figures_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"Math": {"turns": 5, "left_out": "no"}, "Code": {"turns": 7}}
    others = {"phase_s": {"learn": 0.5}, "tellings": [{"before": {"sum": 0.8}}], "seeds": list(range(100))}
    bench._print_figures({"environments": rows, **others, "seeds_runs": [1]})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == [["environments", "turns", "left_out"], ["Math", "5", "no"], ["Code", "7"]]
    assert lines[3:6] == [["figure", "value"], ["phase_s.learn", "0.5"], ["tellings.0.before.sum", "0.8"]]
    assert lines[6][:3] == ["seeds", "[0,", "1,"]


def assert_overlap(told: dict[str, Any]) -> None:
    assert told["async_vs_sync"] > 0
    assert 0 <= told["max_staleness_seen"] <= 1
    assert 0 <= told["overlap"] < 1
    assert told["threads"]["async"] == told["threads"]["sync"] == 1


def assert_language(told: dict[str, Any]) -> None:
    assert told["engine_tokens_per_s"] > 100
    assert told["learner_tokens_per_s"] > 100
    assert 0 <= told["idle_share"] < 1
    assert sum(told["phase_s"].values()) > 0


def assert_transfer(told: dict[str, Any]) -> None:
    assert 0 < told["nexus_bytes_ratio"] < 0.1
    assert all(0 < changed < 1 for changed in told["changed"].values())
    assert told["nexus_s"] > 0 < told["full_s"]
    assert 0 < told["check_overhead"] < 0.5
    assert {*told["publish_s"]} == {"seal", "load", "probe"}


def assert_more_actors_than_processes(told: dict[str, Any]) -> None:
    assert [row["actors"] for row in told["rows"]] == [1, 4]
    assert told["controller_share_256"] is None  # --quick does not go that far
    for row in told["rows"]:
        assert row["attempts"] == 8 * row["actors"]
        spent = [row[part] for part in ("controller_s", "hub_s", "publish_s", "rollout_s", "learn_s")]
        assert min(spent) > 0
        assert row["iteration_s"] == pytest.approx(sum(spent), abs=0.005)
        assert row["controller_share"] == pytest.approx(row["controller_s"] / row["iteration_s"], rel=0.02)
        assert row["controller_share_balanced"] >= row["controller_share"]


def assert_matches(told: dict[str, Any]) -> None:
    for kind in ("ppo", "ppo32", "sac"):
        low, high = told[f"{kind}_vs_rllib_range"]
        assert low <= told[f"{kind}_vs_rllib"] <= high
    assert told["ours_ppo_8"]["steps_per_cpu_s"] > told["rllib_ppo_8"]["steps_per_cpu_s"]
    assert told["ours_ppo_8"]["peak_mb"] > 100


def assert_pages(told: dict[str, Any]) -> None:
    assert told["slowest_page_ms_p95"] == max(told["page_ms_p95"].values()) > 0
    assert 0 < told["live_delay_ms"] <= told["live_delay_ms_p95"]


def assert_error_rates_that_peeking_breaks(found: dict[str, Any]) -> None:
    assert found["false_rollback"] <= 0.1
    assert found["missed"] <= 0.15
    assert found["detect_20"] <= 150
    assert found["detect_10"] <= 500
    rates = found["false_rollbacks"]
    assert rates["all six metrics, ramp"]["peeking"] > 0.5
    assert rates["rate 0.3 to 0.9 in a day, shares against it"]["peeking"] > 0.9
    assert found["good"]["promoted"] > 0.5


def assert_adapters_are_measured(told: dict[str, Any]) -> None:
    low, high = told["2_layers"]["adapters_ratio_range"]
    assert 0 < low <= told["2_layers"]["adapters_ratio"] <= high


def assert_forms_are_measured(told: dict[str, Any]) -> None:
    assert told["formed_tokens_per_s"] > 0
    assert 0 < told["mask_us"] <= told["mask_us_most"]


def assert_row_of_the_zoo(told: dict[str, Any]) -> None:
    row = told["rows"]["cartpole"]
    assert row["steps"] >= 2048 <= row["sb3_steps"]
    assert row["cpu_s"] / row["sb3_cpu_s"] == pytest.approx(row["ratio"], abs=0.02)


def test_rows_of_the_zoo_are_kept_beside_those_of_other_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(module: str, who: str, row: str, seed: str, *, env: Any) -> dict[str, Any]:
        cpu_s = {"ours": 2.0, "sb3": 8.0, "rllib": 20.0}[who]
        return {"return": int(seed), "cpu_s": cpu_s, "steps": 10, "peak_mb": 1, "curve": [(1, 0.0), (10, 1.0)]}

    monkeypatch.setattr(zoo, "run_part", trained)
    page = tmp_path / "zoo.md"
    for row in ("taxi", "cartpole"):
        told = zoo.measure(zoo.FULL, only=[row], seeds=[], page=page)
        assert told["rows"][row]["ratio"] == 0.25
    lines = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    shared = "| **2** (1, 2, 3) | **2** (1, 2, 3)"
    assert lines == [
        f"| `cartpole` {shared} | 500 | 10 | 10 | 2 | 8 | 0.25 |",
        f"| `taxi` {shared} |  | 10 | 10 | 2 | 8 | 0.25 |",
        "| `cartpole` | 1 | 10 | 20 | 0.10 |",  # RLlib, with one seed
    ]
    assert "taxi" in page.with_suffix(".svg").read_text()


def test_a_peer_that_is_only_timed_has_one_seed_and_no_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(module: str, who: str, row: str, seed: str, *, env: Any) -> dict[str, Any]:
        if who == "sb3":
            assert seed == "1"
            return {"cpu_s": 20.0, "steps": 1_000_000, "peak_mb": 1}
        return {"return": int(seed), "cpu_s": 2.0, "steps": 10, "peak_mb": 1, "curve": [(1, 0.0), (10, 1.0)]}

    monkeypatch.setattr(zoo, "run_part", trained)
    page = tmp_path / "zoo.md"
    assert zoo.measure(zoo.FULL, only=["hopper"], seeds=[], page=page)["rows"]["hopper"]["sb3_return"] is None
    assert "| `hopper` | **2** (1, 2, 3) |  | 2410 | 10 | 1,000,000 | 2 | ~20 | 0.10 |" in page.read_text()


def test_an_unknown_row_of_the_zoo_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bench zoo: row='cartpol' is unknown.*cartpole"):
        zoo.measure(zoo.FULL, only=["cartpol"], seeds=[], page=None)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "assert_figures"),
    [
        ("async", assert_overlap),
        ("language", assert_language),
        ("sync", assert_transfer),
        ("scale", assert_more_actors_than_processes),
        ("control", assert_matches),
        ("console", assert_pages),
        ("release", assert_error_rates_that_peeking_breaks),
        ("adapters", assert_adapters_are_measured),
        ("forms", assert_forms_are_measured),
        ("zoo", assert_row_of_the_zoo),
    ],
)
def test_quick_benchmark_prints_every_figure(name: str, assert_figures: Callable[[dict[str, Any]], None]) -> None:
    assert_figures(json.loads(benched(name, "--quick", "--json").splitlines()[-1]))
