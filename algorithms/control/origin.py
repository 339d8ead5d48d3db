"""The origin of a checkpoint, so that it is not loaded into another environment or network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.rllib.core import DEFAULT_MODULE_ID

from loomrl.algorithms.control.learner import OURS
from loomrl.errors import ArtifactError

MODULE = Path("learner_group", "learner", "rl_module", DEFAULT_MODULE_ID)
"""Place of the module in a checkpoint of RLlib."""
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
    if differing := _differing(state, ours):
        raise ArtifactError(
            f"this checkpoint is of another run: {'; '.join(differing)}. Restore it with the settings that it was made "
            "with, or begin anew without it."
        )


def refuse_unfit(state: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """An ArtifactError if the weights of this state do not fit our spaces or network. The environment may differ."""
    if differing := _differing(state, {name: value for name, value in ours.items() if name != "environment"}):
        raise ArtifactError(
            f"parent: its weights do not fit: {'; '.join(differing)}. Begin with a version of the same spaces, "
            "algorithm and network, or leave parent out."
        )


def _differing(state: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    theirs = state.get(OURS, {}).get("origin", {})
    return [
        f"{name} is {theirs[name]} there and {ours[name]} here"
        for name in ours
        if name in theirs and theirs[name] != ours[name]
    ]
