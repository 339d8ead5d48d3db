"""LoomRL: reinforcement learning for agents on Ray. The names below are loaded when they are first used."""

import importlib
import os
from typing import Any

__version__ = "0.1.0"

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# torch reads it once, when it is imported. Without it its threads spin at every barrier, and on a machine that is busy
# with anything else a small model is many times slower (docs/benchmarks.md).

_DOORS = {
    "Experiment": "loomrl.config",
    "LoomRLGym": "loomrl.gym.pool",
    "BaseEnvironment": "loomrl.gym.base",
    "CurriculumGenerator": "loomrl.gym.generator",
    "register_environment": "loomrl.gym.registry",
    "open_hub": "loomrl.hub",
    "PPOConfig": "loomrl.experiments.notebook.integrated",
    "PPOTrainer": "loomrl.experiments.notebook.integrated",
    "GymTrainingConfig": "loomrl.experiments.notebook.integrated",
    "GymPPOIntegration": "loomrl.experiments.notebook.integrated",
    "create_integrated_rl_system": "loomrl.experiments.notebook.integrated",
    "ControlExperiment": "loomrl.config",
    "AgenticRLSystem": "loomrl.experiments.notebook.agentic",
    "EvaluationPipeline": "loomrl.experiments.notebook.pipeline",
}
"""Name → module. Named by string: importing one of them loads torch or Ray, importing `loomrl` does not."""

__all__ = ["__version__", *_DOORS]


def __getattr__(name: str) -> Any:
    """The name's object, from the module that defines it."""
    if name not in _DOORS:
        raise AttributeError(f"module 'loomrl' has no attribute {name!r}. Known: {', '.join(_DOORS)}.")
    return getattr(importlib.import_module(_DOORS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
