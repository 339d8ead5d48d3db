"""Teamwork: agents with skills share a line of tasks. Importing this makes `LoomTeam-v0` known to Gymnasium."""

import importlib
from typing import Any

import gymnasium

from loomrl.envs.teamwork.settings import ID

_DOORS = {
    "TeamEnvironment": "loomrl.envs.teamwork.environment",
    "TeamParallel": "loomrl.envs.teamwork.parallel",
    "TeamReport": "loomrl.envs.teamwork.report",
    "TeamSettings": "loomrl.envs.teamwork.settings",
    "TeamVector": "loomrl.envs.teamwork.vector",
    "as_table": "loomrl.envs.teamwork.report",
    "assignment_policy": "loomrl.envs.teamwork.baseline",
    "compare": "loomrl.envs.teamwork.report",
    "evaluate": "loomrl.envs.teamwork.report",
    "greedy_policy": "loomrl.envs.teamwork.baseline",
    "random_policy": "loomrl.envs.teamwork.baseline",
    "shared_policy": "loomrl.envs.teamwork.report",
}
"""Name → module, loaded when first used: PettingZoo and SciPy are not needed to act in a team."""

__all__ = ["ID", *_DOORS]

gymnasium.register(
    ID,
    entry_point="loomrl.envs.teamwork.environment:TeamEnvironment",
    vector_entry_point="loomrl.envs.teamwork.vector:TeamVector",
)


def __getattr__(name: str) -> Any:
    """The name's object, from the module that defines it."""
    if name not in _DOORS:
        raise AttributeError(f"module 'loomrl.envs.teamwork' has no attribute {name!r}. Known: {', '.join(__all__)}.")
    return getattr(importlib.import_module(_DOORS[name]), name)
