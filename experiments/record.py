"""`loomrl data record`: policies play, and what they did becomes a Minari data set."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from loomrl.config import AnyExperiment, ControlExperiment
from loomrl.control.environment import agents_in, label, open_environment, open_environments
from loomrl.control.logged import Recorded, read_minari, refuse_name, summary, write_minari
from loomrl.control.mask import refuse_stuck
from loomrl.control.memory import MemoryState
from loomrl.control.play import ActingPolicy, RandomPolicy
from loomrl.control.policy import ControlPolicy
from loomrl.control.preference import unfinite
from loomrl.errors import ConfigError, EpisodeError
from loomrl.experiments.evaluate_control import find_acts
from loomrl.store import open_store

Chooses = Callable[[Any, MemoryState | None], tuple[Any, NDArray[np.float64] | None]]
"""From a batch of observations, and a memory's state, to actions, and their log-probabilities where they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """How a data set is recorded."""

    id: str
    """The id of the data set: `cartpole/mixed-v0`."""
    policies: Sequence[str]
    """Which play, one after the other; what `loomrl evaluate --policy` takes."""
    steps: int
    """Steps of all policies together; each plays an equal part, and its last episode is truncated there."""
    greedy: bool = False
    """Take the likeliest actions; else they are sampled, and their log-probabilities recorded."""
    seed: int = 0


def record(experiment: AnyExperiment, asked: Recording) -> dict[str, Any]:
    """Record the data set; what is in it, of each policy and of all, as JSON."""
    refuse_name(asked.id)
    if not isinstance(experiment, ControlExperiment):
        raise ConfigError(f"experiment {experiment.name!r} is one of language; a Minari data set has steps of control.")
    choice = experiment.environment
    if experiment.objectives or agents_in(choice, choice.settings) > 1:
        raise ConfigError(f"{label(choice)}: a Minari data set has one agent and one reward for each step.")
    if asked.steps < len(asked.policies):
        raise ConfigError(f"steps={asked.steps} are too few for {len(asked.policies)} policies: one each at least.")
    parts: list[list[Recorded]] = []
    with (
        open_store(experiment.store_url) as db,
        closing(open_environment(choice, choice.settings)) as one,
        closing(open_environments(choice, 1, choice.settings)) as environments,
    ):
        for number, name in enumerate(asked.policies):
            policy = find_acts(name, choice.settings, db)[1]
            seed = asked.seed + number
            begun = policy.begin(environments, seed=seed)
            steps = asked.steps * (number + 1) // len(asked.policies) - asked.steps * number // len(asked.policies)
            chooses = chooser(policy, environments.single_action_space, greedy=asked.greedy, seed=seed)
            parts.append(list(_episodes(chooses, environments, steps, seed=seed, begun=begun)))
        observed = environments.single_observation_space
        acted = environments.single_action_space
        episodes = [episode for part in parts for episode in part]
        if any(episode.logprobs is None for episode in episodes):
            episodes = [replace(episode, logprobs=None) for episode in episodes]
        write_minari(asked.id, episodes, one.spec, observed, acted, made_by=", ".join(asked.policies))
    told = {name: _summarise(part) for name, part in zip(asked.policies, parts, strict=True)}
    return {"id": asked.id, **summary(read_minari(asked.id, observed, acted)), "policies": told}


def chooser(policy: ActingPolicy, acted: spaces.Space[Any], *, greedy: bool, seed: int) -> Chooses:
    """The policy with the log-probabilities of its actions, which are known of one choice and of our policies."""
    generator = torch.Generator().manual_seed(seed)

    def samples(observations: Any, state: MemoryState | None) -> tuple[Any, NDArray[np.float64] | None]:
        if not isinstance(policy, ControlPolicy):
            actions = policy.act_batch(observations, state=state)
            if isinstance(policy, RandomPolicy) and isinstance(acted, spaces.Discrete):
                choices = int(acted.n)
                if policy.mask is not None:
                    choices = int(policy.mask.permits(policy.flatten(observations)).sum())
                return actions, np.full(1, -math.log(choices))
            return actions, None
        if greedy:
            return policy.act_batch(observations, state=state), np.zeros(1) if isinstance(
                acted, spaces.Discrete
            ) else None
        actions, logprobs = policy.sample_batch(observations, state=state, generator=generator)
        return actions, logprobs.astype(np.float64) if isinstance(acted, spaces.Discrete) else None

    return samples


def _episodes(
    chooses: Chooses, environments: VectorEnv[Any, Any, Any], steps: int, *, seed: int, begun: MemoryState | None
) -> Sequence[Recorded]:
    """Episodes one after the other, of so many steps in all."""
    episodes: list[Recorded] = []
    while steps > 0:
        state = None if begun is None else begun.first(1)
        episode = _episode(chooses, environments, steps, seed=seed * 1_000_003 + len(episodes), state=state)
        steps -= len(episode.rewards)
        episodes.append(episode)
    return episodes


def _episode(
    chooses: Chooses, environments: VectorEnv[Any, Any, Any], most: int, *, seed: int, state: MemoryState | None
) -> Recorded:
    seed %= 2**31
    now, _ = environments.reset(seed=seed)
    observations = [_first(now)]
    actions = list[Any]()
    rewards: list[float] = []
    logprobs: list[Any] = []
    is_over = terminated = False
    check = refuse_stuck(environments)
    while not is_over and len(rewards) < most:
        check(now, np.zeros(1, bool), np.array([len(rewards)]))
        chosen, logprobs_N = chooses(now, state)
        now, paid, ended, cut, _ = environments.step(chosen)
        if not np.isfinite(paid).all():
            raise EpisodeError(f"the environment gave a reward of {paid}{unfinite((), paid)}: it cannot be recorded.")
        observations.append(_first(now))
        actions.append(_first(chosen))
        rewards.append(float(paid[0]))
        logprobs.append(None if logprobs_N is None else float(logprobs_N[0]))
        terminated = bool(ended[0])
        is_over = bool(ended[0] or cut[0])
    return Recorded(
        observations=observations,
        actions=actions,
        rewards=rewards,
        terminated=terminated,
        logprobs=None if None in logprobs else np.array(logprobs),
        seed=seed,
    )


def _first(batch: Any) -> Any:
    """The only row of a batch, as a copy."""
    if isinstance(batch, dict):
        return {name: _first(part) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_first(part) for part in batch)
    return np.array(batch[0])


def _summarise(episodes: Sequence[Recorded]) -> dict[str, Any]:
    returns = [sum(episode.rewards) for episode in episodes]
    steps = sum(len(episode.rewards) for episode in episodes)
    return {"episodes": len(episodes), "steps": steps, "return": float(np.mean(returns))}
