"""What a checkpoint is of, so that none is taken for that of another environment or network."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loomrl.algorithms.learner import OURS
from loomrl.errors import ArtifactError

SHAPE = ("hidden", "activation", "shared", "layer_norm")
"""Of a network's settings, those that decide what its weights mean. The others only say where they began."""


def origin(config: Any, module: Any) -> dict[str, Any]:
    """Everything that must be the same where a state is to go on, as JSON."""
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
    """An ArtifactError that names how the origin of this state differs from ours."""
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
    """The state in a folder's file of this name, before anything is restored from it; empty where it is not local."""
    file = Path(path) / f"{name}.pkl"
    return pickle.loads(file.read_bytes()) if file.is_file() else {}
