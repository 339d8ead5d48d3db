"""An EnvRunner without episode objects: it fills arrays, step by step, for all its environments at once.

Axes: `_T` steps, `_N` environments, `_I` inputs of a distribution.
"""

import logging
import math
import pickle
from collections.abc import Generator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import torch
from gymnasium import registry
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray
from ray import cloudpickle
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.util.debug import log_once
from torch import Tensor
from typing_extensions import override

from loomrl.algorithms.control.module import RunnerPolicy, policy_of, seed_without_compiler
from loomrl.algorithms.control.rollout import Episode, Final, Rollout
from loomrl.control.distribution import ActionDistribution
from loomrl.control.mask import mask_in, stuck_in
from loomrl.control.noise import PinkNoise
from loomrl.control.play import StepLimit
from loomrl.control.preference import unfinite
from loomrl.control.space import acts, draw, flatten, seen, translator
from loomrl.control.vector import ABSENT, MODE, final_observations, idle_places, resets_at_once, with_autoreset
from loomrl.errors import EpisodeError
from loomrl.gym.base import CORRECT
from loomrl.process import stacks_on_signal

_log = logging.getLogger(__name__)

TOLD = {"success": "is_success", "correct": CORRECT}
"""Field of an episode → key in `info`; the first as Gymnasium-Robotics and Stable-Baselines3 have it."""
ROUTE = "route"
"""Key in a state for the environments in the middle of their episodes."""


class Ends(NamedTuple):
    """By step and environment, `[T, N]`."""

    terminated: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    """Terminated or truncated."""
    idle: NDArray[np.bool_]
    """True where the next step has no action."""


