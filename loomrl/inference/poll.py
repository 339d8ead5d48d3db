"""What engines in Ray actors have done, asked for without waiting."""

from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError

PATIENCE_S = 2.0
"""How long an engine may take to say what it has done; then what it said last counts."""


def answered(asked: Sequence[Any]) -> list[Any]:
    """The answers of those that live, and are not too busy."""
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE_S) if asked else ([], [])
    answers: list[Any] = []
    for reference in ready:
        try:
            answers.append(ray.get(reference))
        except RayError:
            continue
    return answers
