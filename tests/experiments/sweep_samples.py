"""Sweeps so small that a trial takes a second."""

from pathlib import Path
from typing import Any

from loomrl.config.sweep import Sweep
from tests.algorithms.language_support import experiment as language_experiment

ENVS = "tests.algorithms.control_envs"


def control(folder: Path, **changes: Any) -> Sweep:
    tree = {
        "kind": "control",
        "name": "identity",
        "environment": {"kind": "custom", "entry_point": f"{ENVS}:Identity"},
        "algorithm": {"kind": "ppo", "learning_rate": 3e-3, "minibatch_size": 64},
        "rollout": {"steps": 32},
        "train": {"steps": 2048, "checkpoint_every": 512, "tell_every": 256, "folder": str(folder / "runs")},
        "evaluation": {"every": None, "episodes": 4},
        "store_url": f"sqlite:///{folder}/loom.db",
        "artifact_url": str(folder / "artifacts"),
    }
    space = {"algorithm.learning_rate": {"kind": "choice", "values": [1e-9, 3e-3]}}
    return Sweep.parse(
        {"name": "c", "experiment": tree, "space": space, "samples": 4, "window": 1, "retries": 0} | changes
    )


def language(folder: Path, **changes: Any) -> Sweep:
    experiment = language_experiment(
        folder, **{"train.updates": 8, "evaluation.episodes": 8, "algorithm.optimizer.micro_batch_tokens": 1024}
    )
    space = {"algorithm.optimizer.learning_rate": {"kind": "choice", "values": [1e-7, 1e-2]}}
    given = {"name": "l", "experiment": experiment.model_dump(mode="json"), "space": space, "samples": 2}
    return Sweep.parse(given | changes)
