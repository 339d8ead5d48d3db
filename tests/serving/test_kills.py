"""Gateways and policy replicas are killed at random instants under load: nobody hangs, nothing answered is missing."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from loomrl.experiments.bench.served import save_language
from loomrl.store import LoomDB, open_store
from loomrl.store.service.replicas import ReplicaRole, live_replicas
from tests.needs import needs

pytestmark = [pytest.mark.system, pytest.mark.slow, needs("HAProxy"), pytest.mark.timeout(1800)]
KILLS, CLIENTS, DEADLINE_S = 50, 8, 20.0


@dataclass
class Seen:
    """The answers that callers saw."""

    statuses: Counter[str] = field(default_factory=Counter)
    answered: list[str] = field(default_factory=list)
    """Ids of calls whose answers came to their end."""
    longest_s: float = 0.0


async def caller(client: httpx.AsyncClient, seen: Seen, number: int, done: asyncio.Event) -> None:
    body: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": str(number)}], "max_tokens": 24}
    rng = random.Random(number)
    while not done.is_set():
        began = time.monotonic()
        try:
            answer = await client.post("/v1/chat/completions", json={**body, "stream": rng.random() < 0.5})
            seen.statuses[str(answer.status_code)] += 1
            if answer.status_code == 200:
                note(answer, seen)
        except httpx.TransportError as error:  # an answer that had begun broke off with its gateway
            seen.statuses[type(error).__name__] += 1
        seen.longest_s = max(seen.longest_s, time.monotonic() - began)


def note(answer: httpx.Response, seen: Seen) -> None:
    if answer.headers["content-type"].startswith("application/json"):
        seen.answered.append(answer.json()["id"].removeprefix("chatcmpl-"))
        return
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    if lines and lines[-1] == "[DONE]":
        seen.answered.append(json.loads(lines[0])["id"].removeprefix("chatcmpl-"))
    else:
        seen.statuses["a stream that says that it broke" if '"error"' in answer.text else "a stream cut off"] += 1


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
    seen, done = Seen(), asyncio.Event()
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=address, timeout=3 * DEADLINE_S, limits=limits) as client:
        callers = [asyncio.create_task(caller(client, seen, number, done)) for number in range(CLIENTS)]
        assert await asyncio.wait_for(killer(db), 1500) == KILLS
        done.set()
        await asyncio.gather(*callers)
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
        http = {status for status in seen.statuses if status.isdecimal()}
        assert http <= {"200", "429", "503"}
        assert "ReadTimeout" not in seen.statuses
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=120)


def calls_on_record(db: LoomDB) -> list[str]:
    with db.read() as connection:
        return list(connection.scalars(text("SELECT id FROM calls")))
