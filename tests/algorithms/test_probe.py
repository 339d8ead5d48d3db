"""What is looked at before a training begins: an environment's first step."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from ray.tune.registry import register_env

from loomrl.algorithms.control.probe import probe
from loomrl.errors import EpisodeError

PARTS = spaces.Tuple((spaces.MultiDiscrete([2, 2]), spaces.Discrete(5), spaces.Box(0, 1, (3,))))


class Shown(gymnasium.Env[Any, Any]):
    """Shows what it is given."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any, first: Any = None, after: Any = None, reward: Any = 1.0) -> None:
        self.observation_space = space
        self._first, self._after, self._reward = first, after, reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.sample() if self._first is None else self._first, {}

    def step(self, action: Any) -> Any:
        if isinstance(self._after, Exception):
            raise self._after
        return self.observation_space.sample() if self._after is None else self._after, self._reward, False, False, {}


def look_at(*made: Any, **settings: Any) -> None:
    register_env("shown", lambda _: Shown(*made, **settings))
    probe("shown", {})


@pytest.mark.parametrize("space", [PARTS, spaces.Dict({"a": PARTS, "b": spaces.Discrete(3)}), spaces.Discrete(4)])
def test_observations_may_have_parts_of_any_shapes(space: Any) -> None:
    look_at(space)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"first": np.zeros(3)}, r"reset returned an observation of shape \(3,\), its observation space is Box"),
        ({"after": np.zeros((2, 2))}, r"step returned an observation of shape \(2, 2\)"),
        ({"after": KeyError("pole")}, "raised KeyError at its first step: 'pole'"),
        ({"reward": np.ones(2)}, r"the reward of its first step has shape \(2,\), and a number is needed"),
        ({"reward": float("nan")}, "the reward of its first step is nan"),
    ],
)
def test_a_first_step_that_nobody_can_learn_from_is_refused_by_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(EpisodeError, match=f"environment 'shown'.*{words}"):
        look_at(spaces.Box(0, 1, (2,)), **settings)
