"""Where episodes are played: in this process, or in a Ray actor that may die at any moment."""

import asyncio
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from loomrl.config import PolicyChoice, RolloutConfig, ScriptedPolicy
from loomrl.errors import ConfigError, EpisodeError, PolicyError, RegistryError, failure_from
from loomrl.gym.alarm import Hang, Watch
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.catalogue import Registration, register, registrations
from loomrl.gym.episode import Attempt, Limits, close_environment, failed_trajectory, hang, run_episode
from loomrl.gym.policy import OpenPolicy, PolicyFactory, open_policy
from loomrl.gym.watch import Autopsy, Watchdog, examine
from loomrl.types import Failure, Task, Trajectory

Make = Callable[[str, Mapping[str, Any]], BaseEnvironment]
"""Opens an environment by id (`name@version`) and settings."""

RETRIES = 3
"""How often an episode is played again after the death of its actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An attempt to be made, by whom, and with which settings of the environment. Picklable."""

    attempt: Attempt
    policy: PolicyChoice = field(default_factory=ScriptedPolicy)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: str = ""
    """Of the policy's randomness; empty takes the attempt's id."""


def plan_group(
    task: Task,
    *,
    group: str,
    size: int,
    policy: PolicyChoice,
    settings: Mapping[str, Any] | None = None,
    **labels: Any,
) -> list[Plan]:
    """`size` attempts at one task under the same conditions; `labels` are those of `Attempt`."""
    return [
        Plan(
            attempt=Attempt(id=f"{group}/{index}", task=task, group=group, group_size=size, **labels),
            policy=policy,
            settings=settings or {},
        )
        for index in range(size)
    ]


class Host(Protocol):
    """Whatever plays plans, many at a time."""

    async def play(self, plan: Plan) -> Trajectory:
        """Play one episode. Only mistakes in the configuration are raised."""

    async def close(self) -> None:
        """Let go of the processes, if any."""


class LocalHost:
    """Plays in this process, every episode with an environment of its own. A policy with weights is opened once."""

    def __init__(self, make: Make, rollout: RolloutConfig, *, open_policy: OpenPolicy = open_policy) -> None:
        self._make = make
        self._open_policy = open_policy
        self._limits = Limits(rollout.turn_timeout_s, rollout.episode_timeout_s)
        self._opened: dict[str, PolicyFactory] = {}

    async def play(self, plan: Plan) -> Trajectory:
        """Play one episode. Only mistakes in the configuration are raised."""
        boundary = EpisodeError.boundary
        environment = None
        try:
            task = plan.attempt.task
            with Watch(self._limits.turn_timeout_s):
                environment = self._make(f"{task.environment}@{task.version}", plan.settings)
            boundary = PolicyError.boundary
            policy = self._factory(plan.policy)(environment, random.Random(plan.seed or plan.attempt.id))
        except (ConfigError, RegistryError):
            raise
        except Hang as error:
            return failed_trajectory(plan.attempt, hang(str(error), self._limits.turn_timeout_s))
        except Exception as error:  # noqa: BLE001 - the boundary
            if environment is not None:
                await close_environment(environment, self._limits.turn_timeout_s)
            return failed_trajectory(plan.attempt, failure_from(error, boundary=boundary))
        return await run_episode(environment, policy, plan.attempt, limits=self._limits)

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _factory(self, choice: PolicyChoice) -> PolicyFactory:
        if isinstance(choice, ScriptedPolicy):
            return self._open_policy(choice)
        key = choice.model_dump_json()
        if key not in self._opened:
            self._opened[key] = self._open_policy(choice)
        return self._opened[key]


@dataclass(frozen=True, slots=True)
class _Address:
    """Where an actor leaves what an autopsy needs."""

    node: str
    folder: str


