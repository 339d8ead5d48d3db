"""A/B tests on record: the newest row of a name holds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, func, select

from loomrl.errors import StoreError, did_you_mean, there_are
from loomrl.store.db import LoomDB
from loomrl.store.deployments import Deployment, deploy
from loomrl.store.endpoints import ENDPOINTS, Arm, Endpoint, Role, State, change_endpoint
from loomrl.store.events import record
from loomrl.store.log import Log, Source, fetch
from loomrl.store.releases import refuse_open
from loomrl.store.replicas import REPLICAS, ReplicaState
from loomrl.types import Stage, Verdict


class Phase(StrEnum):
    """A stopped test assigns no units; its name may be used again, and its numbers continue."""

    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class AbTest:
    """A test: a range of its layer's slots, divided among arms of an endpoint."""

    name: str
    number: int = 0
    endpoint: str
    layer: str
    """Tests of one layer share no unit, even of different endpoints."""
    start: float = 0.0
    """The test has the units of the slots from `start` to `end` of the layer's 0..1."""
    end: float
    shares: Mapping[str, float]
    """Arm → share of the test's units; the first is what the others are compared with."""
    metric: str
    better: str
    low: float = 0.0
    """Lower bound of the metric; `high` is the upper one."""
    high: float = 1.0
    guards: Mapping[str, float] = field(default_factory=dict)
    """Further metric → how much worse it may be."""
    added: tuple[str, ...] = ()
    """The arms that came with the test."""
    revision: int = 0
    """The endpoint's revision when the test began."""
    started_at: float
    until: float | None = None
    """Time at which it ends by itself."""
    phase: Phase = Phase.RUNNING
    reason: str = ""

    def is_running(self, now: float) -> bool:
        """True while it assigns units."""
        return self.phase is Phase.RUNNING and (self.until is None or now < self.until)


AB_TESTS = Log("ab_tests", AbTest, key=("name", "number"))


def start_test(db: LoomDB, test: AbTest, arms: Sequence[Arm] = ()) -> AbTest:
    """Begin a test in the first free slots of its layer. `arms` are new ones of the endpoint: they get no share of it.

    A StoreError, and nothing changes, if the name or the slots are taken, an arm is missing, or a release is open.
    """
    at = test.started_at
    size = test.end - test.start
    with db.write() as connection:
        endpoint = _endpoint(connection, test.endpoint)
        running = [each for each in list_tests(connection) if each.is_running(at)]
        _check(test, endpoint, arms, running)
        refuse_open(connection, test.endpoint)
        start = _free(test, size, running)
        revision = endpoint.revision
        more = tuple(replace(arm, share=0.0, role=Role.CANARY) for arm in arms)
        if more:
            why = f"A/B test {test.name} begins"
            draft = replace(endpoint, arms=(*endpoint.arms, *more), reason=why, created_at=at)
            revision = change_endpoint(connection, draft, endpoint.revision).revision
        added = tuple(arm.name for arm in arms)
        begun = replace(test, start=start, end=start + size, added=added, revision=revision)
        stored = _store(connection, begun, "ab.started", at)
        shares = {name: round((stored.end - stored.start) * share, 9) for name, share in stored.shares.items()}
        _deploy(connection, stored, (*endpoint.arms, *more), shares, at)
        return stored


def stop_test(db: LoomDB, name: str, *, at: float, keep: str = "", reason: str = "") -> AbTest:
    """End a test. Its own arms go, but `keep`, which answers everybody from now on."""
    with db.write() as connection:
        test = show_test(connection, name)
        if test.phase is Phase.STOPPED:
            raise StoreError(f"A/B test {name!r} has stopped already: {test.reason}.")
        if keep and keep not in test.shares:
            raise StoreError(f"A/B test {name!r} has no arm {keep!r:.100}. {there_are(list(test.shares))}")
        if keep:
            refuse_open(connection, test.endpoint)
        endpoint = ENDPOINTS.newest(connection, name=test.endpoint)
        if endpoint is not None and endpoint.state is State.SERVING:
            arms = _arms_after(endpoint, test, keep)
            if arms != endpoint.arms:
                why = f"A/B test {name} ends" + (f": {keep} is kept" if keep else "")
                change_endpoint(connection, replace(endpoint, arms=arms, reason=why, created_at=at), endpoint.revision)
        why = reason or (f"{keep} is kept" if keep else "stopped")
        stored = _store(connection, replace(test, phase=Phase.STOPPED, until=at, reason=why), "ab.stopped", at)
        left = () if endpoint is None or keep else [arm for arm in endpoint.arms if arm.name not in test.added]
        _deploy(connection, stored, left, {arm.name: arm.share for arm in left}, at)
        return stored


