"""Teamwork: agents with skills share a line of tasks. Importing this makes `LoomTeam-v0` known to Gymnasium."""

import gymnasium

from loomrl.envs.teamwork.settings import ID
from loomrl.named import lazily

_DOORS = {
    "TeamEnvironment": "loomrl.envs.teamwork.vector",
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
    "team_of": "loomrl.envs.teamwork.report",
}
"""Name → module, loaded when first used: PettingZoo and SciPy are not needed to act in a team."""

__all__ = ["ID", *_DOORS]

gymnasium.register(
    ID,
    entry_point="loomrl.envs.teamwork.vector:TeamEnvironment",
    vector_entry_point="loomrl.envs.teamwork.vector:TeamVector",
)

__getattr__, __dir__ = lazily("loomrl.envs.teamwork", _DOORS)
