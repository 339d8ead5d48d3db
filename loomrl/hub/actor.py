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
from loomrl.hub.client import RemoteHub, asked
from loomrl.hub.hub import Hub, Shard
from loomrl.hub.open import set_shares, shard_urls
from loomrl.hub.queue import LocalHub, Promises
from loomrl.hub.sharded import ShardedHub
from loomrl.store import open_store

CALLS_AT_ONCE = 32
"""Calls an actor takes at the same time: what waits together is committed together."""


class HubActor:
    """One shard in a process of its own."""

    def __init__(self, url: str, promises: Promises) -> None:
        self._hub = LocalHub(open_store(url), promises)

    def call(self, operation: str, arguments: dict[str, Any]) -> Any:
        """A call of the hub's own method."""
        return getattr(self._hub, operation)(**arguments)


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
    set_shares(shards, environments)
    return hub


class ActorHub(RemoteHub, Shard):
    """The hub in an actor. `close` leaves the actor to others; `ray.kill` ends it, at any time."""

    def __init__(self, actor: Any, *, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        super().__init__(new_id=new_id)
        self.actor = actor

    share = asked(Shard.share)
    check = asked(Shard.check)
    admit = asked(Shard.admit)
    available = asked(Shard.available)
    pin = asked(Shard.pin)
    undecided = asked(Shard.undecided)
    lease_state = asked(Shard.lease_state)

    @override
    def close(self) -> None:
        pass

    @override
    def _ask(self, operation: str, arguments: dict[str, Any]) -> Any:
        try:
            return ray.get(self.actor.call.remote(operation, arguments))
        except RayTaskError as error:
            raise error.cause from error
