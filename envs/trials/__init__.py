"""Episodes of several trials at one task, for policies that learn a task while they act; and tasks for them.

Importing this makes `LoomTrials-v0`, `LoomBandit-v0`, `LoomGrid-v0` and `LoomPhysics-v0` known to Gymnasium.
"""

import gymnasium

TRIALS = "LoomTrials-v0"
BANDIT = "LoomBandit-v0"
GRID = "LoomGrid-v0"
PHYSICS = "LoomPhysics-v0"

gymnasium.register(TRIALS, entry_point="loomrl.envs.trials.environment:Trials")
gymnasium.register(BANDIT, entry_point="loomrl.envs.trials.task:Bandit")
gymnasium.register(GRID, entry_point="loomrl.envs.trials.task:GoalGrid", max_episode_steps=20)
gymnasium.register(PHYSICS, entry_point="loomrl.envs.trials.task:Physics", max_episode_steps=100)
