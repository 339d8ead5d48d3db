"""The origin of a checkpoint, so that it is not loaded into another environment or network."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loomrl.algorithms.learner import OURS
from loomrl.errors import ArtifactError

SHAPE = ("hidden", "activation", "shared", "layer_norm", "memory")
"""The network settings that determine the meaning of its weights. The others only affect initial values."""


def origin(config: Any, module: Any) -> dict[str, Any]:
    """Everything that must be equal for a state to be resumed, as JSON."""
    network = config.settings.network.model_dump(mode="json", include=set(SHAPE))
    return {
        "environment": str(config.env),
        "observations": str(module.observation_space),
        "actions": str(module.action_space),
        "module": type(module).__name__,
        "normalize_observations": config.settings.normalize_observations,
        **{f"network.{name}": value for name, value in network.items()},
    }


def refuse_another(state: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """An ArtifactError with the differences, if this state has another origin than ours."""
    theirs = state.get(OURS, {}).get("origin", {})
    differing = [
        f"{name} is {theirs[name]} there and {ours[name]} here"
        for name in ours
        if name in theirs and theirs[name] != ours[name]
    ]
    if differing:
        raise ArtifactError(
            f"this checkpoint is of another run: {'; '.join(differing)}. Restore it with the settings that it was made "
            "with, or begin anew without it."
        )


def peeked(path: Any, name: str) -> dict[str, Any]:
    """The state in a folder's file of this name, read before restoring; empty if it is not local."""
    file = Path(path) / f"{name}.pkl"
    return pickle.loads(file.read_bytes()) if file.is_file() else {}
