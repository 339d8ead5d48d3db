"""The front of a service dies under load, and others with it: callers do not notice, and nothing is left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from loomrl.experiments.bench.served import save_language
from loomrl.store import LoomDB, open_store
from loomrl.store.replicas import Replica, ReplicaRole, ReplicaState, live_replicas
from tests.needs import needs
from tests.serving.callers import calling, calls_on_record
from tests.serving.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.slow, needs("HAProxy"), pytest.mark.timeout(600)]
CLIENTS = 8
MARK = "LOOMRL_TEST_SERVICE"


@dataclass(frozen=True)
class Running:
    """A `loomrl serve`, whose processes have a variable of their own."""

    server: subprocess.Popen[str]
    url: str
    db: LoomDB
    mark: str

    def processes(self, program: str = "") -> list[psutil.Process]:
        """Those of a program, by default all."""
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.Error, IndexError):
                if each.environ().get(MARK) == self.mark and each.cmdline()[0].endswith(program):
                    found.append(each)
        return found

    @property
    def haproxy(self) -> int:
        (found,) = self.processes("/haproxy")
        return found.pid

    def up(self, role: ReplicaRole, *, beside: set[int] = frozenset()) -> list[Replica]:  # type: ignore[assignment]
        rows = [row for row in live_replicas(self.db, role=role) if row.state is ReplicaState.READY]
        return [row for row in rows if row.pid not in beside and psutil.pid_exists(row.pid)]


@contextmanager
def serving(folder: Path) -> Iterator[Running]:
    save_language(folder / "talk")
    url = f"sqlite:///{folder}/loom.db"
    command = [sys.executable, "-m", "loomrl", "serve", str(folder / "talk"), "--port", "0", "--json"]
    mark = uuid.uuid4().hex
    with (folder / "err").open("w") as err:
        server = subprocess.Popen(
            [*command, f"store_url={url}"],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            cwd=folder,
            env=os.environ | {MARK: mark},
        )
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline() or f'"{(folder / "err").read_text()[-2000:]}"')
        with open_store(url) as db:
            yield Running(server, told["url"], db, mark)
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=120)


async def kill(running: Running, role: ReplicaRole) -> None:
    """Kill the eldest of this role, and wait until another one is up."""
    there = running.up(role)
    os.kill(there[0].pid, signal.SIGKILL)
    await until(lambda: running.up(role, beside={row.pid for row in there}))


async def killed(running: Running) -> None:
    haproxy = running.haproxy
    async with calling(running.url, callers=CLIENTS, timeout_s=30) as seen:
        for _ in range(2):
            await asyncio.sleep(1.0)
            await kill(running, ReplicaRole.FRONT)
            assert running.haproxy == haproxy
        await asyncio.sleep(1.0)
    print("front killed twice:", dict(seen.statuses), f"{len(seen.answered)} answered, longest {seen.longest_s:.2f} s")
    assert set(seen.statuses) == {"200"}
    assert seen.longest_s < 10
    kept = Counter(calls_on_record(running.db))
    assert {call: kept[call] for call in seen.answered if kept[call] != 1} == {}
    for _ in running.up(ReplicaRole.GATEWAY):  # those that come are made known by the front that came
        await kill(running, ReplicaRole.GATEWAY)
    async with calling(running.url, callers=CLIENTS, timeout_s=30) as seen:
        await asyncio.sleep(1.0)
        os.kill(haproxy, signal.SIGKILL)
        await asyncio.sleep(3.0)
    refused = [ended_s for ended_s, is_answered in seen.ends if not is_answered]
    print(f"HAProxy killed: refusals for {max(refused) - min(refused):.2f} s:", dict(seen.statuses))
    assert max(refused) - min(refused) < 2
    assert max(seen.ends) > (max(refused), False)
    assert running.haproxy != haproxy


def test_a_killed_front_costs_no_call_and_a_killed_haproxy_less_than_two_seconds(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        asyncio.run(killed(running))
    assert running.processes() == []


@pytest.mark.parametrize("victim", ["raylet", "serve"])
def test_nothing_is_left_of_a_service_that_was_killed_with_its_front(tmp_path: Path, victim: str) -> None:
    with serving(tmp_path) as running:
        assert running.haproxy
        (front,) = running.up(ReplicaRole.FRONT)
        os.kill(front.pid, signal.SIGKILL)
        (running.server if victim == "serve" else running.processes("/raylet")[0]).kill()
        asyncio.run(until(lambda: all(each.pid == running.server.pid for each in running.processes())))
