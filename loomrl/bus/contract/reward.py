"""The contract `agent.rl.reward.v1`: judgements of trajectories."""

from typing import Literal, NotRequired
from uuid import UUID

from pydantic import with_config
from typing_extensions import TypedDict

from loomrl.bus.contract.basic import CLOSED, OPEN, NotNegative, Object, Share, Timestamp


@with_config(OPEN)
class RewardComponent(TypedDict):
    """One part of a reward."""

    score: float
    weight: Share
    source: Literal["automated", "human", "linter", "test_results", "benchmark"]
    reasoning: NotRequired[str]
    raw_data: NotRequired[Object]


@with_config(OPEN)
class Normalization(TypedDict):
    """The normalization of components."""

    method: NotRequired[Literal["z-score", "min-max", "none"]]
    mean: NotRequired[float]
    std: NotRequired[NotNegative]
    min: NotRequired[float]
    max: NotRequired[float]


@with_config(OPEN)
class RewardMetadata(TypedDict):
    """The author of a judgement."""

    evaluator: str
    evaluation_method: Literal["automated", "human", "hybrid", "model-based"]
    confidence: NotRequired[Share]


@with_config(CLOSED)
class RewardEvent(TypedDict):
    """A judgement of a trajectory."""

    reward_id: UUID
    trajectory_id: UUID
    session_id: str
    timestamp: Timestamp
    reward_components: dict[str, RewardComponent]
    total_reward: float
    reward_type: Literal["dense", "sparse"]
    normalization: NotRequired[Normalization]
    metadata: RewardMetadata
