"""Trainings of a loop as jobs of a Ray cluster: submitted once, followed, stopped; and a cluster that goes away."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from loomrl.cluster.job import Jobs
from loomrl.coordinator.alarm import open_alarms
from loomrl.coordinator.job import JobPhase, TrainingJob, Trigger, new_id
from loomrl.coordinator.ledger import ask_for, cancel
from loomrl.experiments.coordinate.loop import coordinating
from loomrl.own_ray import own_ray
from loomrl.store import open_store
from tests.cluster.cluster_support import AUTH, ROOT, answers, environment, process, start, wait_until
from tests.coordinator.loop_support import loop, production
from tests.coordinator.test_loop_served import newest, until
from tests.feedback.served_support import ENDPOINT

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1800)]


@dataclass
class Cluster:
    url: str
    head: subprocess.Popen[bytes]


@pytest.fixture
def cluster(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """A head with two CPUs, whose jobs know the tests' environments."""
    port, temporary = unused_tcp_port_factory, tempfile.mkdtemp(prefix="ray-")
    for name, value in AUTH.items():
        monkeypatch.setenv(name, value)
    env = environment(Path(sys.executable), PYTHONPATH=str(ROOT), **AUTH)
    dashboard = port()
    words = (
        *("--head", f"--port={port()}", "--node-ip-address=127.0.0.1", "--num-cpus=2", f"--temp-dir={temporary}"),
        *("--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", f"--ray-client-server-port={port()}"),
        f"--dashboard-agent-listen-port={port()}",
    )
    url, log = f"http://127.0.0.1:{dashboard}", tmp_path / "head.log"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        head = stack.enter_context(process(start(Path(sys.executable), *words), log=log, env=env, cwd=tmp_path))
        wait_until(lambda: answers(url), "the head does not answer", log)
        yield Cluster(url, head)


def test_training_is_a_job_of_the_cluster_and_its_absence_is_told(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_ray(num_cpus=2):  # it ends before the cluster is spoken to, whose token is another
        production(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    place = {"kind": "ray", "address": cluster.url}
    plan = loop(tmp_path, place=place, **{"triggers.count": None, "alarms.stuck_minutes": 0.0001})
    with open_store(plan.store_url) as db, coordinating(db, plan) as coordinator:
        asked = TrainingJob(id=new_id(), endpoint=ENDPOINT, trigger=Trigger.HAND, asked_at=1, at=1, since=1)
        ask_for(db, plan, asked)
        until(coordinator, lambda: newest(db).phase not in (JobPhase.QUEUED, JobPhase.RUNNING))
        job = newest(db)
        assert (job.phase, job.fault, job.host) == (JobPhase.COMPLETED, None, "") or job.gates, job
        jobs = Jobs(cluster.url)
        (submitted,) = jobs.list()
        assert (submitted.id, submitted.run, submitted.status) == (f"{job.id}-train", job.run, "SUCCEEDED")
        cancel(db, job.id, who="ann", why="", at=time.time())
        until(coordinator, lambda: not newest(db).is_open)

    endless = loop(
        tmp_path,
        place=place,
        **{"triggers.count": None, "training.data.epochs": 1000, "training.train.updates": 100_000},
    )
    with open_store(plan.store_url) as db, coordinating(db, endless) as coordinator:
        asked = TrainingJob(id=new_id(), endpoint=ENDPOINT, trigger=Trigger.HAND, asked_at=2, at=2, since=2)
        ask_for(db, endless, asked)
        until(coordinator, lambda: bool(coordinator.observer.live(newest(db))) if newest(db).run else False)
        cancel(db, asked.id, who="ann", why="", at=time.time())
        until(coordinator, lambda: not newest(db).is_open)
        assert newest(db).phase is JobPhase.CANCELLED
        assert {each.status for each in jobs.list()} == {"SUCCEEDED", "STOPPED"}

        again = TrainingJob(id=new_id(), endpoint=ENDPOINT, trigger=Trigger.HAND, asked_at=3, at=3, since=3)
        ask_for(db, endless, again)
        until(coordinator, lambda: newest(db).phase is JobPhase.RUNNING)
        os.killpg(cluster.head.pid, signal.SIGKILL)
        until(coordinator, lambda: "training_unreachable" in open_alarms(db, ENDPOINT))
        assert newest(db).phase is JobPhase.RUNNING
