"""Action masks: a part of the observation says which choices are allowed, a 0 or 1 for each.

It is the part `action_mask` of a Dict, so that every observation carries its mask: rollouts, checkpoints, data
sets, calls to `/v1/act`. The masks of a MultiDiscrete's choices follow each other.

Axes: `_N` observations, `_F` numbers of one, `_X` choices of all parts of an action, `_D` those parts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from loomrl.control.space import ACTION_MASK, ActionView, Array, ObservationView, acts, flatten, seen
from loomrl.errors import ConfigError, EpisodeError

Space = spaces.Space[Any]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Mask:
    """Where a network's input says what is allowed, and of which choices."""

    place: slice
    kind: ActionView

    def permits(self, seen_NF: Any) -> Any:
        """True for every allowed choice, `[N, X]`; of NumPy or torch, with any leading axes."""
        return seen_NF[..., self.place] > 0

    def stuck(self, seen_NF: Array) -> Bools:
        """The observations that allow nothing for a part of the action, `[N]`, with any leading axes."""
        free_DN = np.stack([part.any(-1) for part in self._parts(self.permits(seen_NF))])
        return np.logical_not(free_DN.all(0))

    def forbidden(self, seen_NF: Array, actions: Array) -> Bools:
        """The actions, counted from 0, that their observations forbid, `[N]`."""
        first_D = np.concatenate([[0], np.cumsum(self.kind.sizes)[:-1]])
        chosen_ND = actions.reshape(len(actions), -1) + first_D
        return np.logical_not(np.take_along_axis(self.permits(seen_NF), chosen_ND, 1).all(1))

    def draw(self, seen_NF: Array, chance: np.random.Generator) -> NDArray[np.int64]:
        """Random actions, counted from 0, each allowed one as likely; any where nothing is allowed."""
        allowed_NX = self.permits(seen_NF)
        parts = self._parts(allowed_NX + chance.random(allowed_NX.shape))
        drawn_ND = np.stack([part.argmax(-1) for part in parts], -1)
        return drawn_ND[:, 0] if self.kind.kind == "discrete" else drawn_ND

    def _parts(self, numbers_NX: Array) -> list[Array]:
        return np.split(numbers_NX, np.cumsum(self.kind.sizes)[:-1], -1)


def open_mask(view: ObservationView, kind: ActionView) -> Mask | None:
    """The mask in these observations; a ConfigError if it does not fit the actions."""
    if view.mask is None:
        return None
    begin, end = view.mask
    if end - begin != choices_of(kind):
        raise ConfigError(
            f"the {ACTION_MASK} of the observation space has {end - begin} numbers, and the actions have "
            f"{choices_of(kind)} choices: give a 0 or 1 for each; those of a MultiDiscrete's parts follow each other."
        )
    return Mask(slice(begin, end), kind)


def choices_of(kind: ActionView) -> int:
    """The number of choices that a mask allows or forbids; a ConfigError if actions are no choices."""
    if kind.kind not in ("discrete", "multi_discrete"):
        raise ConfigError(
            f"{ACTION_MASK}: only choices can be masked (Discrete, MultiDiscrete), and the actions are {kind.kind}. "
            "Give that part of the observation another name, or make the actions choices."
        )
    return sum(kind.sizes)


def mask_in(observed: Space, acted: Space) -> Mask | None:
    """The mask in observations of this space."""
    view = seen(observed)
    return None if view.mask is None else open_mask(view, acts(acted))


def refuse_stuck(environments: VectorEnv[Any, Any, Any]) -> Callable[[Any, Bools, NDArray[np.int64]], None]:
    """A check of their observations, given whose episodes are over and how many steps each one has.

    An EpisodeError if a mask allows nothing.
    """
    observed = environments.single_observation_space
    mask = mask_in(observed, environments.single_action_space)
    if mask is None:
        return lambda *_: None
    flat = flatten(observed)
    name = _name(environments)

    def check(observations: Any, over_N: Bools, steps_N: NDArray[np.int64]) -> None:
        stuck = np.flatnonzero(mask.stuck(flat(observations)) & ~over_N)
        if len(stuck):
            raise EpisodeError(stuck_in(name, int(stuck[0]), int(steps_N[stuck[0]]) + 1))

    return check


def _name(environments: VectorEnv[Any, Any, Any]) -> str:
    return type(environments).__name__ if environments.spec is None else environments.spec.id


def stuck_in(name: str, place: int, step: int) -> str:
    """The message of an episode that nothing leads out of."""
    return (
        f"environment {name}: the {ACTION_MASK} before step {step} of place {place} allows nothing. End the episode "
        "there, or allow an action that does nothing."
    )


class InfoMask(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Makes `info["action_mask"]` a part of the observation: `{"observation": …, "action_mask": …}`."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)  # a Minari data set keeps how its environment is made
        super().__init__(env)
        self._choices = choices_of(acts(env.action_space))
        parts = {"observation": env.observation_space, ACTION_MASK: spaces.MultiBinary(self._choices)}
        self.observation_space = spaces.Dict(parts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._add_mask(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; the last observation of an episode needs no mask."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if (terminated or truncated) and ACTION_MASK not in info:
            info = {**info, ACTION_MASK: np.zeros(self._choices)}
        return self._add_mask(observation, info), reward, bool(terminated), bool(truncated), info

    def _add_mask(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        if ACTION_MASK not in info:
            raise EpisodeError(
                f"there is no {ACTION_MASK} in info ({', '.join(info) or 'it is empty'}), and info_mask asks for it. "
                "Let reset and step tell it, or leave out info_mask."
            )
        told = info[ACTION_MASK]
        parts = told if isinstance(told, tuple | list) else [told]
        bits = np.concatenate([np.ravel(part) for part in parts]).astype(np.int8)
        if len(bits) != self._choices:
            raise EpisodeError(f'info["{ACTION_MASK}"] has {len(bits)} numbers for {self._choices} choices.')
        return {"observation": observation, ACTION_MASK: bits}
