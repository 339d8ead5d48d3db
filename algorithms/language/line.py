"""The line of one run: curriculum → attempts → hub → lease → checkpoint → ack, with nothing lost or trained twice.

The hub's ack is the commit point. Checkpoint n is staged with the leases it was trained on; it counts once the hub has
the acks. After a crash the acks are repeated: either they hold, or a lease was lost and training goes on from the
checkpoint before. Attempts that the hub has already are not made again.
"""

import json
import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from loomrl.algorithms.stopping import Stopper
from loomrl.checkpoints import Checkpoints
from loomrl.config import Experiment, LanguagePolicy
from loomrl.errors import HubError, LeaseLost
from loomrl.gym.curriculum import Curriculum, Draw, Outcome
from loomrl.gym.episode import Attempt
from loomrl.gym.host.local import Plan
from loomrl.gym.memory import MemoryBank
from loomrl.gym.mixture import Cast
from loomrl.gym.quarantine import Quarantine
from loomrl.hub import GroupPlan, Hub, Lease, Selection
from loomrl.store import LoomDB
from loomrl.store.policies import list_policies, record_policy
from loomrl.types import Failure, Group, PolicyVersion, Trajectory

_log = logging.getLogger(__name__)

TRIES = 3
"""How often an update is attempted, each time with other tasks, when every group of it fails."""
STATE = "line.json"
"""The line's own file in a checkpoint."""


