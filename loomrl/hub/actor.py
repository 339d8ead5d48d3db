"""The hub as Ray actors, one per shard. An actor that dies is started again, finds everything in its database, and
is asked again: no call does harm when it is repeated.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayTaskError
from typing_extensions import override

from loomrl.config import EnvironmentConfig, HubConfig
from loomrl.hub.codec import encode
from loomrl.hub.hub import EVERYTHING, GroupPlan, Hub, HubStats, Lease, Ready, Selection, lease_once
from loomrl.hub.open import shard_urls
from loomrl.hub.queue import LocalHub, Promises
from loomrl.hub.shard import Shard
from loomrl.hub.sharded import ShardedHub
from loomrl.store import open_store
from loomrl.types import Trajectory

CALLS_AT_ONCE = 32
"""Calls an actor takes at the same time: what waits together is committed together."""


class HubActor:
    """One shard in a process of its own."""

    def __init__(self, url: str, promises: Promises) -> None:
        self._hub = LocalHub(open_store(url), promises)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A call of the hub's own method."""
        return getattr(self._hub, method)(*args, **kwargs)


def start_hub(
    url: str,
    settings: HubConfig,
    *,
    groups_per_update: int = 8,
    environments: Sequence[EnvironmentConfig] = (),
    name: str = "loomrl-hub",
) -> Hub:
    """The hub behind `url` in Ray actors of this name, started unless they run already. Any worker may call this."""
    promises = Promises(settings, groups_per_update)
    actor_class = ray.remote(HubActor)
    actors = [
        actor_class.options(
            name=f"{name}-{number}",
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_concurrency=CALLS_AT_ONCE,
            max_restarts=-1,
            max_task_retries=-1,
        ).remote(shard, promises)
        for number, shard in enumerate(shard_urls(url, settings.shards))
    ]
    shards = [ActorHub(actor) for actor in actors]
    hub: Hub = shards[0] if len(shards) == 1 else ShardedHub(shards)
    for environment in environments:
        hub.share(environment.id, weight=environment.weight, min_share=environment.min_share)
    return hub


class ActorHub(Shard):
    """The hub in an actor. `close` leaves the actor to others; `ray.kill` ends it, at any time."""

    def __init__(self, actor: Any, *, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self.actor = actor
        self._new_id = new_id

    @override
    def append(self, trajectories: Sequence[Trajectory]) -> list[int]:
        return self.append_payloads([encode(trajectory) for trajectory in trajectories])

    @override
    def append_payloads(self, payloads: Sequence[bytes | memoryview]) -> list[int]:
        cursors: list[int] = self._call("append_payloads", [bytes(payload) for payload in payloads])
        return cursors

    @override
    def check(self, trajectories: Sequence[Trajectory]) -> None:
        self._call("check", trajectories)

    @override
    def capacity(self) -> int:
        return int(self._call("capacity"))

    @override
    def open(self, plans: Sequence[GroupPlan]) -> list[str]:
        return self.admit(plans, elsewhere=0)

    @override
    def admit(self, plans: Sequence[GroupPlan], *, elsewhere: int) -> list[str]:
        admitted: list[str] = self._call("admit", plans, elsewhere=elsewhere)
        return admitted

    @override
    def demand(self, *, version: int) -> int:
        return int(self._call("demand", version=version))

    @override
    def occupied(self, *, version: int) -> int:
        return int(self._call("occupied", version=version))

    @override
    def available(self, *, version: int) -> int:
        return int(self._call("available", version=version))

    @override
    def lease(
        self, count: int, *, version: int, consumer: str, at_least: int = 1, lease_id: str | None = None
    ) -> Lease:
        def ask(id: str) -> Lease:
            asked = {"version": version, "consumer": consumer, "at_least": at_least, "lease_id": id}
            lease: Lease = self._call("lease", count, **asked)
            return lease

        return lease_once(ask, lease_id, self._new_id)

    @override
    def ready(self, *, limit: int = 1000) -> list[Ready]:
        waiting: list[Ready] = self._call("ready", limit=limit)
        return waiting

    @override
    def lease_groups(self, ids: Sequence[str], *, version: int, consumer: str, lease_id: str | None = None) -> Lease:
        def ask(id: str) -> Lease:
            lease: Lease = self._call("lease_groups", ids, version=version, consumer=consumer, lease_id=id)
            return lease

        return lease_once(ask, lease_id, self._new_id)

    @override
    def renew(self, lease_id: str) -> float:
        return float(self._call("renew", lease_id))

    @override
    def release(self, lease_id: str) -> None:
        self._call("release", lease_id)

    @override
    def ack(self, lease_id: str, *, version: int) -> None:
        self._call("ack", lease_id, version=version)

    @override
    def pin(self, lease_id: str) -> None:
        self._call("pin", lease_id)

    @override
    def undecided(self) -> list[str]:
        leases: list[str] = self._call("undecided")
        return leases

    @override
    def lease_state(self, lease_id: str) -> tuple[str, int | None]:
        state: tuple[str, int | None] = self._call("lease_state", lease_id)
        return state

    @override
    def read(
        self, after: int = 0, *, limit: int = 100, selection: Selection = EVERYTHING
    ) -> list[tuple[int, Trajectory]]:
        page: list[tuple[int, Trajectory]] = self._call("read", after, limit=limit, selection=selection)
        return page

    @override
    def stats(self) -> HubStats:
        stats: HubStats = self._call("stats")
        return stats

    @override
    def share(self, environment: str, *, weight: float = 1.0, min_share: float = 0.0) -> None:
        self._call("share", environment, weight=weight, min_share=min_share)

    @override
    def remember(self, key: str, text: str) -> None:
        self._call("remember", key, text)

    @override
    def recall(self, key: str) -> str | None:
        text: str | None = self._call("recall", key)
        return text

    @override
    def sweep(self) -> None:
        self._call("sweep")

    @override
    def close(self) -> None:
        pass

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return ray.get(self.actor.call.remote(method, *args, **kwargs))
        except RayTaskError as error:
            raise error.cause from error
