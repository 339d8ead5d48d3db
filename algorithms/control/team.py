"""Several policies in the same worlds: who has which, and the runner, which lets each act as if it were alone."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.policy.policy import PolicySpec
from typing_extensions import override

from loomrl.algorithms.control.probe import make_environment
from loomrl.algorithms.control.rollout import POLICY_RETURN, Rollout
from loomrl.algorithms.control.runner import ArrayRunner
from loomrl.control.mask import mask_in
from loomrl.control.shared import NEEDED
from loomrl.control.space import acts, seen
from loomrl.control.team import Agents, TeamVector
from loomrl.errors import ConfigError, EpisodeError

ALL = "__all__"
"""RLlib's name for all agents that are left."""
ASKED = 8
"""Calls of a mapping function that must agree."""


@dataclass(frozen=True)
class AgentMapping:
    """A `policy_mapping_fn` from a dictionary."""

    policies: Mapping[Any, str]

    def __call__(self, agent: Any, *_: Any, **__: Any) -> str:
        """The agent's policy, whatever the episode."""
        return self.policies[agent]


class RLlibWorld:
    """A MultiAgentEnv as a ParallelEnv. Who is shown an observation acts next."""

    def __init__(self, env: MultiAgentEnv) -> None:
        self._env = env
        self.possible_agents = list(env.possible_agents)
        self.agents: list[Any] = []

    def observation_space(self, agent: Any) -> Any:
        """This agent's observation space."""
        return self._env.get_observation_space(agent)

    def action_space(self, agent: Any) -> Any:
        """This agent's action space."""
        return self._env.get_action_space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self._shown, infos = self._env.reset(seed=seed, options=options)
        self.agents = list(self._shown)
        return self._shown, infos

    def step(self, actions: Mapping[Any, Any]) -> Any:
        """Act. What RLlib lets an environment leave out is filled in: rewards of 0, last observations, `__all__`."""
        shown, rewards, terminated, truncated, infos = self._env.step(dict(actions))
        known = {*self.agents, *shown}
        own = {name for name in known if terminated.get(name) or truncated.get(name)}
        ends = [
            {name: bool(told.get(name) if name in own else told.get(ALL)) for name in known}
            for told in (terminated, truncated)
        ]
        self._shown = {**self._shown, **shown}
        left = {name for name in known if not any(told[name] for told in ends)}
        if paused := [name for name in self.agents if name in left and name not in shown]:
            raise EpisodeError(
                f"{', '.join(map(str, paused))} has no observation, and has neither terminated nor been truncated. "
                "Agents that pause are for RLlib's own runner: env_runners(env_runner_cls=MultiAgentEnvRunner)."
            )
        self.agents = [name for name in shown if name in left]
        return self._shown, {name: rewards.get(name, 0.0) for name in known}, *ends, infos

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def open_world(env: Any, settings: Mapping[str, Any]) -> Any:
    """One world of agents, as a ParallelEnv."""
    made = make_environment(env, dict(settings))
    return RLlibWorld(made) if isinstance(made, MultiAgentEnv) else made


def assign(config: Any) -> tuple[dict[str, tuple[Any, ...]], tuple[str, ...]]:
    """The agents of each policy; or the reasons why only RLlib's own runner and learner can teach them."""
    if config.team_learner is None or config.env is None:
        return {}, ("several policies (multi_agent)",)
    with closing(open_world(config.env, config.env_config)) as world:
        reasons = [f"several policies with {each}" for each in _unknown(config)]
        agents = _agents(config, world, reasons)
        if not reasons:
            reasons += _strange(world, agents)
        if reasons and not isinstance(world, RLlibWorld):
            raise ConfigError(f"{'; '.join(reasons)}: RLlib's own runner, which could, needs a MultiAgentEnv.")
    return ({}, tuple(reasons)) if reasons else (agents, ())


def _unknown(config: Any) -> list[str]:
    """Settings of `multi_agent` and modules that only RLlib has."""
    given = [value for spec in config.policies.values() for value in _values(spec)]
    trained = config.policies_to_train
    found = {
        "the name default_policy": DEFAULT_MODULE_ID in config.policies,
        "settings, spaces or classes of their own": any(value for value in given),
        "policies_to_train": trained is not None and (callable(trained) or {*trained} != {*config.policies}),
        "observation_fn": config.observation_fn is not None,
        "rl_module(…) of your own": not isinstance(config._rl_module_spec, RLModuleSpec | None)
        or getattr(config._rl_module_spec, "module_class", None) is not None,
        "learner_class": config._learner_class is not None,
    }
    return [name for name, is_there in found.items() if is_there]


def _values(spec: Any) -> tuple[Any, ...]:
    """Class, spaces and settings of a PolicySpec, or of RLlib's tuple of these."""
    if isinstance(spec, PolicySpec):
        return spec.policy_class, spec.observation_space, spec.action_space, spec.config
    return tuple(spec)


def _agents(config: Any, world: Any, reasons: list[str]) -> dict[str, tuple[Any, ...]]:
    """The agents of each policy, where that does not depend on the episode."""
    agents: dict[str, list[Any]] = {name: [] for name in config.policies}
    if not getattr(world, "possible_agents", None):
        reasons.append("several policies with an environment without possible_agents")
        return {}
    for agent in world.possible_agents:
        try:
            found = {config.policy_mapping_fn(agent, None) for _ in range(ASKED)}
        except Exception:  # noqa: BLE001 - the user's function
            found = set()
        if len(found) != 1:
            reasons.append("a policy_mapping_fn that depends on the episode")
            return {}
        (name,) = found
        if name not in agents:
            raise ConfigError(f"policy_mapping_fn gives {agent} the policy {name!r}. Known: {', '.join(agents)}.")
        agents[name].append(agent)
    if idle := [name for name, mine in agents.items() if not mine]:
        reasons.append(f"several policies of which {', '.join(idle)} has no agent")
    return {name: tuple(mine) for name, mine in agents.items()}


