"""Releases on a running endpoint under load: versions as a test wants them, their callers, and what those met."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from loomrl.config.release import GUARDS, ReleasePlan
from loomrl.release.ledger import Release, ReleaseDraft, begin_release, latest
from loomrl.serving.deployment import policies
from loomrl.serving.deployment.source import OpenFolder, PolicySource
from loomrl.serving.policy import About, ActRequest, ActResult, ServedPolicy
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.split import choose_arm
from loomrl.store import LoomDB
from loomrl.store.endpoints import ENDPOINTS
from loomrl.types import Verdict
from tests.serving.service_support import Service, service

RETURNING = 60
"""People who call again and again."""
TAKES_HOLD_S = 0.5
"""In this time after a change, gateways may differ in what they know."""
Opening = Callable[[PolicySource, OpenFolder], Awaitable[ServedPolicy]]


def fast(*, units: int = 30, **changes: object) -> ReleasePlan:
    """The default plan, and its guards, in seconds instead of hours."""
    shares = [{"share": share, "minutes": 0.02, "units": units} for share in (0.1, 0.25, 0.5)]
    tree = {"strategy": "canary", "steps": [*shares, {"share": 1.0, "minutes": 0.02, "units": 0}], **changes}
    plan = ReleasePlan.parse(tree)
    assert plan.guards == GUARDS or "guards" in changes
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The faults of a version. Its policy is a real one."""

    errors: float = 0.0
    """Share of its calls that fail."""
    takes_s: float = 0.0
    """Before it acts."""
    reward: float | None = None
    """Mean of what its callers tell at the end of their sessions."""
    success: float | None = None
    """Rate of the success that they tell."""
    correct: float = 1.0
    """Rate at which a second check agrees."""

    def tell(self, rng: random.Random) -> dict[str, float]:
        """The worth of a session, as its caller tells it."""
        told = {} if self.reward is None else {"reward": self.reward + rng.uniform(-0.2, 0.2)}
        if self.success is not None:
            success = float(rng.random() < self.success)
            told |= {"success": success, "correct": success * (rng.random() < self.correct)}
        return told


