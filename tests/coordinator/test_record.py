"""What the coordinator asks of the store beside its own rows."""

import time

from loomrl.config import DataSelection, HubConfig
from loomrl.feedback.dataset import freeze
from loomrl.hub.open import open_endpoint_hub
from loomrl.store import LoomDB
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.events import EVENTS, Event
from loomrl.store.rewards import reward_before, rewards_since, store_rewards
from loomrl.store.sessions import NewCall, count_lost, end_session, keep_calls, mark_stored
from loomrl.types import Source
from tests.coordinator.loop_kills import ENDPOINT
from tests.coordinator.test_degradation import made
from tests.coordinator.test_loop_kills import prepare
from tests.hub.hub_samples import attempt


def test_event_is_stored_once_about_its_subject(store: LoomDB) -> None:
    assert EVENTS.append_once(store, Event(kind="k", subject="s", data={"a": 1}, created_at=1.0))
    assert not EVENTS.append_once(store, Event(kind="k", subject="s", data={"a": 2}, created_at=2.0))
    assert EVENTS.append_once(store, Event(kind="k", subject="other", created_at=3.0))
    assert [event.data for _, event in EVENTS.read(store, kind="k")] == [{"a": 1}, {}]


def test_rewards_of_a_day_are_those_that_hold(store: LoomDB) -> None:
    store_rewards(store, [made("r", 0.1, number) for number in range(10)])
    store_rewards(store, [made("r", 0.9, 9, again=1)])
    found = [(each.trajectory, each.content["raw"]) for each in rewards_since(store, "e", 8.0)]
    assert found == [("r-9", 0.9), ("r-8", 0.1)]
    assert rewards_since(store, "other", 0.0) == []
    assert reward_before(store, "e", 3.0) == 3
    assert reward_before(store, "e", 0.0) == 0


def test_sessions_that_became_no_trajectory_are_lost(store: LoomDB) -> None:
    calls = [
        NewCall(id=f"c{n}", session=f"s{n}", endpoint="e", key="", payload=b"", columns=None, created_at=float(n))
        for n in range(4)
    ]
    keep_calls(store, calls)
    for number in range(4):
        end_session(store, f"s{number}", {}, at=9.0)
    mark_stored(store, {"s0": "", "s1": "s1", "s2": ""})
    assert count_lost(store, "e", since=0.0) == 2
    assert count_lost(store, "e", since=1.0) == 1
    assert count_lost(store, "other", since=0.0) == 0


def test_data_set_leaves_out_the_trajectories_that_are_named(store: LoomDB, store_url: str) -> None:
    prepare(store)
    set_endpoint(store, ENDPOINT, [Arm(name="stable", policy="first/1")], at=2.0)
    with open_endpoint_hub(store_url, ENDPOINT, HubConfig()) as hub:
        hub.append([attempt(f"t-{n}", source=Source.PRODUCTION, finished_at=time.time()) for n in range(4)])
    chosen = DataSelection(endpoints=(ENDPOINT,), holdout=0.0, without=("t-1", "nobody"))
    frozen = freeze(store, store_url, chosen, now=1.0)
    assert (frozen.content["sizes"]["train"], frozen.content["counts"]) == (3, {"without": 1})
