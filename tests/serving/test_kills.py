"""Gateways and policy replicas are killed at random instants under load: nobody hangs, nothing answered is missing."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from loomrl.experiments.bench.served import save_language
from loomrl.store import LoomDB, open_store
from loomrl.store.replicas import ReplicaRole, live_replicas
from tests.needs import needs
from tests.serving.callers import Seen, calling, calls_on_record

pytestmark = [pytest.mark.system, pytest.mark.slow, needs("HAProxy"), pytest.mark.timeout(1800)]
KILLS, CLIENTS, DEADLINE_S = 50, 8, 20.0


async def killer(db: LoomDB) -> int:
    """Kill, wait until somebody of the kind answers again, and kill again."""
    rng, killed = random.Random(0), 0
    while killed < KILLS:
        await asyncio.sleep(rng.uniform(0.2, 2.0))
        role = rng.choice([ReplicaRole.GATEWAY, ReplicaRole.GATEWAY, ReplicaRole.POLICY])
        rows = await asyncio.to_thread(live_replicas, db, role=role)
        alive = [row for row in rows if lives(row.pid)]
        if len(alive) < 2:
            continue
        os.kill(rng.choice(alive).pid, signal.SIGKILL)
        killed += 1
    return killed


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def bombarded(address: str, db: LoomDB) -> Seen:
    """Callers and the killer at once."""
    async with calling(address, callers=CLIENTS, timeout_s=3 * DEADLINE_S) as seen:
        assert await asyncio.wait_for(killer(db), 1500) == KILLS
    return seen


def test_fifty_kills_under_load_hang_nobody_and_lose_no_answered_call(tmp_path: Path) -> None:
    save_language(tmp_path / "talk")
    url = f"sqlite:///{tmp_path}/loom.db"
    command = [sys.executable, "-m", "loomrl", "serve", str(tmp_path / "talk"), "--port", "0", "--json"]
    command += [f"store_url={url}", f"gateways.deadline_s={DEADLINE_S}", "replicas.least=2", "replicas.most=2"]
    with (tmp_path / "err").open("w") as err:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, cwd=tmp_path)
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline() or f'"{(tmp_path / "err").read_text()[-2000:]}"')
        with open_store(url) as db:
            seen = asyncio.run(bombarded(told["url"], db))
            kept = Counter(calls_on_record(db))
        print(dict(seen.statuses), f"{len(seen.answered)} answered, longest {seen.longest_s:.1f} s")
        assert len(seen.answered) > KILLS
        assert {call: kept[call] for call in seen.answered if kept[call] != 1} == {}
        assert seen.longest_s < DEADLINE_S + 10
        assert seen.http <= {"200", "429", "503"}
        assert "ReadTimeout" not in seen.statuses
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=120)
