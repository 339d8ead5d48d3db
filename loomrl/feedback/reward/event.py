"""A reward as other systems read it: the contract `agent.rl.reward.v1`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from loomrl.canonical import as_uuid
from loomrl.feedback.reward.pipeline import FEEDBACK
from loomrl.store.rewards import StoredReward

EVALUATOR = "loomrl"
METHODS = {"z_score": "z-score", "min_max": "min-max", "none": "none"}


def as_event(reward: StoredReward) -> dict[str, Any]:
    """The body of the event. Scores are the normalised ones: their weighted sum is the total."""
    parts: Mapping[str, Mapping[str, Any]] = reward.content["components"]
    return {
        "reward_id": reward.id,
        "trajectory_id": as_uuid(reward.trajectory),
        "session_id": reward.trajectory,
        "timestamp": datetime.fromtimestamp(reward.created_at, UTC).isoformat(),
        "reward_components": {name: _component(part) for name, part in parts.items()},
        "total_reward": reward.total,
        "reward_type": "sparse",
        "normalization": {"method": METHODS[reward.content["normalization"]]},
        "metadata": {
            "evaluator": EVALUATOR,
            "evaluation_method": _method(parts),
            "confidence": reward.confidence,
        },
    }


def _component(part: Mapping[str, Any]) -> dict[str, Any]:
    raw = {"value": part["value"], "applies": part["applies"], **part["evidence"]}
    if "against" in part:
        raw["against"] = part["against"]
    said = part["reasoning"] if part["value"] is not None else f"{part['reasoning']}: neutral"
    return {
        "score": part["normalized"],
        "weight": part["weight"],
        "source": part["source"],
        "reasoning": said,
        "raw_data": raw,
    }


def _method(parts: Mapping[str, Mapping[str, Any]]) -> str:
    found = {name: part for name, part in parts.items() if part["value"] is not None}
    human = [name for name, part in found.items() if part["source"] == "human"]
    if human:
        return "human" if set(found) == {FEEDBACK} else "hybrid"
    return "model-based" if any("judge" in part["evidence"] for part in found.values()) else "automated"
