"""A training's metrics as Prometheus reads them."""

import math
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from loomrl.errors import ConfigError, ServeError
from loomrl.experiments.training import scraped
from loomrl.observability.exposition import door_at
from loomrl.store import open_store
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.record import targets
from loomrl.telemetry.sink import Exposed, read_metrics, split, training_family


def test_every_metric_has_a_name_of_its_own() -> None:
    assert len({training_family(metric).name for metric in Metric}) == len(Metric)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("success", (Metric.SUCCESS, "")),
        ("success/Math/calculus.derivative", (Metric.SUCCESS, "Math/calculus.derivative")),
        ("success/training", (Metric.SUCCESS_TOLD, "")),
        ("time/publish/seal", (Metric.TIME_PUBLISH, "seal")),
        ("policy/drift_alarm", (Metric.POLICY_DRIFT_ALARM, "")),
        ("nobody/knows", (None, "")),
    ],
)
def test_a_part_becomes_a_label(name: str, expected: tuple[Metric | None, str]) -> None:
    assert split(name) == expected


def test_a_recorded_run_is_shown_as_its_last_update_left_it() -> None:
    registry = CollectorRegistry()
    sink = Exposed(registry, run="r")
    rows = read_metrics(Path(__file__).with_name("language_run.jsonl"))
    for row in rows:
        sink.write(int(row["step"]), row)
    shown = registry.get_sample_value
    assert shown("loomrl_training_step", {"run": "r"}) == rows[-1]["step"]
    assert shown("loomrl_training_staleness_mean", {"run": "r", "part": ""}) == rows[-1]["staleness/mean"]
    part = {"run": "r", "part": "correctness"}
    assert shown("loomrl_training_reward_part", part) == rows[-1]["reward/part/correctness"]


def test_what_is_no_number_is_absent_until_it_is_one() -> None:
    registry = CollectorRegistry()
    sink = Exposed(registry, run="r")
    labels = {"run": "r", "part": ""}
    for value, expected in ((math.nan, None), (1.0, 1.0), (math.inf, None), (2.0, 2.0)):
        sink.write(1, {"success": value})
        assert registry.get_sample_value("loomrl_training_success", labels) == expected


@pytest.mark.system
def test_a_run_is_found_by_the_record_while_it_lasts(sqlite_url: str) -> None:
    with open_store(sqlite_url) as db:
        with scraped(db, "run-1", "127.0.0.1:0") as registry:
            Exposed(registry, run="run-1").write(3, {"success": 0.5})
            (target,) = targets(db)
            assert target["labels"]["run"] == "run-1"
            text = httpx.get(f"http://{target['targets'][0]}/metrics").text
            assert 'loomrl_training_success{part="",run="run-1"} 0.5' in text
            assert "process_cpu_seconds_total" in text
        assert targets(db) == []


def test_an_address_that_is_none_or_open_to_all_without_a_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOMRL_METRICS_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="HOST:PORT"):
        door_at("9464")
    with pytest.raises(ServeError, match="token"):
        door_at("0.0.0.0:0")
    monkeypatch.setenv("LOOMRL_METRICS_TOKEN", "secret")
    door = door_at("0.0.0.0:0")
    assert door.token == "secret"
    for listener in door.listeners:
        listener.close()
