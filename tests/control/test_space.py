"""Spaces as networks see them, against Gymnasium's own flattening."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from loomrl.control.space import acts, flatten, seen
from loomrl.errors import ConfigError

OBSERVED = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "bytes": spaces.Box(0, 255, (5,), np.uint8),
    "discrete": spaces.Discrete(4, start=2),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "dict": spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Dict({"c": spaces.Box(-1, 1, (2,))})}),
    "tuple": spaces.Tuple([spaces.Box(-1, 1, (1,)), spaces.MultiDiscrete([2, 2])]),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_batches_are_flattened_as_gymnasium_flattens_one(name: str) -> None:
    space = OBSERVED[name]
    space.seed(4)
    ones = [space.sample() for _ in range(6)]
    batch = concatenate(space, ones, create_empty_array(space, 6))
    assert batch_space(space, 6).contains(batch)
    flat = flatten(space)(batch)
    expected = np.stack([spaces.flatten(space, one) for one in ones]).astype(np.float32)
    assert flat.dtype == np.float32
    assert flat.shape == (6, *seen(space).shape)
    np.testing.assert_array_equal(flat, expected)


def test_a_picture_stays_one() -> None:
    space = spaces.Box(0, 255, (8, 9, 3), np.uint8)
    assert (seen(space).kind, seen(space).shape) == ("pixels", (8, 9, 3))
    picture = space.sample()[None]
    assert flatten(space)(picture) is picture


def test_a_space_that_no_network_takes_is_named_with_the_place_where_it_is() -> None:
    space = spaces.Dict({"a": spaces.Box(0, 1), "words": spaces.Text(5)})
    with pytest.raises(ConfigError, match=r"observation space\['words'\] is Text.*Known: Box"):
        seen(space)


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Box(0, 9, (2,), np.int64), spaces.Tuple([spaces.Discrete(2)])]
)
def test_an_action_space_that_no_policy_has_is_refused(space: spaces.Space) -> None:  # type: ignore[type-arg]
    with pytest.raises(ConfigError, match=r"not supported. Known: Discrete"):
        acts(space)
