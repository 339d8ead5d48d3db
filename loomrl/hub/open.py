"""The one way to a hub in this process: by URL, sharded as the settings say."""

import time
from collections.abc import Callable, Sequence

from loomrl.config import EnvironmentConfig, HubConfig
from loomrl.hub.hub import Hub
from loomrl.hub.queue import LocalHub, Promises
from loomrl.hub.shard import Shard
from loomrl.hub.sharded import ShardedHub
from loomrl.store import beside, open_store


def open_hub(
    url: str,
    settings: HubConfig,
    *,
    groups_per_update: int = 8,
    environments: Sequence[EnvironmentConfig] = (),
    clock: Callable[[], float] = time.time,
    reconnect_s: float = 0.0,
) -> Hub:
    """The hub in the LoomDB behind `url`, migrated to this code's schema, with the environments' shares set."""
    promises = Promises(settings, groups_per_update)
    stores = [open_store(shard, reconnect_s=reconnect_s) for shard in shard_urls(url, settings.shards)]
    shards = [LocalHub(store, promises, clock=clock) for store in stores]
    hub: Hub = shards[0] if len(shards) == 1 else ShardedHub(shards)
    set_shares(shards, environments)
    return hub


def open_endpoint_hub(url: str, endpoint: str, settings: HubConfig) -> Hub:
    """The hub of what an endpoint served: a LoomDB beside the one behind `url`."""
    return open_hub(beside(url, f"endpoint-{endpoint}"), settings)


def set_shares(shards: Sequence[Shard], environments: Sequence[EnvironmentConfig]) -> None:
    """Give the environments their shares of leased groups, from now on; others keep theirs."""
    for shard in shards:
        for environment in environments:
            shard.share(environment.id, weight=environment.weight, min_share=environment.min_share)


def shard_urls(url: str, count: int) -> list[str]:
    """The database of each shard: the named one, and its neighbours `2`, `3`, …"""
    return [url, *(beside(url, str(number)) for number in range(2, count + 1))]
