"""Jobs and sweeps from other hosts of a cluster that wants a token, and what a stranger gets of it."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from loomrl.experiments.shipped import resolve
from loomrl.load import to_yaml
from loomrl.store import open_store
from loomrl.store.runs import RUNS, RunStatus, machine_of
from tests.cluster.lab.hosts import ENV, PASSWORD, STORE, Hosts, hosts
from tests.cluster.lab.lab_support import TOKEN, python
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(900)]
WORKERS = ("one", "two")
SECRETS = (PASSWORD, TOKEN["RAY_AUTH_TOKEN"])
ADDRESS = ("--address", "http://head:8265")
KNOCK = """
import json, re, socket, sys
found = {}
for place in sys.argv[1:]:
    host, port = place.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=3) as there:
            there.settimeout(2)
            there.sendall(b"GET / HTTP/1.1\\r\\nHost: head\\r\\nConnection: close\\r\\n\\r\\n")
            said = there.recv(4000)
            if said.startswith(b"HTTP/"):
                while more := there.recv(4000):
                    said += more
            found[place] = said.decode("latin-1")
    except OSError as error:
        found[place] = f"{type(error).__name__}"
print(json.dumps(found))
"""
"""What each place answers to one line of HTTP."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", "laptop", "stranger", *WORKERS) as found:
        found.start_ray("head", head=True, cpus=1, options=["--include-dashboard=true", "--dashboard-host=0.0.0.0"])
        for host in WORKERS:
            found.start_ray(host, cpus=2, learner=1, rollout=1, trial=1)
        yield found


def control(site: Hosts, **changes: Any) -> Any:
    places = {"rollout.runners": 1, "placement.runner.resources": {"rollout": 1}}
    return site.settled(
        resolve(["control/cartpole", "train.steps=3000", "evaluation.every=null"]).override(places | changes)
    )


def said(site: Hosts, host: str, *words: str) -> str:
    return site.lab.run(host, ["loomrl", *words, *ADDRESS], env=ENV, timeout_s=60).stdout


def test_a_job_is_submitted_from_a_host_that_has_no_ray(site: Hosts) -> None:
    (site.lab.shared / "job.yaml").write_text(to_yaml(control(site).model_dump(mode="json")))
    job = site.start("laptop", "job", ["loomrl", "submit", "/tmp/shared/job.yaml", "--run", "job", *ADDRESS])
    assert site.ended(job, "job") == 0, site.log("job")[-5000:]
    with open_store(site.store_url) as db:
        assert str(machine_of(db, "job")).startswith("head: ")
    found = site.run("job")
    assert found.status is RunStatus.FINISHED
    assert "SUCCEEDED" in said(site, "laptop", "jobs", "list")


def test_secrets_are_neither_in_process_lists_nor_in_logs_nor_in_what_a_job_says(site: Hosts) -> None:
    told = [said(site, "laptop", "jobs", what, "job") for what in ("show", "logs")]
    for host in ("head", *WORKERS):
        told.append(site.lab.run(host, ["ps", "axww", "-o", "args"]).stdout)
        logs = "find /tmp/ray/session_latest/logs -type f -exec cat {} +"
        told.append(site.lab.run(host, ["sh", "-c", logs]).stdout)
    assert len(told) == 9
    assert all(len(text) > 100 for text in told[3:])
    assert not [secret for secret in SECRETS for text in told if secret in text]


def test_trials_of_a_sweep_are_trained_on_several_hosts(site: Hosts) -> None:
    tree = control(site).model_dump(mode="json")
    sweep = {
        "name": "rates",
        "experiment": tree | {"placement": tree["placement"] | {"driver": {"resources": {"trial": 1}}}},
        "space": {"algorithm.learning_rate": {"kind": "grid", "values": [1e-4, 1e-3, 2e-3, 5e-3]}},
        "samples": 1,
        "budget": 3000,
        "concurrency": 2,
        "scheduler": None,
    }
    (site.lab.shared / "sweep.yaml").write_text(to_yaml(sweep))
    words = ["loomrl", "sweep", "/tmp/shared/sweep.yaml", "--run", "rates"]
    done = site.start("head", "sweep", words, {"RAY_ADDRESS": "head:6379"})
    assert site.ended(done, "sweep") == 0, site.log("sweep")[-5000:]
    with open_store(site.store_url) as db:
        trials = [run for run in RUNS.latest(db, kind="train") if run.id.startswith("rates-")]
        places = [str(machine_of(db, run.id)).partition(":")[0] for run in trials]
    assert len(trials) == 4
    assert set(places) == set(WORKERS)