def show_test(source: Source, name: str) -> AbTest:
    """The newest row of this name; a StoreError names the nearest one."""
    found = AB_TESTS.newest(source, name=name)
    if found is None:
        known = [each.name for each in list_tests(source)]
        raise StoreError(f"there is no A/B test {name!r:.100}. {there_are(known)}{did_you_mean(name[:100], known)}")
    return found


def list_tests(source: Source) -> list[AbTest]:
    """The newest row of each name, by name."""
    return AB_TESTS.fetch(source, AB_TESTS.newest_each("name").order_by(AB_TESTS.c.name))


def last_change(db: LoomDB) -> tuple[Any, ...]:
    """Values that differ after an endpoint or a test changed, or a replica came, went or drained; in one query."""
    # positions only grow; a replica that comes as another goes is the one that started last
    newest = (ENDPOINTS.c.position, AB_TESTS.c.position, REPLICAS.c.started_at)
    ready = select(func.count()).where(REPLICAS.c.state == ReplicaState.READY)
    values = [*(select(func.max(column)) for column in newest), ready]
    (row,) = fetch(db, select(*(each.scalar_subquery().label(str(at)) for at, each in enumerate(values))))
    return tuple(row.values())


def _deploy(connection: Connection, test: AbTest, arms: Sequence[Arm], shares: Mapping[str, float], at: float) -> None:
    """A deployment for each arm whose share of the units the test changes; the stable arm has the rest."""
    for arm in arms:
        if arm.name not in test.shares or arm.role is Role.STABLE:
            continue
        deployment = Deployment(
            id=f"{test.name}@{test.number}/{arm.name}",
            policy=arm.identity,
            stage=Stage.CANARY,
            endpoint=test.endpoint,
            share=shares[arm.name],
            verdict=Verdict(True, (f"A/B test {test.name} {test.phase}: arm {arm.name}",)),
            created_at=at,
        )
        deploy(connection, deployment)


def _arms_after(endpoint: Endpoint, test: AbTest, keep: str) -> tuple[Arm, ...]:
    """The endpoint's arms after the test."""
    if keep:
        kept = next(arm for arm in endpoint.arms if arm.name == keep)
        return (replace(kept, share=1.0, role=Role.STABLE),)
    return tuple(arm for arm in endpoint.arms if arm.name not in test.added or arm.share > 0)


def _check(test: AbTest, endpoint: Endpoint, arms: Sequence[Arm], running: Sequence[AbTest]) -> None:
    where = f"A/B test {test.name!r}"
    there = [arm.name for arm in endpoint.arms if arm.role is not Role.SHADOW]
    if any(each.name == test.name for each in running):
        raise StoreError(f"{where} is running. Stop it (loomrl ab stop {test.name}), or choose another name.")
    for arm in arms:
        if arm.name in {each.name for each in endpoint.arms}:
            raise StoreError(f"{where}: endpoint {endpoint.name!r} has an arm {arm.name!r} already. Name it otherwise.")
    known = [*there, *(arm.name for arm in arms)]
    for name in test.shares:
        if name not in known:
            hint = did_you_mean(name[:100], known)
            raise StoreError(
                f"{where}: endpoint {endpoint.name!r} has no arm {name!r:.100} that answers. {there_are(known)}{hint}"
            )
    for each in running:
        if each.endpoint == test.endpoint and each.layer != test.layer:
            raise StoreError(
                f"{where}: test {each.name!r} of this endpoint runs in layer {each.layer!r}. One unit has one arm: "
                f"use --layer {each.layer}."
            )


def _free(test: AbTest, size: float, running: Sequence[AbTest]) -> float:
    """The start of the first free range of the layer."""
    taken = sorted((each.start, each.end, each.name) for each in running if each.layer == test.layer)
    start = 0.0
    most = 0.0
    for low, high in [*((low, high) for low, high, _ in taken), (1.0, 1.0)]:
        if low - start >= size - 1e-9:
            return start
        most = max(most, low - start)
        start = max(start, high)
    names = ", ".join(name for *_, name in taken)
    raise StoreError(
        f"A/B test {test.name!r}: {size:g} of layer {test.layer!r} are not free: {names} leave {most:g} in one piece. "
        "Ask for a smaller --share, or for another --layer."
    )


def _endpoint(connection: Connection, name: str) -> Endpoint:
    found = ENDPOINTS.newest(connection, name=name)
    if found is None or found.state is not State.SERVING:
        raise StoreError(f"endpoint {name!r:.100} does not serve. `loomrl endpoints list` shows those that do.")
    return found


def _store(connection: Connection, test: AbTest, kind: str, at: float) -> AbTest:
    before = AB_TESTS.newest(connection, name=test.name)
    stored = replace(test, number=1 if before is None else before.number + 1)
    AB_TESTS.append(connection, [stored])
    content = asdict(stored)
    told = {name: content[name] for name in content if name not in ("name", "number", "endpoint", "phase")}
    record(connection, kind, test.name, told | {"shares": list(stored.shares.items())}, at=at)
    return stored
