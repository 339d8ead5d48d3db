"""Whole episodes of a control policy for evaluation: greedy, without RLlib."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from loomrl.control.environment import TRIAL_RETURNS
from loomrl.control.mask import mask_in, refuse_stuck
from loomrl.control.memory import MemoryState
from loomrl.control.preference import VectorRewards, unfinite
from loomrl.control.shared import SharedVector
from loomrl.control.space import acts, flatten, translator
from loomrl.control.vector import ResetsEnded, idle_places, resets_at_once
from loomrl.errors import EpisodeError

MOST_STEPS = 10_000
"""Steps after which an episode is cut in environments that register no limit of their own."""


class StepLimit:
    """Cuts episodes that go on for longer than `steps`; None takes the default, and spares environments with a limit of
    their own.
    """

    def __init__(self, environments: VectorEnv[Any, Any, Any], steps: int | None = None) -> None:
        self._environments = environments
        default = None if _limits_itself(environments) else MOST_STEPS
        self.steps = default if steps is None else steps
        """None: the environments' own limit holds."""
        self._unmet_N = np.zeros(environments.num_envs, np.int64)

    def overdue(self, steps_N: NDArray[np.int64], over_N: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The environments whose episodes are as long as allowed and have not ended by themselves; with an agent, all
        that are with it in its world. `over_N` are the places without an action in the next step.
        """
        self._refuse_missing(steps_N)
        if self.steps is None:
            return np.zeros_like(over_N)
        overdue_N: NDArray[np.bool_] = ~over_N & (steps_N >= self.steps)
        inner = self._environments.unwrapped
        if isinstance(inner, SharedVector) and overdue_N.any():
            world_W = overdue_N.reshape(len(inner.worlds), -1).any(1)
            overdue_N = np.repeat(world_W, len(inner.agents)) & ~over_N
        return overdue_N

    def _refuse_missing(self, steps_N: NDArray[np.int64]) -> None:
        """An EpisodeError about an agent that never comes: its share of episodes would be waited for."""
        self._unmet_N = np.where(steps_N > 0, 0, self._unmet_N + 1)
        if self._unmet_N.max() > MOST_STEPS:
            raise EpisodeError(
                f"place {int(self._unmet_N.argmax())} has had no agent for {MOST_STEPS:,} steps, and an evaluation "
                "waits for its episodes. Leave agents that do not come out of possible_agents."
            )

    def warning(self, count: int) -> str:
        """A warning about `count` episodes that were cut."""
        return (
            f"{count} episodes of an evaluation were cut after {self.steps} steps, and count as truncated. "
            "gymnasium.wrappers.TimeLimit sets another limit."
        )

    def restart(self, overdue_N: NDArray[np.bool_], over_N: NDArray[np.bool_]) -> tuple[Any, NDArray[np.bool_]]:
        """Begin new episodes in these environments; all observations, and the places without an action in the next
        step.
        """
        inner = self._environments.unwrapped
        chooses = isinstance(inner, SyncVectorEnv | AsyncVectorEnv | SharedVector)
        if not chooses and not isinstance(self._environments, ResetsEnded) and not overdue_N.all():
            raise EpisodeError(
                f"an episode has not ended after {self.steps} steps, and {type(inner).__name__} cannot begin a single "
                "environment anew. Give the environment a time limit (max_episode_steps), or take it one by one "
                "(environment.vectorization=sync)."
            )
        observations, info = self._environments.reset(options={"reset_mask": overdue_N})
        return observations, idle_places(info, over_N)


def _limits_itself(environments: VectorEnv[Any, Any, Any]) -> bool:
    """True if the environments were registered with a time limit."""
    specs: list[Any] = [environments.spec]
    if isinstance(environments.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        specs += environments.unwrapped.get_attr("spec")
    return any(isinstance(spec, EnvSpec) and spec.max_episode_steps is not None for spec in specs)


Report = Callable[[int, str], None]
"""Called with the number of finished episodes and a note on the others."""
REPORT_EVERY = 64
"""Steps of an episode between two reports."""


def _say_nothing(done: int, note: str) -> None:
    """Reports nothing."""


def _note(steps_N: NDArray[np.int64], limit: StepLimit) -> str:
    bound = "" if limit.steps is None else f" of at most {limit.steps:,}"
    return f"the longest is at step {steps_N.max():,}{bound}"


class ActingPolicy(Protocol):
    """Decides for all environments at once."""

    def begin(self, environments: VectorEnv[Any, Any, Any], *, seed: int) -> MemoryState | None:
        """Prepare for these environments; a ConfigError if their spaces differ. Returns the state to act with, if it
        has a memory.
        """

    def act_batch(self, observations: Any, *, state: MemoryState | None = None) -> Any:
        """Actions in the environments' form."""


class RandomPolicy:
    """Uniformly random actions, of those that are allowed: the baseline of every policy."""

    def begin(self, environments: VectorEnv[Any, Any, Any], *, seed: int) -> None:
        """Seed the action space."""
        acted = environments.single_action_space
        self._space = batch_space(acted, environments.num_envs)
        self._space.seed(seed)
        observed = environments.single_observation_space
        self.mask = mask_in(observed, acted)
        if self.mask is not None:
            self._chance = np.random.default_rng(seed)
            self.flatten = flatten(observed)
            self._translate = translator(acts(acted))

    def act_batch(self, observations: Any, *, state: MemoryState | None = None) -> Any:
        """Random actions."""
        if self.mask is None:
            return self._space.sample()
        return self._translate(self.mask.draw(self.flatten(observations), self._chance))


class Idle:
    """Real-valued actions of zero: the baseline of doing nothing."""

    def begin(self, environments: VectorEnv[Any, Any, Any], *, seed: int) -> None:
        """Store actions of zero."""
        self._zeros = np.zeros(environments.action_space.shape or (), environments.action_space.dtype)

    def act_batch(self, observations: Any, *, state: MemoryState | None = None) -> Any:
        """Actions of zero."""
        return self._zeros

    @staticmethod
    def can(space: spaces.Space[Any]) -> bool:
        """True if zero is at the centre of the action space."""
        return isinstance(space, spaces.Box) and bool(np.allclose(space.low, -space.high))


class Scripted:
    """A function from observations to actions."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self._call = call

    def begin(self, environments: VectorEnv[Any, Any, Any], *, seed: int) -> None:
        """Does nothing."""

    def act_batch(self, observations: Any, *, state: MemoryState | None = None) -> Any:
        """The function's actions."""
        return self._call(observations)


class PlayOutcome(NamedTuple):
    """Finished episodes, in the order in which they ended."""

    returns: list[float]
    lengths: list[int]
    trials: list[list[float]]
    """Returns by trial, of episodes that have several (`TRIAL_RETURNS`)."""
    cut: int
    """Episodes that were truncated because they were longer than allowed."""
    limit: int | None
    """Steps after which an episode was cut; None where the environments' own limit held."""
    places: list[int]
    """The environment of each episode."""


def play(
    policy: ActingPolicy,
    environments: VectorEnv[Any, Any, Any],
    episodes: int,
    *,
    seed: int,
    max_steps: int | None = None,
    report: Report = _say_nothing,
) -> PlayOutcome:
    """The outcome of `episodes` episodes; every environment plays its share, so that short ones count no more.

    An episode is cut after `max_steps`; None is the default of `StepLimit`. `report` is called now and then.
    """
    state = policy.begin(environments, seed=seed)
    count = environments.num_envs
    left_N = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
    earned_N = np.zeros(count)
    steps_N = np.zeros(count, np.int64)
    over_N = np.zeros(count, bool)
    returns = list[float]()
    lengths = list[int]()
    places = list[int]()
    trials = list[list[float]]()
    cut = 0
    check = refuse_stuck(environments)
    limit = StepLimit(environments, max_steps)
    at_once = resets_at_once(environments)
    observations, info = environments.reset(seed=seed)
    over_N = idle_places(info, over_N)
    while (left_N > 0).any():
        if steps_N[0] % REPORT_EVERY == 0:
            report(len(returns), _note(steps_N, limit))
        check(observations, over_N, steps_N)
        actions = policy.act_batch(observations, state=state)
        if state is not None:
            state.forget(over_N)
        observations, rewards, terminated, truncated, info = environments.step(actions)
        if not np.isfinite(rewards).all():
            raise EpisodeError(f"the environment gave a reward of {rewards}: nothing can be judged by it.")
        earned_N += np.where(over_N, 0.0, rewards)  # a step after an end only begins anew
        steps_N += ~over_N
        ended_N = np.asarray(terminated) | np.asarray(truncated)
        over_N = idle_places(info, ended_N)
        overdue_N = limit.overdue(steps_N, over_N)
        if at_once:
            info = info.get("final_info", info)
        for n in np.flatnonzero(ended_N | overdue_N):
            if left_N[n] > 0:
                returns.append(float(earned_N[n]))
                lengths.append(int(steps_N[n]))
                places.append(int(n))
                cut += int(overdue_N[n])
                if TRIAL_RETURNS in info and not overdue_N[n]:
                    trials.append([float(each) for each in info[TRIAL_RETURNS][n]])
            left_N[n] -= 1
            earned_N[n] = 0.0
            steps_N[n] = 0
        if at_once:
            over_N = _acts_on(over_N, state)
        if overdue_N.any() and (left_N > 0).any():
            observations, over_N = _restart(limit, overdue_N, over_N, state)
    return PlayOutcome(returns, lengths, trials, cut, limit.steps, places)


def _acts_on(over_N: NDArray[np.bool_], state: MemoryState | None) -> NDArray[np.bool_]:
    """None are over, as the next step already acts in the new episodes."""
    if state is not None:
        state.forget(over_N)
    return np.zeros_like(over_N)


def _restart(
    limit: StepLimit, overdue_N: NDArray[np.bool_], over_N: NDArray[np.bool_], state: MemoryState | None
) -> tuple[Any, NDArray[np.bool_]]:
    """Like `StepLimit.restart`, and the memory of these episodes is forgotten."""
    if state is not None:
        state.forget(overdue_N)
    return limit.restart(overdue_N, over_N)


class Each(NamedTuple):
    """Equally many finished episodes of every environment."""

    returns_NEH: NDArray[np.float64]
    """Discounted, by objective."""
    lengths_NE: NDArray[np.int64]
    cut: int
    limit: int | None
    """Both as in `PlayOutcome`."""


def play_each(  # noqa: PLR0913 - how episodes are played, and who hears of it
    policy: ActingPolicy,
    environments: VectorRewards,
    episodes: int,
    *,
    seed: int,
    gamma: float,
    max_steps: int | None = None,
    report: Report = _say_nothing,
) -> Each:
    """`episodes` episodes in each environment, with vector rewards. They are cut and reported as in `play`."""
    state = policy.begin(environments, seed=seed)
    count = environments.num_envs
    returns: list[list[NDArray[np.float64]]] = [[] for _ in range(count)]
    lengths: list[list[int]] = [[] for _ in range(count)]
    earned_NH: Any = 0.0
    share_N = np.ones(count)
    steps_N = np.zeros(count, np.int64)
    over_N = np.zeros(count, bool)
    check = refuse_stuck(environments)
    limit = StepLimit(environments, max_steps)
    cut_N = np.zeros(count, np.int64)
    observations: Any
    observations, _ = environments.reset(seed=seed)
    while min(map(len, returns)) < episodes:
        if steps_N[0] % REPORT_EVERY == 0:
            report(sum(min(len(told), episodes) for told in returns), _note(steps_N, limit))
        check(observations, over_N, steps_N)
        actions = policy.act_batch(observations, state=state)
        if state is not None:
            state.forget(over_N)
        rewards: Any
        observations, rewards, terminated, truncated, _ = environments.step(actions)
        if not np.isfinite(rewards).all():
            whose = unfinite(environments.pays, rewards)
            raise EpisodeError(f"the environment gave a reward of {rewards}{whose}: nothing can be judged by it.")
        earned_NH = earned_NH + np.where(over_N, 0.0, share_N)[:, None] * rewards
        steps_N += ~over_N
        share_N = np.where(over_N, 1.0, share_N * gamma)
        over_N = np.asarray(terminated) | np.asarray(truncated)
        overdue_N = limit.overdue(steps_N, over_N)
        for n in np.flatnonzero(over_N | overdue_N):
            cut_N[n] += int(overdue_N[n] and len(returns[n]) < episodes)
            returns[n].append(earned_NH[n].copy())
            lengths[n].append(int(steps_N[n]))
            earned_NH[n] = 0.0
            steps_N[n] = 0
            share_N[n] = 1.0
        if overdue_N.any() and min(map(len, returns)) < episodes:
            observations, over_N = _restart(limit, overdue_N, over_N, state)
    returns_NEH = np.array([told[:episodes] for told in returns])
    lengths_NE = np.array([told[:episodes] for told in lengths])
    return Each(returns_NEH, lengths_NE, int(cut_N.sum()), limit.steps)
