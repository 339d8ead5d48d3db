"""The one way to a hub in this process: by URL, sharded as the settings say."""

import time
from collections.abc import Callable, Sequence

from loomrl.config import EnvironmentConfig, HubConfig
from loomrl.hub.hub import Hub
from loomrl.hub.queue import LocalHub, Promises
from loomrl.hub.sharded import ShardedHub
from loomrl.store import open_store


def open_hub(
    url: str,
    settings: HubConfig,
    *,
    groups_per_update: int = 8,
    environments: Sequence[EnvironmentConfig] = (),
    clock: Callable[[], float] = time.time,
) -> Hub:
    """The hub in the LoomDB behind `url`, migrated to this code's schema, with the environments' shares set."""
    promises = Promises(settings, groups_per_update)
    shards = [LocalHub(open_store(shard), promises, clock=clock) for shard in shard_urls(url, settings.shards)]
    hub: Hub = shards[0] if len(shards) == 1 else ShardedHub(shards)
    for environment in environments:
        hub.share(environment.id, weight=environment.weight, min_share=environment.min_share)
    return hub


def shard_urls(url: str, count: int) -> list[str]:
    """The database of each shard: `loom.db`, `loom-2.db`, `loom-3.db`, …; on a server they must exist already."""
    if count == 1:
        return [url]
    address, question, options = url.partition("?")
    folder, slash, name = address.rpartition("/")
    stem, dot, ending = name.partition(".")
    names = [name, *(f"{stem}-{number}{dot}{ending}" for number in range(2, count + 1))]
    return [f"{folder}{slash}{each}{question}{options}" for each in names]
