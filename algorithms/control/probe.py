"""A check of an environment before anything is built on it."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.tune.registry import ENV_CREATOR, _global_registry

from loomrl.config import GymnasiumEnvironment
from loomrl.control.environment import open_environment
from loomrl.control.mask import mask_in, stuck_in
from loomrl.control.preference import Preferred, unfinite
from loomrl.control.space import ACTION_MASK, acts, as_batch, flatten, seen, translator
from loomrl.errors import ConfigError, EpisodeError, LoomError


def probe(env: Any, settings: dict[str, Any], *, wrap: Callable[[Any], Any] = lambda made: made) -> None:
    """Make the environment, reset it, take a step. An error states the problem and the remedy."""
    try:
        one = wrap(make_environment(env, settings))
    except LoomError:
        raise
    except Exception as error:
        raise ConfigError(
            f"environment {env!r} with {dict(settings)} cannot be made: {type(error).__name__}: {error}"
        ) from error
    try:
        if isinstance(one, MultiAgentEnv):
            raise ConfigError(
                f"environment {env!r} has several agents. Name their policies, multi_agent(policies=…, "
                "policy_mapping_fn=…): RLlib's own runner and learner then teach them. Or write it as a PettingZoo "
                "ParallelEnv, whose agents share a policy (docs/control.md)."
            )
        if isinstance(one, gymnasium.Env):
            _look(one, env, pays=one.steering.objectives.leaves if isinstance(one, Preferred) else ())
    finally:
        one.close()


def refuse_mask(env: Any, settings: dict[str, Any], who: str) -> None:
    """A ConfigError if observations have an action mask, which `who` would not obey."""
    one = make_environment(env, settings)
    try:
        several = getattr(one, "observation_spaces", None) or {}
        for space in several.values() if isinstance(one, MultiAgentEnv) else [one.observation_space]:
            if isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces:
                raise ConfigError(
                    f"environment {env!r} has an {ACTION_MASK} in its observations, and {who} would not obey it. Use "
                    "our own networks, leave out what keeps them from being used, or name that part otherwise."
                )
    finally:
        one.close()


def is_registered(env: Any) -> bool:
    """True if it is registered with RLlib."""
    return isinstance(env, str) and bool(_global_registry.contains(ENV_CREATOR, env))


def make_environment(env: Any, settings: dict[str, Any]) -> Any:
    """One environment, from anything that RLlib accepts."""
    if isinstance(env, str) and not is_registered(env):
        return open_environment(GymnasiumEnvironment(id=env), settings)
    create = _global_registry.get(ENV_CREATOR, env) if isinstance(env, str) else env
    return create(EnvContext(settings, worker_index=0))


def _look(made: gymnasium.Env[Any, Any], env: Any, *, pays: tuple[str, ...]) -> None:
    seen(made.observation_space)
    kind = acts(made.action_space)
    mask = mask_in(made.observation_space, made.action_space)
    try:
        first, _ = made.reset(seed=0)
        action = made.action_space.sample()
        if mask is not None:
            shown = flatten(made.observation_space)(as_batch(made.observation_space, first, one=True))
            if mask.stuck(shown)[0]:
                raise EpisodeError(stuck_in(repr(env), 0, 1))
            action = translator(kind)(mask.draw(shown, np.random.default_rng(0)))[0]
        after, paid, *_ = made.step(action)
        reward = np.asarray(paid, float)
    except LoomError:
        raise
    except Exception as error:
        raise EpisodeError(f"environment {env!r} raised {type(error).__name__} at its first step: {error}") from error
    for name, value in (("reset", first), ("step", after)):
        if (shape := made.observation_space.shape) and np.shape(value) != shape:
            raise EpisodeError(
                f"environment {env!r}: {name} returned an observation of shape {np.shape(value)}, its observation "
                f"space is {made.observation_space}. Bring the two together."
            )
    if reward.shape != ((len(pays),) if pays else ()):
        raise EpisodeError(
            f"environment {env!r}: the reward of its first step has shape {reward.shape}, and a number is needed. "
            "Several objectives are for weave, by their names: algorithm={kind: weave, objectives: [...]}."
        )
    if not np.isfinite(reward).all():
        raise EpisodeError(f"environment {env!r}: the reward of its first step is {reward}{unfinite(pays, reward)}.")
