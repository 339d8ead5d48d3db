"""Controllers and gateways die at any instant of releases under load: histories stay legal, callers are answered."""

import asyncio
import os
import random
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import pytest

from loomrl.config import ServingExperiment
from loomrl.errors import ConfigError
from loomrl.load import dump
from loomrl.release.ledger import command_release, latest
from loomrl.release.passage import Command, ReleasePhase
from loomrl.serving.acting import ControlServedPolicy
from loomrl.serving.deployment import policies
from loomrl.serving.deployment.source import OpenFolder, PolicySource
from loomrl.serving.policy import ServedPolicy
from loomrl.serving.split import choose_arm
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import ENDPOINTS, show_endpoint
from loomrl.store.observations import read_observations
from loomrl.store.releases import list_releases
from tests.needs import needs
from tests.release.recorded import RecordedRun
from tests.release.release_support import ENDPOINT, released
from tests.release.test_release_kills import ROOT, legal
from tests.serving.control_support import control_policy
from tests.serving.releasing import RETURNING, Load, Manner, Mannered, calling
from tests.serving.service_support import Service

pytestmark = [
    needs("HAProxy"),
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("one_thread"),
]
KILLS = 100
OLD, NEW = "run/1", "run/2"


@dataclass
class Victims:
    """Two controllers and two gateways, each started anew after it was killed."""

    experiment: ServingExperiment
    rng: random.Random = field(default_factory=lambda: random.Random(3))
    running: dict[str, Process] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    """Gateways that answer."""
    kills: Counter[str] = field(default_factory=Counter)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, name: str) -> None:
        is_gateway = name.startswith("gateway")
        what = ["tests.serving.gateway_alone"] if is_gateway else ["tests.release.release_kills", self.url, "0.02"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(ROOT)])}
        started = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *what, stdin=PIPE, stdout=PIPE, env=environment, cwd=ROOT
        )
        self.running[name] = started
        assert started.stdin is not None
        started.stdin.write(dump(self.experiment).encode())
        started.stdin.close()
        task = asyncio.create_task(self._heard(name, started))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    @property
    def url(self) -> str:
        return self.experiment.store_url

    async def _heard(self, name: str, started: Process) -> None:
        assert started.stdout is not None
        if await started.stdout.readline() == b"ready\n" and self.running[name] is started:
            self.ready.add(name)

    async def kill(self, name: str) -> None:
        self.ready.discard(name)
        self.running[name].send_signal(signal.SIGKILL)
        await self.running[name].wait()

    async def die(self) -> None:
        """So many kills, of whoever; but some gateway always answers."""
        names = [f"{kind} {number}" for kind in ("controller", "gateway") for number in range(2)]
        while self.kills.total() < KILLS:
            await asyncio.sleep(self.rng.uniform(0.0, 1.0))
            name = self.rng.choice(names)
            others = self.ready - {name}
            if name.startswith("gateway") and not any(each.startswith("gateway") for each in others):
                continue
            await self.kill(name)
            await self.start(name)
            self.kills[name.split()[0]] += 1


@asynccontextmanager
async def endpoint(
    folder: Path, url: str, port: int, patch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Service, dict[str, Mannered]]]:
    """Both versions and the front of a service without a gateway; the versions' faults may change."""
    opened: dict[str, Mannered] = {}

    async def open_policy(source: PolicySource, files: OpenFolder, *rest: object, **more: object) -> ServedPolicy:
        policy = await asyncio.to_thread(
            ControlServedPolicy.open, files.path, version=files.version, number=files.number
        )
        return opened.setdefault(source.version, Mannered(policy, Manner()))

    patch.setattr(policies, "open_policy", open_policy)
    settings = {"name": "x", "store_url": url, "artifact_url": f"{folder}/artifacts", "port": port}
    tree = {**settings, "endpoint": ENDPOINT, "arms": [{"what": OLD}], "record": {"mode": "off"}}
    made = Service(ServingExperiment.parse(tree))
    made.gateways.clear()
    await made.start()
    try:
        await made.add(NEW)
        yield made, opened
    finally:
        await made.stop()


