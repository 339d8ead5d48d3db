"""What an algorithm is to the training loop, and the one place where an experiment's choice is opened."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from algorithms.bandit import Bandit
from loomrl.config import Algorithm, BanditAlgorithm, CustomAlgorithm, PolicyChoice
from loomrl.named import named
from loomrl.types import Group


class Learner(Protocol):
    """Built from its settings. What it has learnt is in its state."""

    def policy(self, version: int) -> PolicyChoice:
        """What acts now."""

    def learn(self, groups: Sequence[Group]) -> dict[str, float]:
        """One update; metrics by name."""

    def state_dict(self) -> dict[str, Any]:
        """Everything a restart needs, as JSON."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""


def open_learner(algorithm: Algorithm) -> Learner:
    """The algorithm that an experiment names, untrained."""
    if isinstance(algorithm, BanditAlgorithm):
        return Bandit(algorithm)
    if not isinstance(algorithm, CustomAlgorithm):
        raise NotImplementedError(algorithm.kind)
    learner: Learner = named(algorithm.entry_point, what="algorithm.entry_point")(**algorithm.settings)
    return learner
