"""Teamwork: agents with skills share a line of tasks. Importing this makes `LoomTeam-v0` known to Gymnasium."""

import importlib
from typing import Any

import gymnasium

from envs.teamwork.settings import ID

_DOORS = {
    "TeamEnvironment": "envs.teamwork.environment",
    "TeamParallel": "envs.teamwork.parallel",
    "TeamReport": "envs.teamwork.report",
    "TeamSettings": "envs.teamwork.settings",
    "TeamVector": "envs.teamwork.vector",
    "as_table": "envs.teamwork.report",
    "assignment_policy": "envs.teamwork.baseline",
    "compare": "envs.teamwork.report",
    "evaluate": "envs.teamwork.report",
    "greedy_policy": "envs.teamwork.baseline",
    "random_policy": "envs.teamwork.baseline",
    "shared_policy": "envs.teamwork.report",
}
"""Name → module, loaded when first used: PettingZoo and SciPy are not needed to act in a team."""

__all__ = ["ID", *_DOORS]

gymnasium.register(
    ID,
    entry_point="envs.teamwork.environment:TeamEnvironment",
    vector_entry_point="envs.teamwork.vector:TeamVector",
)


def __getattr__(name: str) -> Any:
    """The name's object, from the module that defines it."""
    if name not in _DOORS:
        raise AttributeError(f"module 'envs.teamwork' has no attribute {name!r}. Known: {', '.join(__all__)}.")
    return getattr(importlib.import_module(_DOORS[name]), name)
