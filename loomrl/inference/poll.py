"""Polls engines in Ray actors without waiting for busy ones."""

from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError

PATIENCE_S = 2.0
"""Time limit for an engine's answer; beyond it the previous one counts."""


def answered(asked: Sequence[Any]) -> list[Any]:
    """The answers of the engines that are alive and answer in time."""
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE_S) if asked else ([], [])
    answers: list[Any] = []
    for reference in ready:
        try:
            answers.append(ray.get(reference))
        except RayError:
            continue
    return answers
