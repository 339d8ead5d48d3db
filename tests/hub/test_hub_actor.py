"""The hub as Ray actors: the same promises, and an actor's death is nobody's loss."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hub_samples import attempt, attempts, ids, math_of, take

from loomrl.config import EnvironmentConfig, HubConfig
from loomrl.errors import Conflict, LeaseLost

pytestmark = pytest.mark.system


@pytest.mark.usefixtures("ray_cluster")
def test_actors_keep_the_promises_and_survive_being_killed(sqlite_url: str) -> None:
    import ray

    from loomrl.hub.actor import start_hub

    settings = HubConfig(shards=2)
    weights = [EnvironmentConfig(id="Math", weight=2.0)]
    hub = start_hub(sqlite_url, settings, environments=weights, name="hub")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: hub.append(attempts(f"g{number}")), range(16)))
    with pytest.raises(Conflict, match="'g0/0'"):
        hub.append([attempt("g0/0", "g0", group_size=2, finished_at=4.0)])
    lease = take(hub, 10)
    for number in range(2):
        ray.kill(ray.get_actor(f"hub-{number}"), no_restart=False)
    hub.ack(lease.id, version=1)
    with pytest.raises(LeaseLost):
        hub.ack("unknown", version=1)
    again = start_hub(sqlite_url, settings, name="hub")
    rest = take(again, 10, version=1)
    assert sorted(ids([*lease.groups, *rest.groups])) == sorted(f"g{number}" for number in range(16))
    line = math_of(again)
    assert (line.weight, line.acked, line.trajectories) == (2.0, 10, 32)
    assert {t.id for _, t in again.replay()} == {f"{group.id}/{n}" for group in lease.groups for n in (0, 1)}
