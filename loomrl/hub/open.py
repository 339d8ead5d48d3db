"""The one way to a hub in this process: by URL, sharded as the settings say."""

import time
from collections.abc import Callable, Sequence

from loomrl.config import EnvironmentConfig, HubConfig
from loomrl.hub.hub import Hub
from loomrl.hub.queue import LocalHub, Promises
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
    hub = LocalHub(open_store(url), promises, clock=clock)
    for environment in environments:
        hub.share(environment.id, weight=environment.weight, min_share=environment.min_share)
    return hub
