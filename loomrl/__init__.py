"""LoomRL: reinforcement learning for agents on Ray. The names below are loaded when they are first used."""

import os

from loomrl.named import lazily

__version__ = "0.1.0"

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# torch reads it once, when it is imported. Without it its threads spin at every barrier, and on a machine that is busy
# with anything else a small model is many times slower (docs/benchmarks.md).

_DOORS = {
    "AgenticRLSystem": "loomrl.experiments.notebook.agentic",
    "BaseEnvironment": "loomrl.gym.base",
    "ControlExperiment": "loomrl.config",
    "CurriculumGenerator": "loomrl.gym.manual",
    "DialogueEnv": "loomrl.envs.manual",
    "EnvironmentType": "loomrl.gym.catalogue",
    "EvaluationPipeline": "loomrl.experiments.notebook.pipeline",
    "Experiment": "loomrl.config",
    "GymPPOIntegration": "loomrl.experiments.notebook.integrated",
    "GymTrainingConfig": "loomrl.experiments.notebook.integrated",
    "LogicPuzzleEnv": "loomrl.envs.manual",
    "LoomRLGym": "loomrl.gym.pool",
    "MemoryBufferEnv": "loomrl.envs.manual",
    "MetaReasoningEnv": "loomrl.envs.manual",
    "MultiAgentTaskEnvironment": "loomrl.envs.teamwork.parallel",
    "NexusWorker": "loomrl.experiments.notebook.nexus",
    "PPOConfig": "loomrl.experiments.notebook.integrated:PPOSettings",
    "PPOTrainer": "loomrl.experiments.notebook.integrated",
    "RewardComponent": "loomrl.gym.rewards",
    "RolloutEngine": "loomrl.experiments.notebook.engine",
    "create_integrated_rl_system": "loomrl.experiments.notebook.integrated",
    "open_hub": "loomrl.hub",
    "register_environment": "loomrl.gym.registry",
}
"""Name → module. Named by string: importing one of them loads torch or Ray, importing `loomrl` does not."""

__all__ = ["__version__", *_DOORS]
__getattr__, __dir__ = lazily("loomrl", _DOORS)
