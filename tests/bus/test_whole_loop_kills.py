"""A whole loop whose gateways, broker, sink, coordinator and jobs are killed: nothing is lost or done twice."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from broker_support import NatsServer, until
from sqlalchemy import select

from loomrl.bus.open import open_bus
from loomrl.coordinator.job import LEGAL, JobPhase, TrainingJob
from loomrl.experiments.loop.crowd import Crowd, Manner
from loomrl.experiments.loop.production import Production
from loomrl.gym.task_mixture import open_task_mixture
from loomrl.load import dump, to_yaml
from loomrl.serving.feedback.intake import PREFIXES
from loomrl.store import LoomDB, open_store
from loomrl.store.datasets import read_rows
from loomrl.store.releases import list_releases
from loomrl.store.rewards import REWARDS
from loomrl.store.sessions import CALLS
from loomrl.store.trainings import TRAININGS

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = 100
OURS = "LOOMRL_TEST_OF"
"""Variable that every process of the test inherits."""
FAMILIES = ["calculus.derivative", "calculus.integral"]
MATH = {"id": "Math", "families": FAMILIES, "settings": {"max_steps": 1}}
SUITE = {
    "name": "any",
    "version": "1.0.0",
    "kind": "language",
    "benchmarks": [{"environment": MATH, "levels": [1], "episodes": 40}],
    "regression": {"margin": 0.4},
    "provenance": {"unknown": "accept", "clean": False},
    "max_tokens": 20,
}
GUARD = {"metric": "error", "better": "lower", "margin": 0.3, "waits": "always"}
CHANGES = {
    "triggers.count": 150,
    "data.limit": 150,
    "data.suite": None,
    "training.data.epochs": 1,
    "training.evaluation.episodes": 4,
    "training.train.checkpoint_every": 1,
    "patience.infra_minutes": 0.02,
    "patience.failures": 100,
    "release.steps": [{"share": 0.5, "minutes": 0.0, "units": 10}, {"share": 1.0, "minutes": 0.0, "units": 0}],
    "release.guards": [GUARD],
}


class Programs:
    """Programs by name, each started anew after it was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._words = folder, dict[str, list[str]]()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, words: list[str] | None = None) -> None:
        self._words.setdefault(name, words or [])
        with (self._folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-P", "-m", "loomrl", *self._words[name]]
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()
        self.start(name)

    @contextmanager
    def ended(self) -> Iterator[None]:
        try:
            yield
        finally:
            for each in self._running.values():
                each.terminate()
                each.wait(60)


def killed_process(*, named: tuple[str, ...], rng: random.Random) -> bool:
    """SIGKILL for one of our processes, children or not, whose command has such words."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            is_ours = any(name in line for name in named) and process.environ().get(OURS) == str(os.getpid())
        except psutil.Error:
            continue
        if is_ours:
            found.append(process)
    if not found:
        return False
    rng.choice(found).send_signal(signal.SIGKILL)
    return True


async def killing(programs: Programs, nats: NatsServer, folder: Path, kills: Counter[str]) -> None:
    """So many kills, of whoever is there."""
    rng = random.Random(5)
    while kills.total() < KILLS:
        await asyncio.sleep(rng.uniform(0.5, 4.0))
        kind = rng.choice(["gateway", "broker", "coordinate", "bus", "job"])
        if kind == "gateway":
            is_done = killed_process(named=("ServeReplica:policy.gateways",), rng=rng)
            await asyncio.sleep(5)  # one of two: Serve starts it anew
        elif kind == "job":
            is_done = killed_process(named=(f"loomrl train {folder}", "loomrl gate policy-"), rng=rng)
        elif kind == "broker":
            await asyncio.to_thread(nats.kill)
            await asyncio.to_thread(nats.start)
            is_done = True
        else:
            await asyncio.to_thread(programs.kill, kind)
            is_done = True
        kills[kind] += is_done


def history(db: LoomDB) -> list[TrainingJob]:
    with db.read() as connection:
        rows = TRAININGS.fetch(connection, TRAININGS.select().order_by(TRAININGS.c.position))
    return [TrainingJob.of(row) for row in rows]


def check_jobs(db: LoomDB) -> Counter[JobPhase]:
    """Histories are legal, no version is released twice, nothing that a released version learnt is learnt again."""
    now: dict[str, TrainingJob] = {}
    for row in history(db):
        before = now.get(row.id)
        assert row.number == (1 if before is None else before.number + 1)
        assert before is None or row.phase in LEGAL[before.phase]
        now[row.id] = row
    released = [row.content["challenger"] for row in list_releases(db, limit=1000)]
    assert len(released) == len(set(released))
    learnt: set[str] = set()
    for job in sorted(now.values(), key=lambda job: job.begun_at or 0):
        if job.phase is JobPhase.DONE:
            rows = {row.trajectory for row in read_rows(db, job.dataset, part="train")}
            assert not rows & learnt
            learnt |= rows
    return Counter(job.phase for job in now.values())


def test_a_loop_whose_parts_are_killed_loses_nothing_and_does_nothing_twice(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OURS, str(os.getpid()))
    nats_server.start()
    production, programs, kills = Production(tmp_path / "loop"), Programs(tmp_path), Counter[str]()
    production.folder.mkdir()
    production.train_base(1, {"algorithm.warm_start.steps": 60, "algorithm.sampling.max_tokens": 20})
    (tmp_path / "suite.yaml").write_text(to_yaml(SUITE))
    plan = production.plan({**CHANGES, "suite": str(tmp_path / "suite.yaml")})
    (tmp_path / "loop.yaml").write_text(dump(plan))
    with open_store(production.store_url) as db, production.serving(plan.endpoint) as url, programs.ended():
        programs.start("coordinate", ["loop", str(tmp_path / "loop.yaml"), "--no-http"])
        programs.start("bus", ["bus", "run", "--store", production.store_url, "--bus", nats_server.url])
        crowd = Crowd(url, plan.endpoint, open_task_mixture(production.base(1), db), level=1, seed=1)

        async def kills_and_peace() -> None:
            await killing(programs, nats_server, production.folder, kills)
            await asyncio.to_thread(until, lambda: any(job.phase is JobPhase.DONE for job in history(db)), seconds=900)

        async def live() -> None:
            task = asyncio.create_task(kills_and_peace())
            await crowd.talk_until(task.done, Manner(pace=6.0, opted_out=0.0, secret=0.0, late_s=1.0))
            await task

        asyncio.run(live())
        check_answers(db, crowd)
        ends = check_jobs(db)
        check_rewards(db, nats_server)
        print(f"{dict(kills)}; {len(crowd.answered)} answered, {len(crowd.failed)} not; jobs {dict(ends)}")
        assert ends[JobPhase.DONE]
    assert all(kills[each] for each in ("gateway", "broker", "coordinate", "bus", "job"))


def check_answers(db: LoomDB, crowd: Crowd) -> None:
    """Every answer that somebody got is on record, and so once: calls have one row for an id."""
    with db.read() as connection:
        recorded = set(connection.scalars(select(CALLS.c.id)))
    assert {re.sub(f"^({'|'.join(PREFIXES)})", "", one.call) for one in crowd.answered} <= recorded
    assert {failed.partition(":")[0] for failed in crowd.failed} <= {"0", "503"}, Counter(crowd.failed)


def check_rewards(db: LoomDB, nats_server: NatsServer) -> None:
    """Every reward on record comes to the bus, none twice."""
    with db.read() as connection:
        made = list(connection.scalars(select(REWARDS.c.id)))
    assert made
    assert len(made) == len(set(made))

    def published() -> Counter[str]:
        with open_bus(nats_server.url) as bus:
            found, after = Counter[str](), 0
            while page := bus.browse("RL_REWARDS", after=after, most=1000):
                found.update(one.id for one in page)
                after = page[-1].position
        return found

    until(lambda: published().total() >= len(made), seconds=300)
    assert set(published().values()) == {1}
