"""`loomrl train`: the whole line, synchronously, with a checkpoint per update that survives a kill at any point.

The hub's ack is the commit point. Checkpoint n is staged with the lease it was trained on; it counts once the hub has
the ack. After a crash the ack is repeated: either it holds, or the lease was lost and training goes on from n - 1.
Attempts that the hub has already are not made again, so no prompt is lost and none is trained twice.
"""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any

from rich.console import Console

from experiments.learner import Learner, open_learner
from experiments.record import recorded
from loomrl.artifacts import Artifacts, open_artifacts
from loomrl.config import Experiment
from loomrl.errors import HubError, LeaseLost
from loomrl.gym.cast import Cast, open_cast
from loomrl.gym.curriculum import Curriculum, Outcome, open_curriculum
from loomrl.gym.episode import Attempt
from loomrl.gym.host import Plan
from loomrl.gym.pool import LoomRLGym
from loomrl.hub import GroupPlan, Hub, Lease, Selection, open_hub
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.policies import list_policies, record_policy
from loomrl.store.runs import code_revision
from loomrl.telemetry.progress import progress
from loomrl.types import Group, PolicyVersion


@dataclass(frozen=True, slots=True)
class TrainResult:
    """How a run went."""

    run: str
    updates: int
    policy: str
    success: list[float]
    """Mean success of the attempts of each update of this session."""
    metrics: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(slots=True)
