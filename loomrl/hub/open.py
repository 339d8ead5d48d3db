"""The one way to a hub in this process: by URL, sharded as the settings say."""

import re
import time
from collections.abc import Callable, Sequence

from sqlalchemy import select

from loomrl.config import EnvironmentConfig, HubConfig
from loomrl.hub.hub import Hub, Shard
from loomrl.hub.queue import LocalHub, Promises
from loomrl.hub.sharded import ShardedHub
from loomrl.store import beside, open_store
from loomrl.store.db import LoomDB
from loomrl.store.runs import RUNS, RunStatus


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


_SHARD = re.compile(r"-\d+$")


def run_hubs(db: LoomDB, names: Sequence[str]) -> dict[str, bool]:
    """The LoomDBs of these that are hubs of runs → True while the run is going on. Each shard is one."""
    with db.read() as connection:
        going = {id: status == RunStatus.RUNNING for id, status in connection.execute(select(RUNS.c.id, RUNS.c.status))}
    found = {name: name if name in going else _SHARD.sub("", name) for name in names}
    return {name: going[run] for name, run in found.items() if run in going}