@dataclass
class Mannered:
    """A policy with the faults that a test gave it."""

    policy: ServedPolicy
    manner: Manner
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    @property
    def about(self) -> About:
        return self.policy.about

    def answer(self, continuation: Any) -> AsyncIterator[Any]:
        return self.policy.answer(continuation)

    async def act(self, act: ActRequest) -> ActResult:
        await asyncio.sleep(self.manner.takes_s)
        if self.rng.random() < self.manner.errors:
            raise Refusal(RefusalCause.INTERNAL, "planted")
        return await self.policy.act(act)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a call, with what its headers say."""

    began: float
    ended: float
    unit: str
    """The person or session; empty if the gateway made one up."""
    status: int
    version: str
    arm: str
    text: str


@dataclass
class Load:
    """Callers of an endpoint. Every second call is by a person who comes again, the others are by nobody.

    Where the manners of versions are given each call is a session, whose worth is told at its end.
    """

    url: str
    manners: Mapping[str, Manner] = field(default_factory=dict)
    """By version."""
    model: str = "policy"
    path: str = "/v1/act"
    body: Mapping[str, Any] = field(default_factory=lambda: {"observation": [0.0, 0.1, 0.0, 0.1]})
    headers: Mapping[str, str] = field(default_factory=dict)
    pause_s: float = 0.02
    """Of each caller after each call."""
    answers: list[Answer] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)
    """Calls without an answer, by error."""
    is_over: bool = False

    async def run(self, *, callers: int = 8) -> None:
        numbers, rng = itertools.count(), random.Random(0)
        async with httpx.AsyncClient(base_url=self.url, timeout=30, headers=self.headers) as client:
            await asyncio.gather(*(self._calls(client, numbers, rng) for _ in range(callers)))

    async def _calls(self, client: httpx.AsyncClient, numbers: "itertools.count[int]", rng: random.Random) -> None:
        while not self.is_over:
            number = next(numbers)
            session = f"s{number}" if self.manners else ""
            user = f"u{rng.randrange(RETURNING)}" if number % 2 else ""
            try:
                version = await self._call(client, session, user)
                if version in self.manners and (told := self.manners[version].tell(rng)):
                    await client.post(f"/sessions/{session}/complete", json=told)
            except httpx.TransportError as error:
                self.broken[type(error).__name__] += 1
            await asyncio.sleep(self.pause_s)

    async def _call(self, client: httpx.AsyncClient, session: str, user: str) -> str:
        began = time.time()
        body = {"model": self.model, **self.body, **({"user": user} if user else {})}
        headers = {"x-loomrl-session": session} if session else {}
        answer = await client.post(self.path, json=body, headers=headers)
        version = answer.headers.get("x-loomrl-version", "")
        self.answers.append(
            Answer(
                began=began,
                ended=time.time(),
                unit=user or session,
                status=answer.status_code,
                version=version,
                arm=answer.headers.get("x-loomrl-arm", ""),
                text=answer.text,
            )
        )
        return version


@asynccontextmanager
async def serving(
    folder: Path, port: Callable[[], int], patch: pytest.MonkeyPatch, opening: Opening, **settings: Any
) -> AsyncIterator[Service]:
    """A service of the version in `old`, with a replica of the one in `new` beside it."""

    async def open_policy(source: PolicySource, files: OpenFolder, *rest: Any, **more: Any) -> ServedPolicy:
        return await opening(source, files)

    patch.setattr(policies, "open_policy", open_policy)
    arms = [{"what": str(folder / "old")}]
    async with service(folder, port, arms=arms, record={"mode": "off"}, **settings) as served:
        await served.add(str(folder / "new"))
        async with asyncio.timeout(60), httpx.AsyncClient() as client:
            while (await client.get(f"{served.url}/readyz")).status_code != 200:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
        yield served


@asynccontextmanager
async def calling(load: Load, *, callers: int = 8) -> AsyncIterator[None]:
    """The endpoint is called meanwhile."""
    calls = asyncio.create_task(load.run(callers=callers))
    try:
        yield
    finally:
        load.is_over = True
        await calls


async def released(db: LoomDB, challenger: str, plan: ReleasePlan) -> Release:
    """The end of a release that nobody helps."""
    draft = ReleaseDraft(
        endpoint="policy", challenger=challenger, plan=plan, verdict=Verdict(True, ("tests",)), who="ann"
    )
    begin_release(db, draft, at=time.time())
    async with asyncio.timeout(280):
        while (release := await asyncio.to_thread(latest, db, "policy")).passage.is_open:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)
    assert release.row.who == "", "it ends by itself"
    return release


def rollback_s(load: Load, db: LoomDB, endpoint: str = "policy") -> float:
    """Seconds from the decision to the last answer of the new version; 0 if there was none after it."""
    decided = ENDPOINTS.latest(db, name=endpoint, limit=1)[0].created_at
    return max(0.0, *(answer.ended - decided for answer in load.answers if answer.arm == "canary"), 0.0)


def ways(load: Load, db: LoomDB) -> Counter[tuple[str, ...]]:
    """The versions that units met, one after the other, and how many units met them so.

    Calls in the half second after a change do not count: one gateway may know it, and the other not yet.
    """
    changes = [each.created_at for each in ENDPOINTS.latest(db, name="policy", limit=1000)]
    met: dict[str, list[str]] = {}
    for answer in sorted(load.answers, key=lambda answer: answer.began):
        if not answer.unit:
            continue
        seen = met.setdefault(answer.unit, [])
        if any(answer.began - TAKES_HOLD_S < change < answer.ended for change in changes):
            continue
        if seen[-1:] != [answer.version]:
            seen.append(answer.version)
    return Counter(tuple(seen) for seen in met.values())


def strangers(load: Load, db: LoomDB, version: str) -> set[str]:
    """Units that met this version although no revision gave them to the canary."""
    revisions = ENDPOINTS.latest(db, name="policy", limit=1000)
    met = {answer.unit for answer in load.answers if answer.version == version and answer.arm == "canary"}

    def is_given(unit: str) -> bool:
        arms = [choose_arm("policy", revision.arms, unit) for revision in revisions]
        return any(arm is not None and arm.name == "canary" for arm in arms)

    return {unit for unit in met if unit and not is_given(unit)}