class _Trainer:
    """One run while it is being trained. `done` counts its updates, and is the version of the policy that acts."""

    experiment: Experiment
    run: str
    db: LoomDB
    hub: Hub
    artifacts: Artifacts
    cast: Cast
    learner: Learner
    curriculum: Curriculum
    clock: Callable[[], float]
    code: str
    """Revision of the code that trains now."""
    done: int = 0
    cursor: int = 0
    """Behind everything the hub had when update `done` was made."""

    async def update(self, gym: LoomRLGym) -> tuple[float, dict[str, float]]:
        """One iteration; the mean success of its attempts, and the learner's metrics."""
        newest = await self._roll_out(gym)
        lease = self._lease()
        groups = [_in_order(group) for group in lease.groups]
        metrics = self.learner.learn(groups)
        usable = [attempt for group in groups for attempt in group.usable]
        self.curriculum.observe(Outcome(self.cast.family_of(t.task), t.task.level, t.reward.success) for t in usable)
        self._commit(lease, cursor=newest)
        return sum(t.reward.success for t in usable) / len(usable), metrics

    async def _roll_out(self, gym: LoomRLGym) -> int:
        """Make the attempts of this update that the hub does not have yet; the cursor behind the last of them."""
        plans = self._plans()
        stored = {t.id: cursor for cursor, t in self.hub.replay(after=self.cursor, selection=Selection(run=self.run))}
        newest = max(stored.values(), default=self.cursor)
        async with asyncio.TaskGroup() as tasks:
            appended = [
                tasks.create_task(asyncio.to_thread(self.hub.append, [trajectory]))
                async for trajectory in gym.run(plan for plan in plans if plan.attempt.id not in stored)
            ]
        return max((cursor for append in appended for cursor in append.result()), default=newest)

    def _lease(self) -> Lease:
        """All of this update's groups. A lease that a killed process held is taken over, a lost one replaced."""
        for attempt in count():
            try:
                lease = self.hub.lease(
                    self.experiment.rollout.groups_per_update,
                    version=self.done,
                    consumer=self.run,
                    lease_id=f"{self.run}/{self.done}/{attempt}",
                )
            except LeaseLost:
                continue
            if lease.groups:
                return lease
            raise HubError(f"update {self.done}: no group can be trained. Released so far: {self._causes()}.")
        raise AssertionError("unreachable")

    def _plans(self) -> list[Plan]:
        """The attempts of this update: the same after a restart, because they follow from seed and update alone."""
        rng = random.Random(f"{self.experiment.seed}/{self.done}")
        policy = self.learner.policy(self.done)
        rollout, plans = self.experiment.rollout, []
        for index in range(rollout.groups_per_update):
            member = self.cast.member(draw := self.curriculum.draw(rng))
            group = f"{self.run}/{self.done}/{index}"
            self.hub.open([GroupPlan(group, member.name, rollout.group_size, self.done)])
            first = Attempt(
                id=f"{group}/0",
                task=member.task(draw),
                group=group,
                group_size=rollout.group_size,
                version=self.done,
                run=self.run,
                snapshot=member.snapshot,
            )
            for sibling in range(rollout.group_size):
                attempt = replace(first, id=f"{group}/{sibling}")
                seed = f"{self.experiment.seed}/{self.done}/{index}/{sibling}"
                plans.append(Plan(attempt=attempt, policy=policy, settings=member.config.settings, seed=seed))
        return plans

    def _commit(self, lease: Lease, *, cursor: int) -> None:
        """Stage the next checkpoint, ack, then record it."""
        state = {
            "update": self.done + 1,
            "lease": lease.id,
            "cursor": cursor,
            "created_at": self.clock(),
            "code": self.code,
            "learner": self.learner.state_dict(),
            "curriculum": self.curriculum.state_dict(),
        }
        self.artifacts.put(self._name(self.done + 1), json.dumps(state).encode())
        self.hub.ack(lease.id, version=self.done + 1)
        self._adopt(state)

    def _adopt(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint whose ack the hub has."""
        self.learner.load_state_dict(state["learner"])
        self.curriculum.load_state_dict(state["curriculum"])
        self.done, self.cursor = state["update"], state["cursor"]
        version = PolicyVersion(
            id=f"{self.run}/{self.done}",
            number=self.done,
            url=f"{self.artifacts.url}/{self._name(self.done)}",
            run=self.run,
            algorithm=self.experiment.algorithm.kind,
            experiment=self.experiment.sha256,
            parent=f"{self.run}/{self.done - 1}" if self.done > 1 else None,
            data={"lease": state["lease"], "cursor": state["cursor"]},
            code=state["code"],
            created_at=state["created_at"],
        )
        record_policy(self.db, version)

    def resume(self) -> None:
        """Go on from the newest checkpoint that the hub has acked; drop one whose lease was lost."""
        recorded = list_policies(self.db, run=self.run, limit=1)
        newest = recorded[0].number if recorded else 0
        if newest:
            self._adopt(self._staged(newest))
        if not self.artifacts.exists(self._name(newest + 1)):
            return
        state = self._staged(newest + 1)
        try:
            self.hub.ack(state["lease"], version=newest + 1)
        except LeaseLost:
            self.artifacts.delete(self._name(newest + 1))
        else:
            self._adopt(state)

    def _staged(self, number: int) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.artifacts.get(self._name(number)))
        return state

    def _name(self, number: int) -> str:
        return f"runs/{self.run}/checkpoint-{number:06d}"

    def _causes(self) -> dict[str, int]:
        return {cause: n for line in self.hub.stats().environments.values() for cause, n in line.released.items()}


def _in_order(group: Group) -> Group:
    """Attempts in the order of their plans: they finish in any order, and sums must not depend on it."""
    return Group(group.id, tuple(sorted(group.trajectories, key=lambda t: (len(t.id), t.id))), group.cause)


def train(experiment: Experiment, *, run: str | None = None, clock: Callable[[], float] = time.time) -> TrainResult:
    """Train until the target or the last update. A run that exists already goes on where it was."""
    run = run or f"{experiment.name}-{uuid.uuid4().hex[:8]}"
    with open_store(experiment.store_url) as db:
        cast = open_cast(experiment, db)
        with recorded(db, experiment, cast, id=run, kind="train", clock=clock) as record:
            result = _train(experiment, run, db, cast, clock)
            record |= result.as_dict()
        return result


def _train(experiment: Experiment, run: str, db: LoomDB, cast: Cast, clock: Callable[[], float]) -> TrainResult:
    hub = open_hub(
        beside(experiment.store_url, run),
        experiment.hub,
        groups_per_update=experiment.rollout.groups_per_update,
        environments=experiment.environments,
    )
    with hub:
        trainer = _Trainer(
            experiment=experiment,
            run=run,
            db=db,
            hub=hub,
            artifacts=open_artifacts(experiment.artifact_url),
            cast=cast,
            learner=open_learner(experiment.algorithm),
            curriculum=open_curriculum(cast.families, experiment.curriculum),
            clock=clock,
            code=code_revision(),
        )
        trainer.resume()
        return asyncio.run(_loop(trainer))


async def _loop(trainer: _Trainer) -> TrainResult:
    experiment = trainer.experiment
    successes: list[float] = []
    metrics: dict[str, float] = {}
    updates, target = experiment.train.updates, experiment.train.stop.target
    async with LoomRLGym(experiment.rollout) as gym:
        with progress(f"train {trainer.run}", updates) as report:
            while trainer.done < updates and not (target and successes and successes[-1] >= target):
                success, metrics = await trainer.update(gym)
                successes.append(success)
                report(trainer.done, f"success {success:.3f}")
    return TrainResult(trainer.run, trainer.done, f"{trainer.run}/{trainer.done}", successes, metrics)


def render(result: TrainResult, console: Console) -> None:
    """The course of the run, for people."""
    shown = "  ".join(f"{success:.2f}" for success in result.success) or "nothing left to do"
    console.print(f"{result.policy} after {result.updates} updates", highlight=False)
    console.print(f"success per update: {shown}", highlight=False)
    for name, value in result.metrics.items():
        console.print(f"  {name:20} {value:.3f}", highlight=False)
    console.print(f"who made it from what: loomrl lineage {result.policy}", highlight=False)
