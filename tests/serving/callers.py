"""Callers of an endpoint who go on whatever happens to it, and what they saw."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from sqlalchemy import text

from loomrl.store import LoomDB


@dataclass
class Seen:
    """The answers that callers saw."""

    statuses: Counter[str] = field(default_factory=Counter)
    answered: list[str] = field(default_factory=list)
    """Ids of calls whose answers came to their end."""
    longest_s: float = 0.0
    began: float = field(default_factory=time.monotonic)
    ends: list[tuple[float, bool]] = field(default_factory=list)
    """Of each call: seconds from the beginning to its end, and whether it was answered."""
    refusals: Counter[str] = field(default_factory=Counter)
    """What was said instead of an answer."""

    @property
    def http(self) -> set[str]:
        """The statuses of answers."""
        return {status for status in self.statuses if status.isdecimal()}


async def caller(client: httpx.AsyncClient, seen: Seen, number: int, done: asyncio.Event, pause_s: float) -> None:
    body: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": str(number)}], "max_tokens": 24}
    rng = random.Random(number)
    while not done.is_set():
        began, is_answered = time.monotonic(), False
        try:
            answer = await client.post("/v1/chat/completions", json={**body, "stream": rng.random() < 0.5})
            seen.statuses[str(answer.status_code)] += 1
            if answer.status_code != 200:
                seen.refusals[answer.text[:300]] += 1
            is_answered = answer.status_code == 200 and note(answer, seen)
        except httpx.TransportError as error:  # an answer that had begun broke off with its gateway
            seen.statuses[type(error).__name__] += 1
        seen.longest_s = max(seen.longest_s, time.monotonic() - began)
        seen.ends.append((time.monotonic() - seen.began, is_answered))
        await asyncio.sleep(pause_s)


def note(answer: httpx.Response, seen: Seen) -> bool:
    """True if it came to its end."""
    if answer.headers["content-type"].startswith("application/json"):
        seen.answered.append(answer.json()["id"].removeprefix("chatcmpl-"))
        return True
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    if lines and lines[-1] == "[DONE]":
        seen.answered.append(json.loads(lines[0])["id"].removeprefix("chatcmpl-"))
        return True
    seen.statuses["a stream that says that it broke" if '"error"' in answer.text else "a stream cut off"] += 1
    return False


@asynccontextmanager
async def calling(
    url: str, *, callers: int, timeout_s: float, headers: Mapping[str, str] | None = None, pause_s: float = 0.0
) -> AsyncIterator[Seen]:
    """That many callers at once until the context ends, with a connection for every call and a pause after it."""
    seen, done = Seen(), asyncio.Event()
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=timeout_s, limits=limits, headers=headers) as client:
        tasks = [asyncio.create_task(caller(client, seen, number, done, pause_s)) for number in range(callers)]
        yield seen
        done.set()
        await asyncio.gather(*tasks)


def calls_on_record(db: LoomDB) -> list[str]:
    with db.read() as connection:
        return list(connection.scalars(text("SELECT id FROM calls")))
