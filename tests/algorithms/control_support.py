"""What the tests of control algorithms share."""

from typing import Any

import torch
from ray.rllib.core import DEFAULT_MODULE_ID

Weights = dict[str, torch.Tensor]


def weights(algo: Any) -> Weights:
    """A copy of all that the learner's module has."""
    state = algo.learner_group.get_state()["learner"]["rl_module"][DEFAULT_MODULE_ID]
    return {name: torch.as_tensor(value).clone() for name, value in state.items()}


def same(one: Weights, other: Weights) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def success(algo: Any) -> float:
    """Mean reward of a step in the latest episodes."""
    means = algo.window.means()
    assert means is not None
    return float(means[0] / means[1])