async def one_release(db: LoomDB, opened: dict[str, Mannered], rng: random.Random, *, is_bad: bool) -> str:
    """The end of a release, which a person may abort."""
    stable = (await asyncio.to_thread(show_endpoint, db, ENDPOINT)).stable.policy
    new = NEW if stable == OLD else OLD
    opened[stable].manner, opened[new].manner = Manner(), Manner(errors=0.6 if is_bad else 0.0)
    await asyncio.to_thread(released, db, version=new)
    deadline = time.monotonic() + 120
    while (await asyncio.to_thread(latest, db, ENDPOINT)).passage.is_open:
        assert time.monotonic() < deadline, latest(db, ENDPOINT).row
        await asyncio.sleep(0.05)
        if rng.random() < 0.002:
            with suppress(ConfigError):  # it is over just now
                await asyncio.to_thread(command_release, db, ENDPOINT, Command.ABORT, who="ann", why="", at=time.time())
    end = latest(db, ENDPOINT).passage
    assert end.phase in ((ReleasePhase.ROLLED_BACK if is_bad else ReleasePhase.DONE), ReleasePhase.ABORTED), end.reason
    return end.phase.value


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
async def test_a_hundred_kills_of_controllers_and_gateways_leave_legal_histories(
    tmp_path: Path, recorded_store_url: str, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(recorded_store_url) as db:
        run = RecordedRun(db, tmp_path)
        for number in (1, 2):
            run.record(control_policy(seed=number), number)
        ends, rng = Counter[str](), random.Random(4)
        async with endpoint(tmp_path, recorded_store_url, unused_tcp_port, monkeypatch) as (served, opened):
            victims = Victims(served.station.experiment)
            for kind in ("controller", "gateway"):
                for number in range(2):
                    await victims.start(f"{kind} {number}")
            async with asyncio.timeout(60):
                while len(victims.ready) < 4:  # noqa: ASYNC110 - other processes
                    await asyncio.sleep(0.05)
            load = Load(served.url, model=ENDPOINT)
            dying = asyncio.create_task(victims.die())
            try:
                async with calling(load):
                    while not dying.done() or not {"done", "rolled_back"} <= ends.keys():
                        is_bad = ends.total() % 2 == 1 if ends.total() < 2 else rng.random() < 0.5
                        ends[await one_release(db, opened, rng, is_bad=is_bad)] += 1
                await dying
            finally:
                dying.cancel()
                for name in victims.running:
                    await victims.kill(name)
        statuses = Counter(answer.status for answer in load.answers)
        print(f"{dict(victims.kills)} killed; {dict(ends)}; {dict(statuses)}, {dict(load.broken)} broken off")
        legal(db)
        assert len(list_releases(db, limit=1000)) == ends.total()
        assert statuses.keys() <= {200, 503}
        assert statuses[200] > 0.9 * len(load.answers)
        assert_observations_are_of_the_assigned_arm(db)


def assert_observations_are_of_the_assigned_arm(db: LoomDB) -> None:
    """Whoever is killed: what gateways wrote is what the shares say."""
    revisions = {each.revision: each for each in ENDPOINTS.latest(db, name=ENDPOINT, limit=100_000)}
    people = {unit_of(f"u{number}"): f"u{number}" for number in range(RETURNING)}
    after, seen = 0, 0
    while batch := read_observations(db, ENDPOINT, after=after):
        after = batch[-1][0]
        for _, each in batch:
            arms = revisions[each.revision].arms
            assert each.arm in {arm.name for arm in arms if arm.share > 0}
            if each.unit in people:
                arm = choose_arm(ENDPOINT, arms, people[each.unit])
                assert arm is not None
                assert arm.name == each.arm
                seen += 1
    assert seen > 0


def unit_of(name: str) -> int:
    """The number by which a unit is on record."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())
