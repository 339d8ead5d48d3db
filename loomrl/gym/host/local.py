"""Attempts to play, and a host that plays them in this process. Actors use it too (`loomrl.gym.host.actor`)."""

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from loomrl.config import PolicyChoice, RolloutConfig, ScriptedPolicy
from loomrl.errors import ConfigError, EpisodeError, LoomError, PolicyError, RegistryError, failure_from
from loomrl.gym.adapters.harness.environment import Harness
from loomrl.gym.adapters.harness.play import play_agent
from loomrl.gym.adapters.harness.session import sessions_of
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.episode import Attempt, Limits, close_environment, failed_trajectory, hang, run_episode
from loomrl.gym.host.alarm import Hang, Watch
from loomrl.gym.host.rounds import Rounds, Seat
from loomrl.gym.opponent import rival_of
from loomrl.gym.policy import Action, OpenPolicy, Policy, PolicyFactory, open_policy
from loomrl.pickled import quickly
from loomrl.types import Message, Task, Trajectory

Make = Callable[[str, Mapping[str, Any]], BaseEnvironment]
"""Opens an environment by id (`name@version`) and settings."""


@quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An attempt to make, its policy, and the environment's settings. Picklable."""

    attempt: Attempt
    policy: PolicyChoice = field(default_factory=ScriptedPolicy)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: str = ""
    """Seed of the policy's randomness; by default the attempt's id."""


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


@dataclass(frozen=True, slots=True)
class _Seated:
    """An opponent that is asked in the seat of its attempt."""

    rival: Policy
    seat: Seat

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The next action, given the whole conversation."""
        await self.seat.turn()
        with self.seat.asking():
            return await self.rival.act(conversation)


class Host(Protocol):
    """Plays plans, many at a time."""

    async def play(self, plan: Plan, seat: Seat | None = None) -> Trajectory:
        """Play one episode, in a seat of several that share an engine. Only configuration errors are raised."""

    async def close(self) -> None:
        """Release the processes, if any."""


class LocalHost:
    """Plays in this process, each episode in its own environment. A policy with weights is opened once.

    Of past versions in a second seat those that were met last stay open, as many as the league has members.
    """

    def __init__(self, make: Make, rollout: RolloutConfig, *, open_policy: OpenPolicy = open_policy) -> None:
        self._make = make
        self._open_policy = open_policy
        self._limits = Limits(rollout.turn_timeout_s, rollout.episode_timeout_s)
        self._opened: dict[str, PolicyFactory] = {}
        self._rivals: OrderedDict[str, PolicyFactory] = OrderedDict()

    async def play(self, plan: Plan, seat: Seat | None = None) -> Trajectory:
        """Play one episode. Only configuration errors are raised."""
        seat = seat or Rounds().seat()
        seat.name = plan.attempt.id
        boundary = EpisodeError.boundary
        environment = None
        try:
            task = plan.attempt.task
            with Watch(self._limits.turn_timeout_s):
                environment = self._make(f"{task.environment}@{task.version}", plan.settings)
            boundary = PolicyError.boundary
            policy = self._factory(plan.policy)(environment, random.Random(plan.seed or plan.attempt.id))
            boundary = EpisodeError.boundary
            self._seat_rival(environment, plan, seat)
        except (ConfigError, RegistryError):
            raise
        except Hang as error:
            return failed_trajectory(plan.attempt, hang(str(error), self._limits.turn_timeout_s))
        except Exception as error:  # noqa: BLE001 - the boundary
            if environment is not None:
                await close_environment(environment, self._limits.turn_timeout_s, seat)
            return failed_trajectory(plan.attempt, failure_from(error, boundary=boundary))
        if not isinstance(environment, Harness):
            return await run_episode(environment, policy, plan.attempt, limits=self._limits, seat=seat)
        seat.step_aside()  # an agent asks from a process of its own, whenever it likes
        try:
            return await play_agent(environment, sessions_of(policy), plan.attempt, limits=self._limits)
        finally:
            seat.back()

    async def close(self) -> None:
        """There is nothing to release."""

    def _seat_rival(self, environment: BaseEnvironment, plan: Plan, seat: Seat) -> None:
        """Give the second seat to the policy that the task names, if it names one."""
        choice = rival_of(plan.attempt.task, plan.policy)
        if choice is None:
            return
        factory = self._factory(choice) if choice == plan.policy else self._rival(choice, environment)
        rival = factory(environment, random.Random(f"{plan.seed or plan.attempt.id}/opponent"))
        environment.seat(_Seated(rival, seat))

    def _rival(self, choice: PolicyChoice, environment: BaseEnvironment) -> PolicyFactory:
        """A past version. Trouble with it is no mistake in the configuration, but fails the attempt."""
        key = choice.model_dump_json()
        if key not in self._rivals:
            try:
                self._rivals[key] = self._open_policy(choice)
            except LoomError as error:
                raise EpisodeError(f"opponent: {error}") from error
        self._rivals.move_to_end(key)
        while environment.league is not None and len(self._rivals) > environment.league.members:
            self._rivals.popitem(last=False)
        return self._rivals[key]

    def _factory(self, choice: PolicyChoice) -> PolicyFactory:
        if isinstance(choice, ScriptedPolicy):
            return self._open_policy(choice)
        key = choice.model_dump_json()
        if key not in self._opened:
            self._opened[key] = self._open_policy(choice)
        return self._opened[key]
