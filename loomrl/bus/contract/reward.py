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
    """Score of this part, before it is weighted."""
    weight: Share
    """Share of the total."""
    source: Literal["automated", "human", "linter", "test_results", "benchmark"]
    """Origin of the score."""
    reasoning: NotRequired[str]
    """The reason for the score, for people."""
    raw_data: NotRequired[Object]
    """The figures that it was computed from."""


@with_config(OPEN)
class Normalization(TypedDict):
    """The normalization of components."""

    method: NotRequired[Literal["z-score", "min-max", "none"]]
    """Normalization of scores before they are weighted."""
    mean: NotRequired[float]
    """Mean that was subtracted, for `z-score`."""
    std: NotRequired[NotNegative]
    """Standard deviation that was divided by, for `z-score`."""
    min: NotRequired[float]
    """Score that became 0, for `min-max`."""
    max: NotRequired[float]
    """Score that became 1, for `min-max`."""


@with_config(OPEN)
class RewardMetadata(TypedDict):
    """The author of a judgement."""

    evaluator: str
    """Program or person that judged."""
    evaluation_method: Literal["automated", "human", "hybrid", "model-based"]
    """Kind of judge."""
    confidence: NotRequired[Share]
    """Share of the weights for which there was evidence."""


@with_config(CLOSED)
class RewardEvent(TypedDict):
    """A judgement of a trajectory."""

    reward_id: UUID
    """Id of the judgement, and of the message: a repeated one is dropped."""
    trajectory_id: UUID
    """The trajectory that is judged."""
    session_id: str
    """Its conversation."""
    timestamp: Timestamp
    """Time of the judgement."""
    reward_components: dict[str, RewardComponent]
    """The parts by name. Well known are `task_completion`, `efficiency`, `code_quality`, `user_feedback`, `safety` and
    `accuracy`; others are allowed.
    """
    total_reward: float
    """Weighted sum of the parts."""
    reward_type: Literal["dense", "sparse"]
    """`sparse`: one number at the end; `dense`: by turn."""
    normalization: NotRequired[Normalization]
    """Normalization of the parts; absent if there was none."""
    metadata: RewardMetadata
    """The judge."""
