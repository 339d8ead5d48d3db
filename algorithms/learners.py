"""Several learners as one: what they are given, and what becomes of their errors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ray.exceptions import RayTaskError
from ray.rllib.core.learner.training_data import TrainingData

from loomrl.errors import LoomError


def training_data(shares: Sequence[Any]) -> TrainingData:
    """One share per learner, as RLlib wants it: its local learner takes it bare."""
    return TrainingData(batch=shares[0]) if len(shares) == 1 else TrainingData(batches=list(shares))


@contextmanager
def unwrapped() -> Iterator[None]:
    """An error of ours from a remote learner, as what it is."""
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, LoomError):
            raise error.cause from None
        raise