def test_a_stranger_gets_nothing(site: Hosts) -> None:
    """While two learners and a runner work. Every open port is knocked at from a host without credentials."""
    learners = {
        "learners.count": 2,
        "placement.learner.resources": {"learner": 1},
        "train.steps": 200_000,
        "train.stop": {},
    }
    run = site.train("head", control(site, **learners), "watched")
    site.until_version("watched", 1, run)
    places = [place for host in ("head", "db", *WORKERS) for place in listening(site, host)]
    answers = json.loads(site.lab.run("stranger", [*python(KNOCK), *places], timeout_s=600).stdout)
    kinds: dict[str, list[str]] = {}
    for place, answer in answers.items():
        kinds.setdefault(kind_of(place, answer), []).append(place)
    print(json.dumps(kinds, indent=1))
    assert set(kinds) <= HARMLESS | KNOWN_TO_BE_OPEN, kinds
    for path in (
        "/api/jobs/",
        "/api/cluster_status",
        "/nodes?view=summary",
        "/api/v0/actors",
        "/api/serve/applications/",
    ):
        asked = site.lab.run(
            "stranger", ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://head:8265{path}"]
        )
        assert asked.stdout == "401", path
    for mode in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x" * 40}):
        asks = ["timeout", "60", *python("import ray; ray.init('head:6379'); print(ray.nodes())")]
        asked = site.lab.run("stranger", asks, env=ENV | mode, check=False, timeout_s=90)
        assert asked.returncode != 0
        assert "NodeID" not in asked.stdout
    asked = site.lab.run("stranger", ["psql", "-w", STORE, "-c", "select 1"], check=False)
    assert "no password" in asked.stderr
    site.lab.run("head", ["pkill", "-TERM", "-f", "[-]-run watched"])
    run.wait(60)


HARMLESS = {"gRPC, which asks every call for the token", "401", "ssh", "PostgreSQL, which asks for a password"}
KNOWN_TO_BE_OPEN = {
    "Ray's metrics",
    "the dashboard's page, without data",
    "gloo, which knows no credentials",
    "S3 of the test",
}


def kind_of(place: str, answer: str) -> str:
    """What is there, by its answer to a line of HTTP."""
    head, _, body = answer.partition("\r\n\r\n")
    if place == "db:9000":
        return "S3 of the test"
    if place == "db:5432" and not answer:
        return "PostgreSQL, which asks for a password"
    if answer.startswith("\0\0\x18\4"):
        return "gRPC, which asks every call for the token"
    if answer.startswith("SSH-"):
        return "ssh"
    if answer == "TimeoutError":
        return "gloo, which knows no credentials"
    if re.match(r"HTTP/1.\d 401", head):
        return "401"
    if re.match(r"HTTP/1.\d 200", head) and re.search(r"# TYPE (ray|autoscaler)_", body):
        return "Ray's metrics"
    if place == "head:8265" and "<!doctype html>" in body:
        return "the dashboard's page, without data"
    return answer[:300]


def listening(site: Hosts, host: str) -> list[str]:
    """`HOST:PORT` of all that others can reach there."""
    lines = site.lab.run(host, ["ss", "-Hltn"]).stdout.splitlines()
    places = [line.split()[3].rpartition(":") for line in lines]
    return sorted({f"{host}:{port}" for address, _, port in places if not address.startswith(("127.", "[::1]"))})


def test_a_wrong_token_is_refused_by_name(site: Hosts) -> None:
    words = ["loomrl", "submit", "/tmp/shared/job.yaml", "--run", "never", *ADDRESS]
    for wrong in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN": "y" * 40}):
        done: subprocess.CompletedProcess[str] = site.lab.run(
            "laptop", words, env=ENV | wrong, check=False, timeout_s=120
        )
        assert done.returncode == 2
        assert "RAY_AUTH_TOKEN" in done.stderr
