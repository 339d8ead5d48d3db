from dataclasses import replace

import pytest

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.events import read_events
from loomrl.store.rewards import (
    StoredReward,
    append_rewards,
    are_there,
    first_scores,
    forget_rewards,
    latest_rewards,
    list_rewards,
    newest_rewards,
    read_rewards,
    rewards_of,
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


def test_rewards_come_back_unchanged_and_in_order_from_a_cursor(store: LoomDB) -> None:
    mine, others = many(5, trajectories=3), many(3, trajectories=3, endpoint="other")
    assert append_rewards(store, [FIRST]) == 1
    assert append_rewards(store, [*mine, *others]) == 8
    page = read_rewards(store, limit=3)
    assert [one for _, one in page] == [FIRST, *mine[:2]]
    assert [one for _, one in read_rewards(store, after=page[-1][0])] == [*mine[2:], *others]
    assert [one for _, one in read_rewards(store, endpoint="other")] == others
    assert list_rewards(store, limit=2, endpoint="talk") == mine[:-3:-1]


def test_the_newest_reward_of_a_trajectory_holds_and_the_others_stay(store: LoomDB) -> None:
    mine = many(7, trajectories=3)
    append_rewards(store, mine)
    assert latest_rewards(store, ["a0", "a1", "nowhere"]) == {"a0": mine[6], "a1": mine[4]}
    assert rewards_of(store, "a0") == [mine[0], mine[3], mine[6]]
    assert latest_rewards(store, []) == {}


def test_a_repeated_id_changes_nothing_and_makes_no_event(store: LoomDB) -> None:
    assert append_rewards(store, [FIRST, replace(FIRST, total=0.9), replace(FIRST, id="r1")]) == 2
    assert append_rewards(store, [replace(FIRST, total=0.1)]) == 0
    assert rewards_of(store, "t0") == [FIRST, replace(FIRST, id="r1")]
    told = [event for _, event in read_events(store)]
    assert [(event.kind, event.subject) for event in told] == [("reward.made", "r0"), ("reward.made", "r1")]
    assert told[0].data == {"trajectory": "t0", "endpoint": "talk", "total": 0.6, "confidence": 0.4}


def test_content_that_is_no_json_is_refused_whole_and_named(store: LoomDB) -> None:
    with pytest.raises(StoreError, match="reward 'r1': content"):
        append_rewards(store, [FIRST, replace(FIRST, id="r1", content={"value": float("nan")})])
    assert read_rewards(store) == []
    assert read_events(store) == []


def test_the_trajectories_judged_last_are_each_there_once_with_their_newest_reward(store: LoomDB) -> None:
    append_rewards(store, many(3, trajectories=3, task="b"))
    mine = many(9, trajectories=4)
    append_rewards(store, [*mine, *many(3, trajectories=3, endpoint="other")])
    found = newest_rewards(store, "talk", limit=5)
    assert [one.id for _, one in found] == ["talkb2", "talka5", "talka6", "talka7", "talka8"]
    assert [position for position, _ in found] == sorted(position for position, _ in found)
    assert [one.id for _, one in newest_rewards(store, "talk", limit=2)] == ["talka7", "talka8"]
    assert [one.trajectory for _, one in newest_rewards(store, "talk", limit=9, task="b")] == ["b0", "b1", "b2"]
    assert len(newest_rewards(store, "talk", limit=100)) == 7


def test_first_scores_are_read_by_window(store: LoomDB) -> None:
    mine = many(5, trajectories=5)
    append_rewards(store, [*many(2, trajectories=2, endpoint="other"), *mine])
    (start, _), *_ = page = first_scores(store, "talk", after=0, limit=2)
    assert [first for _, first in page] == [{"efficiency": 0.25}] * 2
    assert are_there(store, "talk", after=start, count=4)
    assert not are_there(store, "talk", after=start, count=5)


def test_forgotten_trajectories_have_no_rewards_and_others_keep_theirs(store: LoomDB) -> None:
    append_rewards(store, many(4, trajectories=2))
    assert forget_rewards(store, ["a0", "nowhere"]) == 2
    assert [one.trajectory for _, one in read_rewards(store)] == ["a1", "a1"]
