"""Whatever happens in whatever order: counters tell the truth, and nothing is trained twice, stale or unfinished."""

import operator
from collections import Counter
from tempfile import TemporaryDirectory

from hub_samples import Clock, attempt
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import func, select

from loomrl.config import HubConfig
from loomrl.errors import LeaseLost
from loomrl.hub import GroupPlan, Lease, open_hub
from loomrl.store.hub_tables import groups
from loomrl.types import End, Trajectory

SETTINGS = HubConfig(max_staleness=1, quorum=0.6, group_timeout_s=30, lease_s=20)
SIZES = {name: 1 + index % 3 for index, name in enumerate("abcdefgh")}


class HubMachine(RuleBasedStateMachine):
    """Producers, learners, time and the policy's version, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.folder = TemporaryDirectory(prefix="loom-test-")
        hub = open_hub(f"sqlite:///{self.folder.name}/loom.db", SETTINGS, groups_per_update=2, clock=self.clock)
        self.hub = hub
        self.version = 0
        self.leases: list[Lease] = []
        self.trained: list[str] = []
        self.deleted: list[Trajectory] = []
        self.cursors: set[int] = set()
        """Those of deleted trajectories."""

    def teardown(self) -> None:
        self.hub.close()
        self.folder.cleanup()

    @rule(name=st.sampled_from(sorted(SIZES)))
    def announce(self, name: str) -> None:
        room = self.hub.stats(version=self.version).room
        known = self.hub.stats().environments
        admitted = self.hub.open([GroupPlan(name, name.upper()[0:1], SIZES[name], self.version)])
        assert room >= 0
        assert admitted in ([], [name])
        assert known or admitted

    @rule(name=st.sampled_from(sorted(SIZES)), index=st.integers(0, 2), failed=st.booleans(), back=st.integers(0, 2))
    def append(self, name: str, index: int, failed: bool, back: int) -> None:
        stored = {t.id for _, t in self.hub.read(limit=1000)} | {t.id for t in self.deleted}
        id = f"{name}/{index % SIZES[name]}"
        if id not in stored:
            first = max(self.version - back, 0)
            one = attempt(
                id, name, environment=name.upper(), group_size=SIZES[name], failed=failed, first_version=first
            )
            assert self.hub.append([one]) == self.hub.append([one])

    @rule(count=st.integers(1, 3))
    def lease(self, count: int) -> None:
        lease = self.hub.lease(count, version=self.version, consumer="learner")
        for group in lease.groups:
            assert len(group.usable) >= 0.6 * SIZES[group.id]
            assert len(group.trajectories) == SIZES[group.id] or group.cause == "timeout"
            assert min(t.first_version for t in group.usable) >= self.version - 1
        self.leases += [lease] if lease.groups else []

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        try:
            self.hub.ack(lease.id, version=self.version + 1)
        except LeaseLost:
            return
        self.version += 1
        self.trained += [t.id for group in lease.groups for t in group.trajectories]

    @precondition(lambda self: self.leases)
    @rule()
    def release(self) -> None:
        self.hub.release(self.leases.pop().id)

    @rule(seconds=st.sampled_from([1, 15, 31]))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        stored = self.hub.read(limit=1000)
        if not stored:
            return
        cursor, one = stored[data.draw(st.integers(0, len(stored) - 1))]
        assert self.hub.delete([one.id, "never"]) == [one.id]
        assert self.hub.delete([one.id]) == []
        assert cursor not in {there for there, _ in self.hub.read(limit=1000)}
        self.deleted.append(one)
        self.cursors.add(cursor)

    @rule()
    def look(self) -> None:
        self.hub.ready()

    @invariant()
    def nothing_is_trained_twice(self) -> None:
        assert max(Counter(self.trained).values(), default=0) <= 1

    @invariant()
    def no_cursor_is_used_again(self) -> None:
        assert not self.cursors & {cursor for cursor, _ in self.hub.read(limit=1000)}

    @invariant()
    def counters_are_true(self) -> None:
        lines = self.hub.stats().environments
        with self.hub._db.read() as connection:
            query = select(groups.c.environment, groups.c.state, func.count()).group_by(
                groups.c.environment, groups.c.state
            )
            counted = {(row[0], row[1]): row[2] for row in connection.execute(query)}
        stored = [t for _, t in self.hub.read(limit=1000)] + self.deleted
        for name, line in lines.items():
            found = [counted.get((name, state), 0) for state in ("open", "ready", "leased", "acked", "released")]
            assert found[:3] == [line.open, line.ready, line.leased]
            ended = [line.acked, sum(line.released.values())]
            assert all(map(operator.le, found[3:], ended)) if self.deleted else found[3:] == ended
            own = [t for t in stored if t.task.environment == name]
            assert line.trajectories == len(own)
            assert line.failures == sum(t.end is End.FAILED for t in own)


TestHubStates = HubMachine.TestCase
TestHubStates.settings = settings(max_examples=15, stateful_step_count=25)
