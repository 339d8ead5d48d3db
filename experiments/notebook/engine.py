"""Attempts by a policy, in one call: `engine.load_policy(trainer.policy)`, `engine.generate_rollouts(states)`."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loomrl.config import PolicyChoice, RolloutConfig, ScriptedPolicy
from loomrl.errors import ConfigError
from loomrl.experiments.notebook.integrated import TrainedPolicy
from loomrl.experiments.policies import find_policy, meet, open_policy
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.manual import ManualState
from loomrl.gym.policy import Policy
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.synchronous import PrivateLoop
from loomrl.store import open_store
from loomrl.types import Task, Trajectory


class RolloutEngine:
    """A policy and the engine that it samples with, opened when it is first needed."""

    def __init__(
        self, *, temperature: float = 1.0, concurrency: int = 64, store_url: str = "sqlite:///loom.db"
    ) -> None:
        self._temperature = temperature
        self._rollout = RolloutConfig(concurrency=concurrency)
        self._store_url = store_url
        self._gym: LoomRLGym | None = None
        self._choice: PolicyChoice = ScriptedPolicy()
        self._version: str | None = None

    def load_policy(self, policy: TrainedPolicy | str | Policy) -> None:
        """From now on this one acts: a trainer's, what `loomrl evaluate --policy` takes, or an object of your own."""
        if isinstance(policy, TrainedPolicy):
            self._load(policy.id, policy.store_url)
        elif isinstance(policy, str):
            self._load(policy, self._store_url)
        else:
            self._choice = ScriptedPolicy()
            self._version = None
            self._gym = LoomRLGym(self._rollout, open_policy=lambda choice: lambda environment, rng: policy)

    def generate_rollouts(self, states: Iterable[ManualState | Task], *, attempts: int = 1) -> list[Trajectory]:
        """`attempts` at the task of each state, from beginning to end, in the order of the states."""
        if self._gym is None:
            raise ConfigError("no policy acts yet: call load_policy first, for example with trainer.policy.")
        plans = [
            plan
            for index, state in enumerate(states)
            for plan in self._plans(*_task(index, state), group=uuid.uuid4().hex, attempts=attempts)
        ]
        gym = self._gym
        loop = PrivateLoop()
        try:
            groups = loop.wait(gym.collect(plans))
        finally:
            loop.close()
        return [trajectory for group in groups for trajectory in group.trajectories]

    def _load(self, text: str, store_url: str) -> None:
        with open_store(store_url) as db:
            found = find_policy(text, db, temperature=self._temperature)
        meet(found.choice)
        self._choice = found.choice
        self._version = found.version
        self._gym = LoomRLGym(self._rollout, open_policy=open_policy)

    def _plans(self, task: Task, settings: Mapping[str, Any], *, group: str, attempts: int) -> Sequence[Plan]:
        extra = {"policy": self._version} if self._version else {}
        return [
            Plan(
                attempt=Attempt(id=f"{group}/{index}", task=task, group=group, group_size=attempts, extra=extra),
                policy=self._choice,
                settings=settings,
            )
            for index in range(attempts)
        ]


def _task(index: int, state: ManualState | Task) -> tuple[Task, Mapping[str, Any]]:
    if isinstance(state, Task):
        return state, {}
    task = getattr(state, "task", None)
    if task is None:
        raise ConfigError(
            f"states[{index}] is {type(state).__name__} {state!r:.60}: a Task, or what an environment's reset() "
            "returned, is needed. Attempts begin at the beginning of a task."
        )
    return task, state.settings
