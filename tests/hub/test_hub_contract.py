"""The contract of every hub, on SQLite, on PostgreSQL, sharded, and over HTTP."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hub_samples import Clock, OpenHub, attempt, attempts, ids, math_of, take

from loomrl.errors import Conflict, HubError, LeaseLost
from loomrl.hub import GroupPlan, Hub, Selection
from loomrl.hub.sharded import ShardedHub
from loomrl.types import NO_VERSION, Source

pytestmark = pytest.mark.system


def test_what_was_appended_comes_back_from_a_lease_unchanged(hub: Hub) -> None:
    group = attempts("g", 3, extra={"scores": np.arange(3, dtype=np.float32)}, first_version=4)
    hub.append(group)
    lease = take(hub, 5, version=4)
    assert ids(lease.groups) == ["g"]
    assert lease.groups[0].cause == ""
    for given, back in zip(group, lease.groups[0].trajectories, strict=True):
        assert replace(back, extra={}) == replace(given, extra={})
        assert np.array_equal(back.extra["scores"], given.extra["scores"])


def test_repeated_trajectory_keeps_its_first_cursor_and_counts_once(hub: Hub) -> None:
    first = hub.append(attempts("g"))
    assert hub.append(attempts("g")) == first
    assert hub.append([*attempts("g"), *attempts("g")]) == first + first
    assert math_of(hub).trajectories == 2
    assert len(list(hub.replay(selection=Selection()))) == 2


def test_repeated_id_with_other_content_is_refused_and_nothing_of_the_call_is_stored(hub: Hub) -> None:
    hub.append(attempts("g"))
    other = replace(attempt("g/0", "g", group_size=2), finished_at=9.0)
    with pytest.raises(Conflict, match=r"'g/0'.*other content"):
        hub.append([*attempts("new one"), *attempts("new two"), *attempts("new three"), other])
    assert math_of(hub).trajectories == 2
    assert len(hub.read()) == 2


def test_group_id_of_another_size_or_environment_is_refused(hub: Hub) -> None:
    hub.append([attempt("a", "g", group_size=2)])
    with pytest.raises(HubError, match=r"'g'.*2 attempts.*with 3"):
        hub.append([attempt("b", "g", group_size=3)])
    with pytest.raises(HubError, match=r"'Math'.*'Code'"):
        hub.append([attempt("c", "g", group_size=2, environment="Code")])


def test_a_lease_waits_for_whole_groups_and_for_as_many_as_it_needs(hub: Hub) -> None:
    hub.append([*attempts("a"), *attempts("b", 3)[:2]])
    assert take(hub, 2, at_least=2).groups == ()
    hub.append(attempts("b", 3)[2:])
    assert len(take(hub, 2, at_least=2).groups) == 2


def test_acked_groups_are_gone_and_the_ack_may_be_repeated(hub: Hub, clock: Clock) -> None:
    hub.append(attempts("g"))
    lease = take(hub, 1)
    assert take(hub, 1).groups == ()
    hub.ack(lease.id, version=1)
    hub.ack(lease.id, version=1)
    clock.now += 10_000
    assert take(hub, 1, version=1).groups == ()
    assert math_of(hub).acked == 1
    with pytest.raises(HubError, match="version 1 already, not 2"):
        hub.ack(lease.id, version=2)


def test_expired_lease_comes_back_exactly_once_and_its_late_ack_is_lost(opened: OpenHub, clock: Clock) -> None:
    hub = opened(lease_s=10)
    for name in "abcdefgh":
        hub.append(attempts(name))
    dead = take(hub, 8)
    clock.now += 11
    heir = take(hub, 100)
    assert sorted(ids(heir.groups)) == sorted(ids(dead.groups)) == list("abcdefgh")
    with pytest.raises(LeaseLost):
        hub.ack(dead.id, version=1)
    with pytest.raises(LeaseLost):
        hub.renew(dead.id)
    with pytest.raises(LeaseLost, match="'never'"):
        hub.ack("never", version=1)
    hub.ack(heir.id, version=1)
    assert math_of(hub).acked == 8


def test_renewed_lease_does_not_expire(opened: OpenHub, clock: Clock) -> None:
    hub = opened(lease_s=10)
    hub.append(attempts("g"))
    lease = take(hub, 1)
    clock.now += 8
    assert hub.renew(lease.id) == clock.now + 10
    clock.now += 8
    assert hub.ready() == []
    hub.ack(lease.id, version=1)


def test_released_lease_goes_back_at_once_and_can_be_released_again(hub: Hub) -> None:
    hub.append(attempts("g"))
    lease = take(hub, 1)
    hub.release(lease.id)
    hub.release(lease.id)
    assert ids(take(hub, 1).groups) == ["g"]
    with pytest.raises(LeaseLost):
        hub.ack(lease.id, version=1)


def test_repeated_lease_id_gives_the_same_lease_again(hub: Hub) -> None:
    for name in "abcdef":
        hub.append(attempts(name))
    first = take(hub, 4, lease_id="mine")
    again = take(hub, 4, lease_id="mine")
    assert first.id == again.id == "mine"
    assert sorted(ids(first.groups)) == sorted(ids(again.groups))


def test_named_groups_are_leased_all_in_their_order_or_none(hub: Hub) -> None:
    for name in "abcd":
        hub.append(attempts(name))
    assert sorted(group.id for group in hub.ready()) == list("abcd")
    assert hub.lease(2, at_least=2, version=0, consumer="learner", groups=["d", "missing"]).groups == ()
    lease = hub.lease(3, at_least=3, version=0, consumer="learner", groups=["d", "a", "c"])
    assert ids(lease.groups) == ["d", "a", "c"]
    assert [group.id for group in hub.ready()] == ["b"]
    assert take(hub, 1, groups=["a"]).groups == ()
    assert ids(take(hub, 9, groups=["a", "b", "missing"]).groups) == ["b"]


def test_group_that_cannot_reach_its_quorum_is_released_and_the_rest_of_it_is_late(opened: OpenHub) -> None:
    hub = opened(quorum=0.75)
    group = attempts("g", 4)
    hub.append([attempt("g/0", "g", group_size=4, failed=True)])
    assert math_of(hub).released == {}
    hub.append([attempt("g/1", "g", group_size=4, failed=True)])
    hub.append(group[2:])
    line = math_of(hub)
    assert (line.released, line.late, line.open, line.ready) == ({"quorum": 1}, 2, 0, 0)
    assert len(hub.read()) == 4


def test_overdue_group_is_handed_out_with_its_cause_or_released(opened: OpenHub, clock: Clock) -> None:
    hub = opened(quorum=0.5, group_timeout_s=60)
    hub.append(attempts("enough", 4)[:2])
    hub.append(attempts("too little", 4)[:1])
    clock.now += 61
    (group,) = take(hub, 5).groups
    assert (group.id, group.cause, len(group.trajectories)) == ("enough", "timeout", 2)
    assert math_of(hub).released == {"timeout": 1}
    hub.append(attempts("enough", 4)[2:])
    line = math_of(hub)
    assert (line.late, line.leased, line.ready) == (2, 1, 0)


@pytest.mark.parametrize(("max_staleness", "leased"), [(0, ["new", "scripted"]), (1, ["new", "old", "scripted"])])
def test_stale_groups_are_released_and_scripted_ones_never_are(
    opened: OpenHub, max_staleness: int, leased: list[str]
) -> None:
    hub = opened(max_staleness=max_staleness)
    hub.append(
        [attempt("o/0", "old", group_size=2, first_version=5), attempt("o/1", "old", group_size=2, first_version=4)]
    )
    hub.append(attempts("new", first_version=5))
    hub.append(attempts("scripted", first_version=NO_VERSION))
    hub.append([attempt("z/0", "zero", group_size=2, first_version=0), attempt("z/1", "zero", group_size=2)])
    lease = take(hub, 9, version=5)
    assert sorted(ids(lease.groups)) == leased
    assert math_of(hub).released == {"stale": 2 - max_staleness}


def test_room_follows_from_the_staleness_promise(opened: OpenHub) -> None:
    hub = opened(groups_per_update=2, max_staleness=1)
    plans = [GroupPlan(f"g{number}", "Math", 2, 0) for number in range(6)]
    assert hub.stats().room == hub.stats().capacity == 4
    admitted = hub.open(plans)
    assert len(admitted) == 4
    assert hub.stats(version=0).room == 0
    assert sorted(hub.open(plans)) == sorted(admitted)
    for id in admitted[:2]:
        hub.append(attempts(id, first_version=0))
    lease = take(hub, 2)
    assert hub.stats(version=0).room == 0
    hub.ack(lease.id, version=1)
    assert hub.stats(version=1).room == 2
    assert hub.stats().in_flight == 2


def test_groups_that_are_about_to_be_released_leave_room(opened: OpenHub, clock: Clock) -> None:
    hub = opened(groups_per_update=2, group_timeout_s=60)
    hub.append(attempts("old", first_version=0))
    hub.open([GroupPlan("forgotten", "Math", 2, 0)])
    assert hub.stats().room == hub.stats(version=0).room == 0
    assert hub.stats(version=1).room == 1
    clock.now += 61
    assert hub.stats(version=1).room == 2
    assert len(hub.open([GroupPlan(f"g{number}", "Math", 2, 1) for number in range(3)])) == 2


def test_oldest_groups_go_first(opened: OpenHub) -> None:
    hub = opened()
    for name in "abcdefgh":
        hub.append(attempts(name, 1 + (name in "bdf")))
    seen = []
    while lease := take(hub, 1).groups:
        seen += ids(lease)
    assert sorted(seen) == list("abcdefgh")
    if not isinstance(hub, ShardedHub):
        assert seen == list("abcdefgh")


def test_shares_follow_weights_and_minimum_shares(opened: OpenHub) -> None:
    hub = opened(weights={"A": {"weight": 6}, "B": {"weight": 3}, "C": {"weight": 1, "min_share": 0.25}})
    for name in "ABC":
        hub.append([t for n in range(80) for t in attempts(f"{name}{n}", 1, environment=name)])
    taken = Counter[str]()
    for _ in range(10):
        lease = take(hub, 8)
        taken.update(group.trajectories[0].task.environment for group in lease.groups)
    assert sum(taken.values()) == 80
    assert taken["C"] == pytest.approx(20, abs=4)
    assert taken["A"] == pytest.approx(40, abs=4)


def test_opening_again_with_other_weights_changes_them_while_running(opened: OpenHub) -> None:
    hub = opened(weights={"A": {"weight": 3}, "B": {"weight": 2}})
    opened(weights={"B": {"weight": 1, "min_share": 0.1}})
    found = {name: (one.weight, one.min_share) for name, one in hub.stats().environments.items()}
    assert found == {"A": (3.0, 0.0), "B": (1.0, 0.1)}


def test_reading_by_cursor_sees_everything_once_whatever_the_page(hub: Hub) -> None:
    stored = [t for n in range(9) for t in attempts(f"g{n}", 2)]
    hub.append(stored)
    for page in (1, 4, 100):
        assert sorted(t.id for _, t in hub.replay(selection=Selection(), page=page)) == sorted(ids(stored))
    cursor = hub.read(limit=18)[-1][0]
    hub.append(attempts("later"))
    assert sorted(t.id for _, t in hub.read(cursor)) == ["later/0", "later/1"]


def test_replay_takes_what_was_trained_on_by_every_filter(hub: Hub) -> None:
    hub.append(attempts("math", level=2, success=1.0, run="r1", first_version=3))
    hub.append(attempts("hard", level=9, success=0.0, run="r1", first_version=4, family="geometry"))
    hub.append(attempts("code", environment="Code", run="r2", first_version=5, source=Source.DEMONSTRATION))
    assert list(hub.replay()) == []
    lease = take(hub, 9, version=3)
    hub.ack(lease.id, version=4)
    hub.append(attempts("not trained", level=2, run="r1"))

    def found(**filters: object) -> set[str]:
        return {t.group for _, t in hub.replay(selection=Selection(acked=True, **filters))}  # type: ignore[arg-type]

    assert found() == {"math", "hard", "code"}
    assert found(environment="Code") == found(run="r2") == found(source=Source.DEMONSTRATION) == {"code"}
    assert found(family="geometry") == found(level=(5, None)) == found(success=(None, 0.5)) == {"hard"}
    assert found(version=(3, 3)) == found(level=(2, 2)) == {"math"}
    assert {t.group for _, t in hub.replay(selection=Selection(acked=False))} == {"not trained"}


def test_deleted_trajectories_are_gone_and_their_cursors_are_never_used_again(hub: Hub) -> None:
    cursors = hub.append([one for name in "abc" for one in attempts(name)])
    assert sorted(hub.delete(["c/1", "a/0", "never"])) == ["a/0", "c/1"]
    assert hub.delete(["c/1"]) == hub.delete([]) == []
    assert sorted(one.id for _, one in hub.read()) == ["a/1", "b/0", "b/1", "c/0"]
    assert ids(take(hub, 9).groups) == ["b"]
    assert math_of(hub).released == {"deleted": 2}
    assert sorted(hub.delete(["a/1", "b/0", "b/1", "c/0"])) == ["a/1", "b/0", "b/1", "c/0"]
    again = hub.append([one for name in "abc" for one in attempts(name)])
    assert not set(again) & set(cursors)
    assert len(hub.read(max(cursors))) == 6
    with pytest.raises(HubError, match="at most 10000 at once"):
        hub.delete(["x"] * 10_001)


def test_a_lease_goes_on_without_the_group_that_lost_an_attempt(hub: Hub) -> None:
    for name in "ab":
        hub.append(attempts(name))
    lease = take(hub, 2)
    hub.delete(["a/0"])
    hub.ack(lease.id, version=1)
    stats = math_of(hub)
    assert (stats.acked, stats.leased, stats.released) == (1, 0, {"deleted": 1})
    assert [one.id for _, one in hub.replay()] == ["b/0", "b/1"]


def test_trajectories_are_read_by_id_and_by_the_time_of_their_arrival(hub: Hub, clock: Clock) -> None:
    for name in "abc":
        hub.append(attempts(name))
        clock.now += 10
    found = hub.read(selection=Selection(ids=("c/1", "a/0", "never")))
    assert sorted(one.id for _, one in found) == ["a/0", "c/1"]
    assert hub.read(selection=Selection(ids=())) == []
    old = hub.read(selection=Selection(stored=(None, clock.now - 15)))
    assert sorted(one.id for _, one in old) == ["a/0", "a/1", "b/0", "b/1"]


def test_statistics_tell_success_parts_failures_and_rate(opened: OpenHub, clock: Clock) -> None:
    hub = opened(quorum=0.5)
    hub.append(attempts("a", success=1.0))
    hub.append([attempt("b/0", "b", group_size=2, success=0.0), attempt("b/1", "b", group_size=2, failed=True)])
    line = math_of(hub)
    groups = {group.id: group for group in take(hub, 9).groups}
    assert (len(groups["b"].trajectories), ids(groups["b"].usable), groups["b"].cause) == (2, ["b/0"], "")
    assert (line.trajectories, line.failures, line.ready, line.tokens) == (4, 1, 2, 12)
    assert line.success == pytest.approx(2 / 3)
    assert line.reward == pytest.approx(2 / 3 + 0.1)
    assert line.parts == pytest.approx({"correctness": 2 / 3, "format": 0.1})
    assert line.rate == pytest.approx(4 / 60)
    clock.now += 600
    assert math_of(hub).rate < 1e-4


def test_concurrent_appends_and_leases_lose_and_double_nothing(hub: Hub) -> None:
    def produce(worker: int) -> None:
        for number in range(10):
            for half in (slice(0, 1), slice(1, 2)):
                hub.append(attempts(f"{worker}-{number}")[half])

    def consume(worker: int) -> list[str]:
        taken = []
        for _ in range(10):
            lease = hub.lease(2, version=0, consumer=str(worker))
            if lease.groups:
                hub.ack(lease.id, version=worker)
                taken += ids(lease.groups)
        return taken

    with ThreadPoolExecutor(6) as threads:
        producing = [threads.submit(produce, worker) for worker in range(4)]
        consuming = [threads.submit(consume, worker) for worker in range(2)]
        taken = [id for task in consuming for id in task.result()]
        for task in producing:
            task.result()
    while rest := take(hub, 9).groups:
        taken += ids(rest)
    assert sorted(taken) == sorted(f"{worker}-{number}" for worker in range(4) for number in range(10))


def test_unstorable_trajectory_is_refused_by_name_and_spoils_nothing(hub: Hub) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"id": "a\0b"}, "NUL"),
        ({"id": ""}, "1 to"),
        ({"id": "x" * 501}, "1 to"),
        ({"id": "a", "run": "\ud800"}, "half surrogates|cannot be stored"),
        ({"id": "a", "level": 2**40}, "level=1099511627776"),
        ({"id": "a", "success": float("nan")}, "not finite"),
        ({"id": "a", "extra": {"x": object()}}, "object is neither JSON nor"),
        ({"id": "a", "extra": {"x": 2**70}}, "cannot be stored"),
        ({"id": "a", "extra": {"x": np.array(["text"])}}, "only bool, integer and float"),
    ]
    for fields, message in wrong:
        with pytest.raises(HubError, match=message):
            hub.append([attempt(**fields)])
    hub.append(attempts("good"))
    assert math_of(hub).trajectories == 2


def test_senseless_requests_are_refused_and_nothing_in_gives_nothing_out(hub: Hub) -> None:
    assert hub.append([]) == hub.open([]) == hub.read() == []
    with pytest.raises(HubError, match="at_least=3 <= count=2"):
        take(hub, 2, at_least=3)
    with pytest.raises(HubError, match="limit=-1"):
        hub.read(limit=-1)
    with pytest.raises(HubError, match="no cursor of this hub"):
        hub.read(1 << 200)
    with pytest.raises(HubError, match="version=1099511627776"):
        hub.ack("x", version=1 << 40)
    with pytest.raises(HubError, match="size of at least 1"):
        hub.open([GroupPlan("g", "Math", 0)])
    hub.append(attempts("g"))
    with pytest.raises(HubError, match="consumer"):
        hub.lease(2, version=0, consumer="")