class ArrayRunner(SingleAgentEnvRunner):
    """Steps many environments at once; `sample` returns one `Rollout`.

    Creating environments and modules, counters and weights stay RLlib's.
    """

    env: Any
    config: Any
    _needs_initial_reset: bool
    objectives: tuple[int, ...] = ()
    """Shape of a reward."""
    pays: tuple[str, ...] = ()
    """Names of the objectives."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        seed_without_compiler()
        super().__init__(config=config, **kwargs)
        stacks_on_signal()
        self._noise = torch.Generator().manual_seed(self._seed if self._seed is not None else torch.seed() % 2**31)
        self._chance = np.random.default_rng(self._seed)
        self._counted = np.zeros(2, np.int64)
        self._acting: tuple[Any, RunnerPolicy] | None = None
        self._pink = PinkNoise() if self.config.noise_color == "pink" else None
        if self.env is not None:
            self._read_spaces()
        self._forget()

    def _read_spaces(self) -> None:
        """Prepare for the environment's spaces."""
        self._flatten = flatten(self.env.single_observation_space)
        self._acts = acts(self.env.single_action_space)
        self._mask = mask_in(self.env.single_observation_space, self.env.single_action_space)
        squashed = self.module is not None and policy_of(self.module).distribution.squashed
        self._translate = translator(self._acts, squashed=squashed)
        if squashed:
            count = self._acts.count
            self._acts = replace(self._acts, low=(-1.0,) * count, high=(1.0,) * count)

    def _forget(self) -> None:
        """Discard running episodes."""
        self._way = uuid4().hex
        self._now: NDArray[Any] | None = None
        self._state: NDArray[np.float32] | None = None
        """State of the policy's memory; None before the first step, or without one."""
        self._over_N = np.zeros(self.num_envs, bool)
        """Places whose next step has no action: it begins an episode, or no agent is there."""
        self._earned_N = np.zeros((self.num_envs, *self.objectives))
        self._steps_N = np.zeros(self.num_envs, np.int64)
        self._discounted_N = np.zeros((self.num_envs, *self.objectives), np.float32)

    # -- environments -----------------------------------------------------------------------------------------------

    @override
    def make_env(self) -> None:
        """RLlib's environments, whose infos stay one dictionary of arrays."""
        registry.pop("rllib-single-agent-env-v0", None)  # else Gymnasium warns: RLlib registers its name every time
        super().make_env()
        self._wrapper = self.env  # once deleted, it would close the environments in it
        self.env = with_autoreset(self._wrapper.env, str(self.config.env))

    def enter(self, settings: dict[str, Any]) -> None:
        """Switch to environments with these settings; running episodes are discarded."""
        self.config = self.config.copy(copy_frozen=False).environment(env_config=settings)
        self.make_env()
        self._forget()

    def begin_anew(self) -> None:
        """Discard the running episodes."""
        self._forget()

    def _begin(self) -> None:
        """Reset everything; the first time with this runner's seed."""
        first = self._needs_initial_reset
        self._forget()
        observations, info = self.env.reset(seed=self._seed if first else None)
        self._needs_initial_reset = False
        self._see(observations, info)

    def _see(self, observations: Any, info: Mapping[str, Any]) -> None:
        """The first observations of all episodes."""
        self._over_N = idle_places(info, self._over_N)
        self._now = self._flatten(observations)
        expected = (self.num_envs, *seen(self.env.single_observation_space).shape)
        if self._now.shape != expected:
            raise EpisodeError(
                f"environment {self.config.env}: its observations have shape {self._now.shape}, its observation space "
                f"{self.env.single_observation_space} promises {expected}."
            )

    # -- sampling ---------------------------------------------------------------------------------------------------

    @override
    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Rollout | EpisodeError]:
        """One rollout of a fragment's steps, or rollouts until `num_episodes` have ended.

        A remote runner returns errors as results: RLlib takes an exception for a death and silently restarts the
        runner.
        """
        try:
            return self._rollouts(num_timesteps, num_episodes, explore, random_actions, force_reset)
        except EpisodeError as error:
            self._forget()
            if self.config.restart_failed_sub_environments:
                _log.warning("%s New environments take their place (restart_failed_sub_environments).", error)
                self.make_env()
                return self._rollouts(num_timesteps, num_episodes, explore, random_actions, force_reset=True)
            if not self.worker_index:
                raise
            return [error]

    def _rollouts(
        self,
        num_timesteps: int | None,
        num_episodes: int | None,
        explore: bool | None,
        random_actions: bool,
        force_reset: bool,
    ) -> list[Any]:
        explore = self.config.explore if explore is None else explore
        if not self._has_begun or force_reset or num_episodes is not None:
            self._begin()
        if num_episodes is not None:
            rollouts = self._until(num_episodes, explore=explore)
        else:
            steps = self.config.get_rollout_fragment_length(self.worker_index)
            if num_timesteps is not None:
                steps = math.ceil(num_timesteps / self.num_envs)  # RLlib's may be a fraction
            rollouts = self._collect(steps, explore=explore, random=random_actions)
        if num_episodes is not None or num_timesteps is not None:  # an evaluation, of which RLlib keeps only metrics
            self._log_episodes(rollouts)
        make_callback(
            "on_sample_end",
            callbacks_objects=self._callbacks,
            callbacks_functions=self.config.callbacks_on_sample_end,
            kwargs={"env_runner": self, "metrics_logger": self.metrics, "samples": rollouts},
        )
        self._counted += np.array([(made.env_steps(), len(made.episodes)) for made in rollouts]).sum(0)
        return rollouts

    @property
    def _has_begun(self) -> bool:
        return self._now is not None

    def _log_episodes(self, rollouts: Sequence[Rollout]) -> None:
        """Log finished episodes under RLlib's names."""
        for made in rollouts:
            for episode in made.episodes:
                self._log_episode_metrics(episode.steps, episode.reward, 0.0)

    def _collect(self, steps: int, *, explore: bool, random: bool = False) -> list[Rollout]:
        """The rollouts of this many steps, one for each policy."""
        walk = self._walk(steps, explore=explore, random=random)
        with torch.inference_mode():
            actions = next(walk)
            while True:
                try:
                    told = self.env.step(actions)
                except Exception as error:  # noqa: BLE001 - environments raise errors of any type
                    walk.throw(error)
                try:
                    actions = walk.send(told)
                except StopIteration as done:
                    found: list[Rollout] = done.value
                    return found

    def _walk(self, steps: int, *, explore: bool, random: bool) -> Generator[Any, Any, list[Rollout]]:
        """The hot loop: gives actions and takes what the environments' step returns, so that several policies can act
        in the same worlds. Everything that can wait is done after it.
        """
        env = self.env
        at_once = resets_at_once(env)
        finals: list[Final] = []
        count = self.num_envs
        translate = self._translate
        assert self._now is not None
        policy = self._policy()
        now = self._now
        over_N = self._over_N
        state = policy.begin(count) if self._state is None else torch.from_numpy(self._state)
        first = None if state is None else state.numpy()[None].copy()
        seen_T = np.empty((steps + 1, *now.shape), now.dtype)
        inputs_T = torch.empty(steps, count, policy.distribution.inputs)
        drawn: list[NDArray[Any]] = []
        rewards = np.empty((steps, count, *self.objectives), np.float32)
        terminated, truncated, idle = (np.zeros((steps, count), bool) for _ in range(3))
        told: dict[str, dict[int, Any]] = {name: {} for name in TOLD}
        sample = policy.distribution.sample
        mode = policy.distribution.mode
        decide = policy.decide
        noise_T = self._draw_noise(steps, policy.distribution) if explore else None
        for t in range(steps):
            seen_T[t] = now
            inputs, state = decide(torch.from_numpy(seen_T[t]), state)
            inputs_T[t] = inputs
            actions = (mode(inputs) if noise_T is None else sample(inputs, noise_T[t])).numpy()
            if random:
                actions = self._random(seen_T[t])
            drawn.append(actions)
            try:
                observations, rewards[t], terminated[t], truncated[t], info = yield translate(actions)
                now = self._flatten(observations)
                if at_once and (over := np.flatnonzero(terminated[t] | truncated[t])).size:
                    last = final_observations(env.single_observation_space, info, terminated[t], truncated[t])
                    finals.append(Final(t, over, now[over] if last is None else self._flatten(last)))
                    info = info.get("final_info", info)
                    if ABSENT in info:
                        raise EpisodeError(f"info[{ABSENT!r}] needs {MODE}=AutoresetMode.NEXT_STEP")
                else:
                    idle[t] = idle_places(info, terminated[t] | truncated[t])
                for name, key in TOLD.items():
                    if key in info:  # a copy: its memory may be written again
                        told[name][t] = np.where(info.get(f"_{key}", True), info[key], np.nan)
            except Exception as error:
                self._refuse_stuck(seen_T[: t + 1], idle[:t])
                raise EpisodeError(
                    f"environment {self.config.env} raised {type(error).__name__}: {error}. Nothing was learnt "
                    "from these steps. `loomrl envs check` looks for such faults one by one."
                ) from error
            if state is not None:  # unless they begin at once, the step after an end only begins the next episode
                state[torch.from_numpy(terminated[t] | truncated[t] if at_once else over_N)] = 0.0
                over_N = idle[t]
        seen_T[steps] = now
        self._now = now
        self._state = None if state is None else state.numpy()
        ends = Ends(terminated, terminated | truncated, idle)
        rollout = self._make_rollout(seen_T, np.stack(drawn), inputs_T.numpy(), rewards, ends)
        if first is not None:
            rollout = replace(rollout, state=first)
        return [(rollout.with_told(told) if any(told.values()) else rollout).with_resets(finals)]

    def _draw_noise(self, steps: int, distribution: ActionDistribution) -> Tensor:
        if self._pink is None:
            return distribution.noise(steps, self.num_envs, generator=self._noise)
        return self._pink.draw(steps, (self.num_envs, distribution.inputs // 2), self._noise)

    def _policy(self) -> RunnerPolicy:
        """The module's policy; it follows the weights, and is rebuilt for another module."""
        if self._acting is None or self._acting[0] is not self.module:
            self._acting = self.module, policy_of(self.module)
        return self._acting[1]

    def _make_rollout(
        self,
        seen_T: NDArray[Any],
        actions_T: NDArray[Any],
        inputs_T: NDArray[np.float32],
        rewards: NDArray[np.float32],
        ends: Ends,
    ) -> Rollout:
        """The rollout, and the state of episodes that continue after it."""
        terminated, ended, idle = ends
        valid = ~np.concatenate([self._over_N[None], idle[:-1]])
        self._refuse_stuck(seen_T[:-1], idle)
        self._over_N = idle[-1].copy()
        rewards[~valid] = 0.0
        self._refuse_nan(seen_T, rewards)
        return Rollout(
            seen=seen_T,
            actions=actions_T,
            inputs=inputs_T,
            rewards=rewards,
            terminated=terminated,
            ended=ended,
            valid=valid,
            discounted=self._discount(rewards, ended) if self.config.settings.normalize_rewards else None,
            episodes=tuple(self._episodes(rewards, ended, valid)),
            route=(self.worker_index, self._way),
        )

    def _episodes(
        self, rewards: NDArray[np.float32], ended: NDArray[np.bool_], valid: NDArray[np.bool_]
    ) -> list[Episode]:
        earned = self._earned_N + np.cumsum(rewards, axis=0, dtype=np.float64)
        steps = self._steps_N + np.cumsum(valid, axis=0)
        told_earned = np.zeros_like(self._earned_N)
        told_steps = np.zeros(self.num_envs, np.int64)
        episodes = []
        for t, n in np.argwhere(ended):
            parts = earned[t, n] - told_earned[n]
            episodes.append(Episode.of(parts, int(steps[t, n] - told_steps[n])))
            told_earned[n] = earned[t, n]
            told_steps[n] = steps[t, n]
        self._earned_N = earned[-1] - told_earned
        self._steps_N = steps[-1] - told_steps
        return episodes

    def _discount(self, rewards: NDArray[np.float32], ended: NDArray[np.bool_]) -> NDArray[np.float32]:
        out = np.empty_like(rewards)
        now_N = self._discounted_N
        for t in range(len(rewards)):
            now_N = now_N * self.config.settings.gamma + rewards[t]
            out[t] = now_N
            now_N = now_N.copy()
            now_N[ended[t]] = 0
        self._discounted_N = now_N
        return out

    def _random(self, seen_N: NDArray[Any]) -> NDArray[Any]:
        """Uniformly random actions, of those that the observations allow."""
        if self._mask is not None:
            return self._mask.draw(seen_N, self._chance)
        return draw(self._acts, self.num_envs, self._chance)

    def _refuse_stuck(self, seen_T: NDArray[Any], ended: NDArray[np.bool_]) -> None:
        """An EpisodeError if a mask allows nothing before a step with an action."""
        if self._mask is None:
            return
        over = np.concatenate([self._over_N[None], ended])[: len(seen_T)]
        stuck = np.argwhere(self._mask.stuck(seen_T) & ~over)
        if len(stuck):
            t, n = stuck[0]
            ends = np.flatnonzero(over[:t, n])
            step = t - ends[-1] if len(ends) else self._steps_N[n] + t + 1
            raise EpisodeError(stuck_in(str(self.config.env), int(n), int(step)))

    def _refuse_nan(self, seen_T: NDArray[Any], rewards: NDArray[np.float32]) -> None:
        what = "a reward" if not np.isfinite(rewards).all() else "an observation"
        if what == "an observation" and (seen_T.dtype.kind != "f" or np.isfinite(seen_T).all()):
            return
        whose = unfinite(self.pays, rewards) if self.pays else ""
        raise EpisodeError(
            f"environment {self.config.env}: {what} is not a finite number{whose}. Nothing was learnt from "
            "these steps. Look for a division by zero or a missing bound in the environment."
        )

    def _until(self, episodes: int, *, explore: bool) -> list[Rollout]:
        """Rollouts until every environment has ended its share of `episodes`; later episodes are left out."""
        share_N = np.full(self.num_envs, episodes // self.num_envs) + (
            np.arange(self.num_envs) < episodes % self.num_envs
        )
        rollouts = []
        limit = StepLimit(self.env)
        while (share_N > 0).any():
            made = self._collect(1, explore=explore)
            overdue_N = limit.overdue(self._by_place("_steps_N"), self._by_place("_over_N"))
            for rollout, (places, part) in zip(made, self._seats(), strict=True):
                ended_N = rollout.ended[0] & (part._steps_N == 0)
                wanted_N = share_N[places] > 0
                wanted = [
                    each for n, each in zip(np.flatnonzero(ended_N), rollout.episodes, strict=True) if wanted_N[n]
                ]
                cut = np.flatnonzero(overdue_N[places] & wanted_N)
                wanted += [Episode.of(part._earned_N[n], int(part._steps_N[n])) for n in cut]
                share_N[places] -= ended_N | overdue_N[places]
                rollouts.append(replace(rollout, episodes=tuple(wanted)))
            if overdue_N.any():
                _log.warning("environment %s: %s", self.config.env, limit.warning(int(overdue_N.sum())))
                self._restart(overdue_N, *limit.restart(overdue_N, self._by_place("_over_N")))
        self._needs_initial_reset = False
        return rollouts

    def _seats(self) -> list[tuple[Any, "ArrayRunner"]]:
        """The places of each policy, and what acts there."""
        return [(slice(None), self)]

    def _by_place(self, name: str) -> NDArray[Any]:
        """This attribute of all places."""
        found = [(places, getattr(part, name)) for places, part in self._seats()]
        whole = np.empty(self.num_envs, found[0][1].dtype)
        for places, values in found:
            whole[places] = values
        return whole

    def _restart(self, overdue_N: NDArray[np.bool_], observations: Any, over_N: NDArray[np.bool_]) -> None:
        """New episodes begin in the environments that are overdue."""
        self._over_N = over_N
        self._now = self._flatten(observations)
        for x_N in (self._earned_N, self._steps_N, self._discounted_N):
            x_N[overdue_N] = 0
        if self._state is not None:
            self._state[overdue_N] = 0.0

    @override
    def get_metrics(self) -> Any:
        """Counters since the last call; returns come with the rollouts."""
        self._increase_sampled_metrics(*self._counted.tolist())
        self._counted = np.zeros(2, np.int64)
        return self.metrics.reduce()

    # -- state ------------------------------------------------------------------------------------------------------

    @override
    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, with the environments in the middle of their episodes if they can be pickled."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if components is None and self.env is not None:
            state[ROUTE] = {"env": _pickle_env(self.env, self.config.env)} | self._route()
        return state

    def _route(self) -> dict[str, Any]:
        """The running episodes, beside their environments."""
        return {
            "noise": self._noise.get_state(),
            "chance": self._chance.bit_generator.state,
            "way": self._way,
            "arrays": [self._now, self._over_N, self._earned_N, self._steps_N, self._discounted_N],
            "state": self._state,
            "pink": None if self._pink is None else self._pink.state,
        }

    @override
    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from `state`."""
        super().set_state(state)
        route = state.get(ROUTE)
        if route is None or self.env is None:
            return
        self._take_route(route)
        if route["env"] is None:
            self._forget()
            return
        self.env.close()
        self.env = pickle.loads(route["env"])
        self._needs_initial_reset = not self._has_begun

    def _take_route(self, route: Mapping[str, Any]) -> None:
        self._noise.set_state(route["noise"])
        self._chance.bit_generator.state = route["chance"]
        if self._pink is not None:
            self._pink.state = route.get("pink")
        self._now, self._over_N, self._earned_N, self._steps_N, self._discounted_N = route["arrays"]
        self._way = route["way"]
        self._state = route.get("state")


def _pickle_env(env: Any, name: Any) -> bytes | None:
    """The pickled environments; None, with a warning, if they cannot be pickled."""
    if isinstance(env, SyncVectorEnv):
        env = copy(env)
        # an iterator that every step uses up, and what it was made by
        env._actions = None
        env.env_fns = ()
    try:
        return cloudpickle.dumps(env)  # type: ignore[no-any-return]
    except Exception as error:  # noqa: BLE001 - an environment's parts raise errors of any type
        if log_once(f"unpicklable {name}"):
            _log.warning("environment %s cannot be pickled (%s): a resumed run begins new episodes.", name, error)
        return None
