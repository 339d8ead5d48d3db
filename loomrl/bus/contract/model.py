"""The contract `agent.rl.model.deployed.v1`: models and their share of the traffic."""

from typing import Literal, NotRequired
from uuid import UUID

from pydantic import with_config
from typing_extensions import TypedDict

from loomrl.bus.contract.basic import CLOSED, OPEN, Percent, Positive, Share, Timestamp, Uri


@with_config(OPEN)
class ModelInfo(TypedDict):
    """A model that is deployed."""

    model_id: str
    base_model: str
    checkpoint_path: str
    training_date: NotRequired[str]
    training_samples: NotRequired[Positive]
    final_reward: NotRequired[float]


@with_config(OPEN)
class RampStep(TypedDict):
    """A step of a ramp."""

    timestamp: Timestamp
    percentage: Percent


@with_config(OPEN)
class DeploymentConfig(TypedDict):
    """The place of a model, and its share of the traffic."""

    serving_platform: Literal["tensorzero", "vllm", "tgi", "ollama"]
    endpoint: Uri
    model_name: str
    rollout_strategy: Literal["canary", "blue_green", "immediate"]
    traffic_percentage: NotRequired[Percent]
    ramp_schedule: NotRequired[list[RampStep]]


@with_config(OPEN)
class ValidationResults(TypedDict):
    """The findings of a gate."""

    benchmark_passed: bool
    safety_checks_passed: bool
    performance_regression: bool
    human_eval_score: NotRequired[Share]
    benchmark_scores: NotRequired[dict[str, float]]


@with_config(OPEN)
class DeploymentMetadata(TypedDict):
    """The author of a deployment."""

    deployed_by: NotRequired[str]
    approval_status: NotRequired[Literal["automated", "manual_approved", "emergency_override"]]
    previous_model: NotRequired[str]


@with_config(CLOSED)
class ModelDeployed(TypedDict):
    """A model that answers, or has another share of the traffic."""

    deployment_id: UUID
    training_job_id: UUID
    timestamp: Timestamp
    model_info: ModelInfo
    deployment_config: DeploymentConfig
    validation_results: ValidationResults
    metadata: NotRequired[DeploymentMetadata]
