"""What is submitted and what is said of jobs, with a server that speaks as a dashboard of Ray does.

`test_job.py` has real clusters.
"""

import json
import re
import socket
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import ray

from loomrl.errors import ClusterError
from loomrl.experiments.shipped import resolve
from loomrl.load import load
from tests.answering import answering
from tests.command_line import typed, typed_json

CONTROL = ["control/cartpole", "train.steps=600", "placement.driver={cpus: 2, resources: {trial: 1}}"]
RESULT = {"run": "r", "policy": "r/600", "updates": 3, "seconds": 1.0, "stopped": "all done"}


class Dashboard:
    """Jobs are over at once, as they are asked to be."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.parcels: list[bytes] = []
        self.ends = {"status": "SUCCEEDED", "driver_exit_code": 0}
        self.nodes = [socket.gethostname()]

    def answer(self, method: str, path: str, body: bytes) -> Any:
        match (method, *path.removeprefix("/api/").split("/")):
            case ["GET", "version"]:
                return {"version": "4", "ray_version": ray.__version__, "ray_commit": "c"}
            case ["GET", "", "nodes?view=summary"]:
                return {"data": {"summary": [{"raylet": {"nodeManagerHostname": name}} for name in self.nodes]}}
            case ["PUT", "packages", *_]:
                self.parcels.append(body)
                return {}
            case ["POST", "jobs", ""]:
                asked = json.loads(body)
                id = asked["submission_id"]
                began = {"type": "SUBMISSION", "start_time": 1000 + 1000 * len(self.jobs)}
                self.jobs[id] = began | self.ends | asked
                return {"job_id": id, "submission_id": id}
            case ["POST", "jobs", id, "stop"]:
                self.jobs[id]["status"] = "STOPPED"
                return {"stopped": True}
            case ["GET", "jobs", ""]:
                return list(self.jobs.values())
            case ["GET", "jobs", id]:
                return self.jobs.get(id)
            case ["GET", "jobs", id, "logs"]:
                return {"logs": f"begun\n{json.dumps(RESULT)}\n"}
        return None


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Dashboard]:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")  # restored afterwards
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.chdir(tmp_path)
    made = Dashboard()
    with answering(made.answer) as url:
        monkeypatch.setenv("RAY_ADDRESS", url)
        yield made


def test_a_job_is_the_resolved_experiment_and_its_result_the_last_line_of_its_log(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    told = typed_json("submit", *CONTROL, "--run", "r")
    assert (told["result"], told["job"]["status"], told["job"]["experiment"]) == (RESULT, "SUCCEEDED", told["sha256"])
    asked = dashboard.jobs["r"]
    assert asked["entrypoint"] == "python -m loomrl train experiment.yaml --run r --json"
    assert (asked["entrypoint_num_cpus"], asked["entrypoint_resources"]) == (2, {"trial": 1})
    assert asked["metadata"] == {"loomrl_run": "r", "loomrl_experiment": told["sha256"]}
    with zipfile.ZipFile(BytesIO(dashboard.parcels[0])) as parcel:
        (tmp_path / "shipped.yaml").write_bytes(parcel.read("experiment.yaml"))
        assert {"loomrl/__init__.py", "loomrl/experiments/cli.py"} <= set(parcel.namelist())
    shipped = load([tmp_path / "shipped.yaml"])
    assert shipped.sha256 == told["sha256"]
    assert shipped.store_url == f"sqlite:///{tmp_path}/loom.db", "relative paths are those of here, as all nodes are"
    assert shipped.algorithm == resolve(CONTROL).algorithm
    assert typed_json("submit", *CONTROL, "--run", "r", "--no-wait")["job"]["id"] == "r.2"
    assert [job["id"] for job in typed_json("jobs", "list")["jobs"]] == ["r.2", "r"]
    assert typed_json("jobs", "show", "r")["result"] == RESULT
    assert typed("jobs", "logs", "r").startswith("begun\n")


def test_paths_of_this_machine_are_refused_on_others(dashboard: Dashboard) -> None:
    dashboard.nodes = ["elsewhere"]
    with pytest.raises(ClusterError, match=r"store_url=loom.db: relative to a folder of the job, on other machines"):
        typed("submit", *CONTROL)
    assert dashboard.jobs == {}


def test_a_job_that_died_hands_on_its_status_and_one_is_stopped(dashboard: Dashboard) -> None:
    dashboard.ends = {"status": "FAILED", "driver_exit_code": 2, "message": "no NoSuch-v1"}  # type: ignore[dict-item]
    assert "job dead: FAILED" in typed("submit", *CONTROL, "--run", "dead", code=2)
    assert re.search(r"job dead: FAILED.*no NoSuch-v1", typed("jobs", "show", "dead", code=2), re.DOTALL)
    dashboard.ends = {"status": "STOPPED"}
    assert "long is asked to stop" in typed("submit", *CONTROL, "--run", "long", "--no-wait") + typed(
        "jobs", "stop", "long"
    )
    assert "STOPPED" in typed("jobs", "show", "long", code=1)
    for verb in ("logs", "stop"):
        with pytest.raises(ClusterError, match="Did you mean 'long'"):
            typed("jobs", verb, "lnog")