class EpisodeActor:
    """A LocalHost in a Ray actor, with a watchdog; `known` are the driver's own registrations. Call `open` first."""

    def __init__(
        self, make: Make, rollout: RolloutConfig, *, open_policy: OpenPolicy, known: Sequence[Registration]
    ) -> None:
        for registration in known:
            register(registration)
        self._host = LocalHost(make, rollout, open_policy=open_policy)
        self._limit_s = rollout.turn_timeout_s
        self._folder = tempfile.mkdtemp(prefix="loomrl-")

    async def open(self) -> _Address:
        """Start to watch."""
        import ray

        self._watchdog = Watchdog(Path(self._folder), limit_s=self._limit_s)
        return _Address(ray.get_runtime_context().get_node_id(), self._folder)

    async def play(self, plan: Plan) -> Trajectory:
        """Play one episode."""
        trajectory: Trajectory = await self._watchdog.run(plan.attempt.id, self._host.play(plan))
        return trajectory


@dataclass(slots=True)
class _Life:
    """One actor from its start to its burial."""

    actor: Any
    address: asyncio.Task[_Address]
    burial: asyncio.Task[Autopsy] | None = None


class ActorHost:
    """Plays in one Ray actor. When that dies, a fresh one gets the episodes it had open, under the same ids.

    The episode that hung the actor is not played again. A death is counted against the episode that was running,
    or against all where that is unknown, and after `RETRIES` of them the episode ends as FAILED.

    `make` and `open_policy` travel to the actor: they must be picklable.
    """

    def __init__(self, make: Make, rollout: RolloutConfig, *, open_policy: OpenPolicy = open_policy) -> None:
        self._make = make
        self._rollout = rollout
        self._open_policy = open_policy
        self._life: _Life | None = None

    async def play(self, plan: Plan) -> Trajectory:
        """Play one episode, however many actors it takes. Only mistakes in the configuration are raised."""
        deaths = 0
        while True:
            life = self._living()
            try:
                await asyncio.shield(life.address)
                return await _play(life.actor, plan)
            except _deaths() as error:
                autopsy = await self._bury(life)
                cause = " ".join(str(error).split())[:300]
            suspect = autopsy.running == plan.attempt.id
            if suspect and autopsy.trace:
                return failed_trajectory(plan.attempt, hang(autopsy.trace, self._rollout.turn_timeout_s))
            deaths += suspect or not autopsy.running
            if deaths > RETRIES:
                message = f"{deaths} actors died while it was open, the last one so: {cause}"
                return failed_trajectory(plan.attempt, Failure(EpisodeError.boundary, "ActorDied", message))

    async def close(self) -> None:
        """Kill the actor and remove what it left behind."""
        if self._life is not None:
            await self._bury(self._life)

    def _living(self) -> _Life:
        if self._life is None or self._life.burial is not None:
            self._life = self._start()
        return self._life

    def _start(self) -> _Life:
        import ray

        kind = ray.remote(EpisodeActor).options(
            num_cpus=0, max_restarts=0, max_concurrency=self._rollout.concurrency + 1, scheduling_strategy="SPREAD"
        )
        actor: Any = kind.remote(self._make, self._rollout, open_policy=self._open_policy, known=registrations())
        return _Life(actor, asyncio.ensure_future(_resolve(actor.open.remote())))

    async def _bury(self, life: _Life) -> Autopsy:
        """Make sure it is dead and learn why; all episodes that were open wait for one answer."""
        if life.burial is None:
            life.burial = asyncio.create_task(_bury(life))
        return await asyncio.shield(life.burial)


def _deaths() -> tuple[type[Exception], ...]:
    """The errors that tell of an actor that is dead, out of reach, or lost its answer."""
    from ray.exceptions import ObjectLostError, OutOfMemoryError, RayActorError

    return RayActorError, ObjectLostError, OutOfMemoryError


async def _play(actor: Any, plan: Plan) -> Trajectory:
    import ray
    from ray.exceptions import RayTaskError

    reference = actor.play.remote(plan)
    try:
        trajectory: Trajectory = await reference
    except RayTaskError as error:
        raise error.cause from None
    except asyncio.CancelledError:
        ray.cancel(reference)
        raise
    return trajectory


async def _resolve(reference: Any) -> Any:
    return await reference


async def _bury(life: _Life) -> Autopsy:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.kill(life.actor)
    try:
        address = await life.address
        there = NodeAffinitySchedulingStrategy(address.node, soft=False)
        autopsy: Autopsy = (
            await ray.remote(examine).options(num_cpus=0, scheduling_strategy=there).remote(Path(address.folder))
        )
    except RayError:
        return Autopsy()
    return autopsy
