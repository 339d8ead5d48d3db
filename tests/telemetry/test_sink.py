"""The places of metrics; a kill and a resumption leave no trace in them."""

import json
import math
import signal
import subprocess
import sys
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.config import TrainConfig
from loomrl.errors import ArtifactError
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import JsonLines, metrics_file, open_sinks, read_metrics


def write(file: Path, first: int, last: int, *, step: int) -> None:
    ticks = count()
    with JsonLines(file, step=step, clock=lambda: float(next(ticks))) as sink:
        for update in range(first, last + 1):
            sink.write(update, {Metric.SUCCESS: update / 10, Metric.POLICY_KL: update / 7})


def without_time(file: Path) -> list[dict[str, float]]:
    return [{name: value for name, value in row.items() if name != "time"} for row in read_metrics(file)]


def test_a_line_holds_step_time_and_metrics_by_their_names(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "metrics.jsonl"
    with JsonLines(file, step=0, clock=lambda: 12.5) as sink:
        sink.write(1, {Metric.SUCCESS: 0.5, Metric.SUCCESS.of("Math/algebra"): 0.25})
        assert file.read_text() == '{"step": 1, "time": 12.5, "success": 0.5, "success/Math/algebra": 0.25}\n'


def test_what_is_no_number_is_null_on_file_and_nan_when_read(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    with JsonLines(file, step=0) as sink:
        sink.write(1, {"policy/kl": math.nan, "gradient/norm": math.inf})
    assert json.loads(file.read_text())["policy/kl"] is None
    (row,) = read_metrics(file)
    assert math.isnan(row["policy/kl"])
    assert math.isnan(row["gradient/norm"])


@settings(max_examples=40, deadline=None)
@given(done=st.integers(0, 8), written=st.integers(0, 8), torn=st.integers(0, 60))
def test_a_resumed_file_equals_one_that_never_stopped(
    tmp_path_factory: pytest.TempPathFactory, done: int, written: int, torn: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    whole, resumed = folder / "whole.jsonl", folder / "resumed.jsonl"
    write(whole, 1, 8, step=0)
    # Metrics are written before the checkpoint counts: there are at least as many as the checkpoint has updates.
    write(resumed, 1, max(done, written), step=0)
    with resumed.open("a") as stream:
        stream.write('{"step": 9, "time": 1.0, "success": 0.9, "policy/kl": 1.2}'[:torn])
    write(resumed, done + 1, 8, step=done)
    assert without_time(resumed) == without_time(whole)
    assert [row["step"] for row in read_metrics(resumed)] == list(range(1, 9))


def test_bytes_that_are_no_text_at_the_end_are_dropped_too(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    write(file, 1, 1, step=0)
    whole = file.read_bytes()
    file.write_bytes(whole + b"\x00\xff\x00")
    JsonLines(file, step=1).close()
    assert file.read_bytes() == whole


def test_a_broken_line_in_the_middle_names_itself(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\nnonsense\n{"step": 3}\n')
    with pytest.raises(ArtifactError, match=r"line 2.*nonsense.*move the file away"):
        read_metrics(file)


def test_an_update_told_again_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    with JsonLines(file, step=0) as sink:
        sink.write(0, {"success": 0.1})
    with JsonLines(file, step=0) as sink:
        sink.write(0, {"success": 0.2})
        sink.write(1, {"success": 0.3})
    assert [(row["step"], row["success"]) for row in read_metrics(file)] == [(0, 0.1), (1, 0.3)]


def test_a_run_without_a_file_has_no_metrics(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "absent.jsonl") == []


@pytest.mark.system
def test_every_line_that_was_written_outlives_a_sigkill(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    code = (
        "import itertools, sys; from pathlib import Path; from loomrl.telemetry.sink import JsonLines\n"
        "sink = JsonLines(Path(sys.argv[1]), step=0)\n"
        "for step in itertools.count(1): sink.write(step, {'success': 0.5}); print(step, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [int(child.stdout.readline()) for _ in range(200)]
        child.send_signal(signal.SIGKILL)
    assert [row["step"] for row in read_metrics(file)][:200] == said


def test_json_lines_are_the_sink_of_every_run(tmp_path: Path) -> None:
    train = TrainConfig(folder=str(tmp_path))
    with open_sinks(train, run="r", experiment={}, step=0) as sink:
        sink.write(1, {Metric.SUCCESS: 1.0})
    assert metrics_file(train, "r") == tmp_path / "r" / "metrics.jsonl"
    assert without_time(metrics_file(train, "r")) == [{"step": 1, "success": 1.0}]


def test_metrics_know_what_they_are_split_by() -> None:
    names = [Metric.SUCCESS, Metric.SUCCESS.of("Math/b"), Metric.SUCCESS.of("Math/a"), "success_rate"]
    assert Metric.SUCCESS.parts(names) == ["Math/a", "Math/b"]


def test_every_metric_says_what_it_means() -> None:
    assert all(metric.meaning.endswith(".") for metric in Metric)


def test_scalars_are_there_for_tensorboard_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = TrainConfig(folder=str(tmp_path))
    if find_spec("tensorboard") is None:
        with open_sinks(train, run="without", experiment={}, step=0) as sink:
            sink.write(1, {"success": 0.5})
        assert not (tmp_path / "without" / "tensorboard").exists()
        (tmp_path / "tensorboard").mkdir()
        (tmp_path / "tensorboard" / "__init__.py").touch()
        monkeypatch.syspath_prepend(tmp_path)
    for first, last in ((1, 3), (2, 4)):  # killed, and gone on with from its checkpoint at step 1
        with open_sinks(train, run="r", experiment={}, step=first - 1) as sink:
            for step in range(first, last + 1):
                sink.write(step, {"success": step / 10})
    files = sorted((tmp_path / "r" / "tensorboard").iterdir(), key=lambda file: file.suffix)
    found = [event for file in files for event in events(file)]
    told = [(event.step, round(event.summary.value[0].simple_value, 3)) for event in found if event.summary.value]
    assert told == [(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.2), (3, 0.3), (4, 0.4)]
    assert [event.step for event in found if event.session_log.status] == [2]  # from here on, what was before is void


def events(file: Path) -> list[Any]:
    """Of a file as TensorBoard reads it: length, its sum, an event, its sum, and so on."""
    from tensorboardX.proto.event_pb2 import Event

    data, found = file.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


OFFLINE = """
import sys
from loomrl.config import TrainConfig, WandB
from loomrl.telemetry.sink import open_sinks
train = TrainConfig(folder=sys.argv[1], wandb=WandB(project="weaving", mode="offline"))
for first, last in ((1, 3), (4, 5)):
    with open_sinks(train, run="run-7", experiment={"name": "tiny", "seed": 3}, step=first - 1) as sink:
        for step in range(first, last + 1):
            sink.write(step, {"success": step / 10})
"""


@pytest.mark.system
def test_wandb_keeps_a_run_and_its_resumption_offline_under_one_id(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", OFFLINE, str(tmp_path)], check=True, timeout=120)
    records = sorted((tmp_path / "run-7").glob("wandb/offline-run-*-run-7*/run-run-7.wandb"))
    assert len(records) == 2, list(tmp_path.rglob("*"))
    written = b"".join(record.read_bytes() for record in records)
    assert b"weaving" in written
    assert b"tiny" in written
    assert b"success" in written
    assert [row["step"] for row in read_metrics(tmp_path / "run-7" / "metrics.jsonl")] == [1, 2, 3, 4, 5]
