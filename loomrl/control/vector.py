"""Vector environments as their authors made them: when ended episodes begin anew, and one place as an environment.

Axes: `_N` environments.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from loomrl.errors import ConfigError, EpisodeError

ABSENT = "absent"
"""Key in `info`, of `reset` and of every `step` of a vector environment with places that may be empty: true for each
place without an action in the next step, because the episode ended or no agent is there."""
MODE = "autoreset_mode"
FINAL = "final_obs"
"""Key in `info` for the last observations of episodes, where the step that ends them shows the next ones' first."""


def with_autoreset(environments: VectorEnv[Any, Any, Any], name: str) -> VectorEnv[Any, Any, Any]:
    """The environments, made to begin ended episodes anew if they leave that to their caller.

    A ConfigError if their metadata do not say when that happens: a wrong guess would spoil every episode's end.
    """
    declared = environments.metadata.get(MODE)
    try:
        mode = AutoresetMode(declared)
    except ValueError:
        known = ", ".join(f"AutoresetMode.{each.name}" for each in AutoresetMode)
        raise ConfigError(
            f"environment {name}: {type(environments.unwrapped).__name__}.metadata has {MODE}={declared!r}, so it is "
            f"not known when an ended episode begins anew. Known: {known} (of gymnasium.vector)."
        ) from None
    if not isinstance(environments.spec, EnvSpec | None):
        environments = KeepsSpec(environments)
    return ResetsEnded(environments) if mode is AutoresetMode.DISABLED else environments


def idle_places(info: Mapping[str, Any], ended_N: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The places whose action in the next step is ignored; of environments that begin ended episodes in that step."""
    return np.array(info[ABSENT], np.bool_) if ABSENT in info else ended_N


def resets_at_once(environments: VectorEnv[Any, Any, Any]) -> bool:
    """True if the step that ends an episode already shows the next one's first observation."""
    return AutoresetMode(environments.metadata[MODE]) is AutoresetMode.SAME_STEP


class KeepsSpec(VectorWrapper):
    """Keeps `gymnasium.make_vec` from replacing a `spec` that is something else to the environment, as to EnvPool's."""

    spec: Any = None

    @property
    def unwrapped(self) -> VectorEnv[Any, Any, Any]:
        """Itself."""
        return self


class ResetsEnded(VectorWrapper):
    """Begins ended episodes anew in the step that ends them, by `options["reset_mask"]`."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.metadata = {**env.metadata, MODE: AutoresetMode.SAME_STEP}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act; then begin anew where that ended an episode."""
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        over_N = terminated | truncated
        if over_N.any():
            told = rewards.copy(), terminated.copy(), truncated.copy()  # a reset may write into the same memory
            final = deepcopy(observations)
            observations, begun = self.env.reset(options={"reset_mask": over_N})
            return observations, *told, {**begun, FINAL: final, "final_info": info}
        return observations, rewards, terminated, truncated, info


def final_observations(
    space: spaces.Space[Any], info: Mapping[str, Any], terminated_N: NDArray[np.bool_], truncated_N: NDArray[np.bool_]
) -> Any:
    """The last observations of the episodes that end in this step, as a batch; None if no value depends on them.

    An EpisodeError if an episode was truncated and its last observation is not told.
    """
    over_N = terminated_N | truncated_N
    told = info.get(FINAL)
    if told is not None:
        return _chosen(space, told, over_N)
    if (truncated_N & ~terminated_N).any():
        raise EpisodeError(
            f"environment {np.flatnonzero(truncated_N & ~terminated_N)[0]} was truncated, and info has no {FINAL!r}: "
            f"what its last state is worth cannot be known. Tell it, as {AutoresetMode.SAME_STEP} asks, or terminate."
        )
    return None


def _chosen(space: spaces.Space[Any], told: Any, over_N: NDArray[np.bool_]) -> Any:
    """Some places of a batch, or of an array of objects as Gymnasium collects them."""
    if isinstance(told, np.ndarray) and told.dtype == object:
        found = list(told[over_N])
        return concatenate(space, found, create_empty_array(space, len(found)))
    match space:
        case spaces.Dict():
            return {name: _chosen(part, told[name], over_N) for name, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(_chosen(part, one, over_N) for part, one in zip(space.spaces, told, strict=True))
    return np.asarray(told)[over_N]


class OnePlace(gymnasium.Env[Any, Any]):
    """The only place of a vector environment as a single one, to look at, film or wrap."""

    def __init__(self, make: Callable[..., Any], name: str) -> None:
        self._vector = with_autoreset(make(num_envs=1), name)
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space
        self.metadata = {name: value for name, value in self._vector.metadata.items() if name != MODE}
        self.render_mode = self._vector.render_mode
        self.spec = self._vector.spec if isinstance(self._vector.spec, EnvSpec) else None
        self._seen = batch_space(self.observation_space, 1)

    @property
    def unwrapped(self) -> Any:
        """The vector environment, whose source is on record."""
        return self._vector.unwrapped

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observations, info = self._vector.reset(seed=seed, options=options)
        return self._only(observations), _first(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        actions = concatenate(self.action_space, [action], create_empty_array(self.action_space, 1))
        observations, rewards, terminated, truncated, info = self._vector.step(actions)
        if resets_at_once(self._vector) and (terminated[0] or truncated[0]):
            final = final_observations(self.observation_space, info, terminated, truncated)
            observations = observations if final is None else final
            info = info.get("final_info", info)
        return self._only(observations), rewards[0], bool(terminated[0]), bool(truncated[0]), _first(info)

    def render(self) -> Any:
        """The picture of the place, or what else its vector environment renders."""
        rendered: Any = self._vector.render()
        return rendered[0] if isinstance(rendered, tuple | list) and len(rendered) == 1 else rendered

    def close(self) -> None:
        """Close the vector environment."""
        self._vector.close()

    def _only(self, observations: Any) -> Any:
        return deepcopy(next(iter(iterate(self._seen, observations))))  # its memory may be written again


def _first(info: Any) -> Any:
    """A vector environment's `info` about its first place."""
    if isinstance(info, Mapping):
        return {name: _first(value) for name, value in info.items() if not str(name).startswith("_")}
    return info[0] if isinstance(info, np.ndarray | list) and len(info) else info