class Ahead(Protocol):
    """What a line begins before its turn, and does not forget."""

    def state_dict(self) -> dict[str, Any]:
        """Where it is, as JSON."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""


@dataclass(slots=True)
class Line:
    """One run while it is being trained. `done` counts its updates, and is the version of the policy that acts."""

    experiment: Experiment
    run: str
    db: LoomDB
    hub: Hub
    checkpoints: Checkpoints
    cast: Cast
    curriculum: Curriculum
    quarantine: Quarantine
    """Part of the curriculum, which leaves out whoever is in it."""
    stopper: Stopper
    clock: Callable[[], float]
    code: str
    """Revision of the code that trains now."""
    done: int = 0
    cursor: int = 0
    """Behind the attempts of all updates that are done. Those of later ones, if there are any, come after it."""
    leases: dict[str, float] = field(default_factory=dict)
    """What was trained on since the last checkpoint, in order, and until when it is ours."""
    kept: dict[str, int] = field(default_factory=dict)
    """Checkpoints that stay: `last` and `best`."""
    kept_mean: float | None = None
    """Mean success by which `best` is the best; None while no window was full."""
    parent: str | None = None
    """The version recorded last."""
    reached: int = 0
    """Behind the attempts of the present update, too."""
    memories: MemoryBank = field(default_factory=MemoryBank)
    """What groups leave to later ones."""
    stream: Ahead | None = None
    """What has begun beyond the present update, where rollouts do not wait for it."""

    def attempt(
        self, policy: LanguagePolicy, play: Callable[[Sequence[Plan]], Iterable[Trajectory]]
    ) -> tuple[list[Group], list[Failure]]:
        """This update's groups, leased, and what failed on the way to them.

        What the hub has already is not played again. If all of it failed, other tasks are tried; families that keep
        failing are quarantined.
        """
        failures: list[Failure] = []
        self.hold()
        for tries in range(TRIES):
            plans = {plan.attempt.id: plan for plan in self._plans(policy, tries)}
            stored = list(self.hub.replay(after=self.cursor, selection=Selection(run=self.run)))
            attempts = {t.id: t for _, t in stored if t.id in plans}
            played = sorted(play([plan for id, plan in plans.items() if id not in attempts]), key=_by_plan)
            cursors = [*(c for c, t in stored if t.id in plans), *(self.hub.append(played) if played else ())]
            self.reached = max([self.reached, *cursors])
            everything = [*attempts.values(), *played]
            failures += [attempt.failure for attempt in everything if attempt.failure is not None]
            for case in self.quarantine.observe(everything):
                _log.warning("quarantined: %s", case)
            lease = self._lease(dict.fromkeys(plan.attempt.group for plan in plans.values()))
            if lease.groups:
                self.leases[lease.id] = lease.expires_at
                return self.in_order(lease.groups), failures
        raise HubError(f"update {self.done}: no group can be trained. Released so far: {self.causes()}.")

    def advance(self, groups: Sequence[Group], *, success: float, kl: float) -> str | None:
        """Update `done + 1` was made from these groups; why to stop now, or None."""
        usable = [attempt for group in groups for attempt in group.usable]
        self.curriculum.observe(Outcome(self.cast.family_of(t.task), t.task.level, t.reward.success) for t in usable)
        for group in groups:
            self.memories.commit(group)
        self.done += 1
        self.cursor = self.reached
        return self.stopper.observe(success, kl)

    def hold(self) -> None:
        """Renew every lease of which less than half its term is left."""
        soon = self.clock() + self.experiment.hub.lease_s / 2
        for id, expires_at in self.leases.items():
            if expires_at < soon:
                self.leases[id] = self.hub.renew(id)

    def _lease(self, groups: Collection[str]) -> Lease:
        """Whichever of these groups can be trained: what a killed process left of later updates stays where it is.

        A lease that the killed process held is taken over, a lost one replaced.
        """
        for attempt in count():
            id = f"{self.run}/{self.done}/{attempt}"
            try:
                lease = self.hub.lease_groups(list(groups), version=self.done, consumer=self.run, lease_id=id)
                if not lease.groups:
                    ready = [one.id for one in self.hub.ready(limit=10**6) if one.id in groups]
                    lease = self.hub.lease_groups(ready, version=self.done, consumer=self.run, lease_id=id)
            except LeaseLost:
                continue
            return lease
        raise AssertionError("unreachable")

    def _plans(self, policy: LanguagePolicy, tries: int) -> list[Plan]:
        """The attempts of this update: the same after a restart, because they follow from seed and update alone."""
        rng = random.Random(f"{self.experiment.seed}/{self.done}/{tries}")
        rollout, plans, groups = self.experiment.rollout, [], []
        for index in range(tries * rollout.groups_per_update, (tries + 1) * rollout.groups_per_update):
            member = self.cast.member(draw := self.draw(rng))
            name = f"{self.done}/{index}"
            groups.append(GroupPlan(f"{self.run}/{name}", member.name, rollout.group_size, policy.version))
            plans += self.siblings(name, draw, policy)
        self.hub.open(groups)
        return plans

    def draw(self, rng: random.Random) -> Draw:
        """The curriculum's next task, with the memory that its family has now."""
        drawn = self.curriculum.draw(rng)
        return replace(drawn, memory=self.memories.snapshot(drawn.family.key))

    def siblings(self, name: str, draw: Draw, policy: LanguagePolicy) -> list[Plan]:
        """The attempts of a group; what they are follows from its name in the run, and the draw."""
        member, group, size = self.cast.member(draw), f"{self.run}/{name}", self.experiment.rollout.group_size
        first = Attempt(
            id=f"{group}/0",
            task=member.task(draw),
            group=group,
            group_size=size,
            version=policy.version,
            run=self.run,
            snapshot=member.snapshot,
        )
        return [
            Plan(
                attempt=replace(first, id=f"{group}/{sibling}"),
                policy=policy,
                settings=member.config.settings,
                seed=f"{self.experiment.seed}/{name}/{sibling}",
            )
            for sibling in range(size)
        ]

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def commit(self, folder: Path) -> None:
        """Stage the checkpoint in `folder`, ack everything it was trained on, then believe it and let older ones go."""
        state = self.state_dict() | {"leases": [*self.leases], "created_at": self.clock(), "code": self.code}
        (folder / STATE).write_text(json.dumps(state))
        self.checkpoints.put(self.done, folder)
        self.hold()
        self._ack(state)
        self._believe(state)

    def resume(self, into: Path) -> Path | None:
        """A copy of the newest checkpoint that counts, with the line set to where it was taken; None without any."""
        recorded = list_policies(self.db, run=self.run, limit=1)
        newest = recorded[0].number if recorded else -1
        self.checkpoints.refuse_lost(newest)
        for number in reversed(self.checkpoints.numbers()):
            folder = self.checkpoints.get(number, into / str(number))
            state = json.loads((folder / STATE).read_text())
            if number > newest and not self._claim(state):
                self.checkpoints.delete(number)
                continue
            self.load_state_dict(state)
            self._believe(state)
            return folder
        return None

    def _claim(self, state: Mapping[str, Any]) -> bool:
        """Whether everything that a staged checkpoint was trained on is, or becomes, acked."""
        try:
            self._ack(state)
        except LeaseLost:
            return False
        return True

    def _ack(self, state: Mapping[str, Any]) -> None:
        for lease_id in state["leases"]:
            self.hub.ack(lease_id, version=state["done"])

    def _believe(self, state: Mapping[str, Any]) -> None:
        number = state["done"]
        version = PolicyVersion(
            id=f"{self.run}/{number}",
            number=number,
            url=self.checkpoints.url(number),
            run=self.run,
            algorithm=self.experiment.algorithm.kind,
            experiment=self.experiment.sha256,
            parent=state["parent"],
            data={"leases": state["leases"], "cursor": state["cursor"]},
            code=state["code"],
            created_at=state["created_at"],
        )
        record_policy(self.db, version)
        self.parent, self.leases = version.id, {}
        self._prune(number, mean=state.get("stopper_mean"))

    def _prune(self, last: int, *, mean: float | None) -> None:
        """Keep the last checkpoint and the best: the newest, until there is a mean to compare."""
        self.kept["last"] = last
        if self.kept_mean is None or (mean is not None and mean > self.kept_mean):
            self.kept["best"], self.kept_mean = last, mean
        self.checkpoints.prune(self.kept.values())

    @staticmethod
    def in_order(groups: Iterable[Group]) -> list[Group]:
        """Groups and their attempts finish in any order; sums must not depend on it."""
        ordered = sorted(groups, key=lambda group: (len(group.id), group.id))
        return [Group(g.id, tuple(sorted(g.trajectories, key=_by_plan)), g.cause) for g in ordered]

    def causes(self) -> dict[str, int]:
        """Why groups were released, and how many."""
        return {cause: n for line in self.hub.stats().environments.values() for cause, n in line.released.items()}

    def state_dict(self) -> dict[str, Any]:
        """Where the line is, as JSON."""
        return {
            "run": self.run,
            "experiment": self.experiment.sha256,
            "done": self.done,
            "cursor": self.cursor,
            "parent": self.parent,
            "kept": dict(self.kept),
            "kept_mean": self.kept_mean,
            "stopper_mean": self.stopper.mean,
            "curriculum": self.curriculum.state_dict(),
            "stopper": self.stopper.state_dict(),
            "memories": self.memories.state_dict(),
            "stream": self.stream and self.stream.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.done, self.cursor, self.parent = state["done"], state["cursor"], state["parent"]
        self.reached = self.cursor
        self.kept, self.kept_mean = dict(state["kept"]), state.get("kept_mean")
        self.curriculum.load_state_dict(state["curriculum"])
        self.stopper.load_state_dict(state["stopper"])
        self.memories.load_state_dict(state.get("memories", {}))
        if self.stream is not None:
            self.stream.load_state_dict(state["stream"])


def _by_plan(attempt: Trajectory) -> tuple[int, str]:
    return len(attempt.id), attempt.id
