"""Releases on a running endpoint under load: a good version gets all of the traffic, a faulty one comes back."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from loomrl.config.release import ReleasePlan
from loomrl.release.ledger import Release, Wish, begin_release, latest
from loomrl.release.passage import Phase
from loomrl.serving.deployment import process
from loomrl.serving.policy import About, Act, Acted, ServedPolicy
from loomrl.serving.refusal import Cause, Refusal
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import history_of
from loomrl.types import Verdict
from tests.needs import needs
from tests.serving.control_support import control_policy
from tests.serving.service_support import Service, service

pytestmark = [needs("HAProxy"), pytest.mark.usefixtures("one_thread")]
PLAN = {
    "strategy": "canary",
    "steps": [{"share": share, "minutes": 0.02, "units": 30} for share in (0.1, 0.25, 0.5)]
    + [{"share": 1.0, "minutes": 0.02, "units": 0}],
    "guards": [
        {"metric": "error", "better": "lower", "margin": 0.05, "limit": 0.05, "waits": "always"},
        {"metric": "latency_s", "better": "lower", "high": 120, "quantile": 0.95, "times": 1.25, "waits": "never"},
        {"metric": "reward", "better": "higher", "margin": 0.2, "waits": "never"},
    ],
}
Fault = Callable[[], Awaitable[None]]


@dataclass
class Faulty:
    """A policy that does something before it acts."""

    policy: ServedPolicy
    fault: Fault

    @property
    def about(self) -> About:
        return self.policy.about

    def answer(self, continuation: Any) -> AsyncIterator[Any]:
        return self.policy.answer(continuation)

    async def act(self, act: Act) -> Acted:
        await self.fault()
        return await self.policy.act(act)


async def nothing() -> None:
    """No fault."""


async def slow() -> None:
    """Three times as long as the others."""
    await asyncio.sleep(0.2)


def failing(rate: float) -> Fault:
    """Some calls fail."""
    rng = random.Random(0)

    async def fail() -> None:
        if rng.random() < rate:
            raise Refusal(Cause.INTERNAL, "planted")

    return fail


@dataclass
class Load:
    """Callers of the endpoint, each with a session of its own for one call, and the arms that answered them."""

    url: str
    rewards: dict[str, float] = field(default_factory=dict)
    """Version → reward that is told at the end of a session."""
    model: str = "policy"
    answers: list[tuple[float, int, str]] = field(default_factory=list)
    is_over: bool = False

    async def run(self, *, callers: int = 8) -> None:
        numbers = itertools.count()
        async with httpx.AsyncClient(timeout=30) as client:
            await asyncio.gather(*(self._call(client, numbers) for _ in range(callers)))

    async def _call(self, client: httpx.AsyncClient, numbers: Any) -> None:
        body = {"model": self.model, "observation": [0.0, 0.1, 0.0, 0.1]}
        while not self.is_over:
            session = f"s{next(numbers)}"
            answer = await client.post(f"{self.url}/v1/act", json=body, headers={"x-loomrl-session": session})
            version, arm = answer.headers.get("x-loomrl-version", ""), answer.headers.get("x-loomrl-arm", "")
            self.answers.append((time.time(), answer.status_code, arm))
            if self.rewards:
                told = {"reward": self.rewards.get(version, 0.5)}
                await client.post(f"{self.url}/sessions/{session}/complete", json=told)


async def until_open(served: Service) -> None:
    async with asyncio.timeout(60), httpx.AsyncClient() as client:
        while (await client.get(f"{served.url}/readyz")).status_code != 200:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)


async def released(
    folder: Path, port: Callable[[], int], patch: pytest.MonkeyPatch, fault: Fault, rewards: dict[str, float]
) -> tuple[Release, Load, LoomDB]:
    """The end of a release of a policy with this fault, under load."""
    for seed, name in enumerate(("old", "new")):
        control_policy(seed=seed).save(folder / name)
    opened = process.open_policy

    async def open_policy(source: Any, *rest: Any, **settings: Any) -> ServedPolicy:
        policy = await opened(source, *rest, **settings)
        return Faulty(policy, fault if source.version == "new" else nothing)

    patch.setattr(process, "open_policy", open_policy)
    async with service(folder, port, arms=[{"what": str(folder / "old")}], record={"mode": "off"}) as served:
        await served.add(str(folder / "new"))
        await until_open(served)
        load = Load(served.url, rewards)
        calls = asyncio.create_task(load.run())
        db = open_store(f"sqlite:///{folder}/loom.db")
        plan = ReleasePlan.parse(PLAN)
        verdict = Verdict(True, ("tests",))
        wish = Wish(endpoint="policy", challenger=str(folder / "new"), plan=plan, verdict=verdict, who="ann")
        begin_release(db, wish, at=time.time())
        async with asyncio.timeout(240):
            while (release := await asyncio.to_thread(latest, db, "policy")).passage.is_open:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        load.is_over = True
        await calls
    return release, load, db


def rollback_s(load: Load, db: LoomDB, endpoint: str = "policy") -> float:
    """Seconds from the decision to the last answer of the new version."""
    decided = history_of(db, endpoint, limit=1)[0].created_at
    return max((at for at, _, arm in load.answers if arm == "canary"), default=decided) - decided


async def test_good_version_gets_all_of_the_traffic(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    release, load, db = await released(tmp_path, unused_tcp_port_factory, monkeypatch, nothing, {})
    with db:
        assert release.passage.phase is Phase.DONE, release.passage.reason
        assert {status for _, status, _ in load.answers} == {200}
        assert history_of(db, "policy", limit=1)[0].stable.policy == str(tmp_path / "new")


@pytest.mark.parametrize(
    ("fault", "rewards", "said"),
    [
        (failing(0.3), {}, "error"),
        pytest.param(failing(1.0), {}, "", marks=pytest.mark.slow),
        pytest.param(failing(0.12), {}, "error", marks=pytest.mark.slow),
        pytest.param(slow, {}, "latency_s", marks=pytest.mark.slow),
        pytest.param(nothing, {"old": 0.9, "new": 0.5}, "reward", marks=pytest.mark.slow),
    ],
    ids=["errors", "outage", "few-errors", "latency", "reward"],
)
async def test_faulty_version_comes_back_by_itself(
    tmp_path: Path,
    unused_tcp_port_factory: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    rewards: dict[str, float],
    said: str,
) -> None:
    release, load, db = await released(tmp_path, unused_tcp_port_factory, monkeypatch, fault, rewards)
    with db:
        assert release.passage.phase is Phase.ROLLED_BACK, release.passage.reason
        assert said in release.passage.reason
        assert {status for _, status, _ in load.answers} == {200}
        print(f"rollback_s {rollback_s(load, db):.3f}; {release.passage.reason}")
        assert rollback_s(load, db) < 2.0