def _strange(world: Any, agents: Agents) -> list[str]:
    """The first reason why our networks or runner cannot act in this world."""
    missing = [name for name in NEEDED if not hasattr(world, name)]
    if missing:
        return [f"several policies with an environment without {missing[0]}"]
    for name, agent in ((name, agent) for name, mine in agents.items() for agent in mine):
        try:
            observed, acted = world.observation_space(agent), world.action_space(agent)
            seen(observed)
            acts(acted)
            mask_in(observed, acted)
        except (ConfigError, AttributeError) as error:
            return [f"spaces of {agent}, policy {name}: {error}"]
    if isinstance(world, RLlibWorld):
        shown, _ = world.reset(seed=0)
        if set(shown) != set(world.possible_agents):
            return ["several policies with agents that take turns or come later"]
    return []


class PolicyRunner(ArrayRunner):
    """Acts for one of several policies. RLlib's side, and the worlds, are those of the whole runner."""

    def __init__(self, whole: "TeamRunner", policy: str, number: int) -> None:
        vars(self).update(vars(whole))
        self._whole = whole
        self._policy_name = policy
        self.env = whole.env.parts[policy]
        self.num_envs = self.env.num_envs
        seed = torch.seed() % 2**31 if whole._seed is None else whole._seed
        drawn = np.random.SeedSequence([seed, number]).generate_state(2)
        self._noise = torch.Generator().manual_seed(int(drawn[0]))
        self._chance = np.random.default_rng(int(drawn[1]))
        self._read_spaces()
        self._forget()

    @property
    @override
    def module(self) -> Any:
        """The policy's."""
        return self._whole.module[self._policy_name]


class TeamRunner(ArrayRunner):
    """Steps worlds whose agents have several policies; `sample` returns a rollout of each."""

    each: dict[str, PolicyRunner]
    spaces: Any
    _device: Any

    @override
    def make_env(self) -> None:
        """The worlds, with RLlib's number of them."""
        config = self.config
        if self.env is not None:
            self.env.close()
        create: Callable[[], Any] = partial(open_world, config.env, config.env_config)
        agents = sum(map(len, config.team.values()))
        self.env = TeamVector(create, config.num_envs_per_env_runner * agents, config.team)
        self.num_envs = self.env.num_envs
        self._needs_initial_reset = True

    @override
    def make_module(self) -> None:  # type: ignore[misc]  # it is found by name
        """A module for each policy."""
        spec = self.config.get_multi_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module = spec.build()
        self.module.foreach_module(lambda _, module: module.to(self._device))

    @override
    def get_spaces(self) -> dict[str, Any]:
        """The spaces of each policy."""
        if self.env is None:
            told: dict[str, Any] = self.spaces
            return told
        env = self.env
        whole = {
            INPUT_ENV_SPACES: (env.observation_space, env.action_space),
            INPUT_ENV_SINGLE_SPACES: (env.single_observation_space, env.single_action_space),
        }
        parts = env.parts.items()
        return whole | {name: (part.single_observation_space, part.single_action_space) for name, part in parts}

    @override
    def _read_spaces(self) -> None:
        self.each = {name: PolicyRunner(self, name, number) for number, name in enumerate(self.env.parts)}

    @override
    def _forget(self) -> None:
        super()._forget()
        for one in self.each.values() if self.env is not None else ():
            one._forget()

    @override
    def _see(self, observations: Any, info: Mapping[str, Any]) -> None:
        for name, one in self.each.items():
            one._see(*self.env.share((observations, info), name))

    @property
    @override
    def _has_begun(self) -> bool:
        return all(one._has_begun for one in self.each.values())

    @override
    def _walk(self, steps: int, *, explore: bool, random: bool) -> Generator[Any, Any, list[Rollout]]:
        """All policies' walks, step by step."""
        walks = {name: one._walk(steps, explore=explore, random=random) for name, one in self.each.items()}
        actions = {name: next(walk) for name, walk in walks.items()}
        rollouts: list[Rollout] = []
        while not rollouts:
            try:
                told = yield actions
            except Exception as error:  # noqa: BLE001 - environments raise errors of any type
                next(iter(walks.values())).throw(error)
            for name, walk in walks.items():
                try:
                    actions[name] = walk.send(self.env.share(told, name))
                except StopIteration as done:
                    rollouts += [replace(rollout, policy=name) for rollout in done.value]
        return rollouts

    @override
    def _log_episodes(self, rollouts: Sequence[Rollout]) -> None:
        super()._log_episodes(rollouts)
        for rollout in rollouts:
            for episode in rollout.episodes:
                window = self.config.metrics_num_episodes_for_smoothing
                self.metrics.log_value((POLICY_RETURN, rollout.policy), episode.reward, window=window)

    @override
    def _seats(self) -> list[tuple[Any, ArrayRunner]]:
        return [(self.env.places[name], one) for name, one in self.each.items()]

    @override
    def _restart(self, overdue_N: NDArray[np.bool_], observations: Any, over_N: NDArray[np.bool_]) -> None:
        for name, one in self.each.items():
            places = self.env.places[name]
            one._restart(overdue_N[places], observations[name], over_N[places])

    @override
    def _route(self) -> dict[str, Any]:
        return {"each": {name: one._route() for name, one in self.each.items()}}

    @override
    def _take_route(self, route: Mapping[str, Any]) -> None:
        for name, one in self.each.items():
            one._take_route(route["each"][name])
