from dataclasses import replace

import pytest

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.rewards import (
    REWARDS,
    StoredReward,
    are_there,
    first_scores,
    latest_rewards,
    newest_rewards,
    rewards_of,
    store_rewards,
)

FIRST = StoredReward(
    id="r0",
    trajectory="t0",
    endpoint="talk",
    task="talk/session/1",
    total=0.6,
    confidence=0.4,
    first={"efficiency": 0.25},
    content={"components": {"efficiency": {"value": 0.25, "why": "ü"}}},
    created_at=1.5,
)


def many(count: int, *, trajectories: int, endpoint: str = "talk", task: str = "a") -> list[StoredReward]:
    """Rewards in turn of so many trajectories."""
    place = replace(FIRST, endpoint=endpoint, task=task)
    return [
        replace(place, id=f"{endpoint}{task}{n}", trajectory=f"{task}{n % trajectories}", total=n) for n in range(count)
    ]


def test_the_newest_reward_of_a_trajectory_holds_and_the_others_stay(store: LoomDB) -> None:
    mine = many(7, trajectories=3)
    store_rewards(store, mine)
    assert latest_rewards(store, ["a0", "a1", "nowhere"]) == {"a0": mine[6], "a1": mine[4]}
    assert rewards_of(store, "a0") == [mine[0], mine[3], mine[6]]
    assert latest_rewards(store, []) == {}


def test_a_repeated_id_changes_nothing_and_makes_no_event(store: LoomDB) -> None:
    assert len(store_rewards(store, [FIRST, replace(FIRST, total=0.9), replace(FIRST, id="r1")])) == 2
    assert len(store_rewards(store, [replace(FIRST, total=0.1)])) == 0
    assert rewards_of(store, "t0") == [FIRST, replace(FIRST, id="r1")]
    told = [event for _, event in EVENTS.read(store)]
    assert [(event.kind, event.subject) for event in told] == [("reward.made", "r0"), ("reward.made", "r1")]
    assert told[0].data == {"trajectory": "t0", "endpoint": "talk", "total": 0.6, "confidence": 0.4}


def test_content_that_is_no_json_is_refused_whole_and_named(store: LoomDB) -> None:
    with pytest.raises(StoreError, match="rewards 'r1': content"):
        store_rewards(store, [FIRST, replace(FIRST, id="r1", content={"value": float("nan")})])
    assert REWARDS.read(store) == []
    assert EVENTS.read(store) == []


def test_the_trajectories_judged_last_are_each_there_once_with_their_newest_reward(store: LoomDB) -> None:
    store_rewards(store, many(3, trajectories=3, task="b"))
    mine = many(9, trajectories=4)
    store_rewards(store, [*mine, *many(3, trajectories=3, endpoint="other")])
    found = newest_rewards(store, "talk", limit=5)
    assert [one.id for _, one in found] == ["talkb2", "talka5", "talka6", "talka7", "talka8"]
    assert [position for position, _ in found] == sorted(position for position, _ in found)
    assert [one.id for _, one in newest_rewards(store, "talk", limit=2)] == ["talka7", "talka8"]
    assert [one.trajectory for _, one in newest_rewards(store, "talk", limit=9, task="b")] == ["b0", "b1", "b2"]
    assert len(newest_rewards(store, "talk", limit=100)) == 7


def test_first_scores_are_read_by_window(store: LoomDB) -> None:
    mine = many(5, trajectories=5)
    store_rewards(store, [*many(2, trajectories=2, endpoint="other"), *mine])
    (start, _), *_ = page = first_scores(store, "talk", after=0, limit=2)
    assert [first for _, first in page] == [{"efficiency": 0.25}] * 2
    assert are_there(store, "talk", after=start, count=4)
    assert not are_there(store, "talk", after=start, count=5)
