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
    """The version that is deployed, as `RUN/NUMBER`, or a folder."""
    base_model: str
    """Model or policy version that its training started from."""
    checkpoint_path: str
    """Folder or URL of its files."""
    training_date: NotRequired[str]
    """Day or time at which its training ended."""
    training_samples: NotRequired[Positive]
    """Trajectories that it was trained on."""
    final_reward: NotRequired[float]
    """Mean reward at the end of its training."""


@with_config(OPEN)
class RampStep(TypedDict):
    """A step of a ramp."""

    timestamp: Timestamp
    """Time of the step."""
    percentage: Percent
    """Share of the traffic from then on, 0 to 100."""


@with_config(OPEN)
class DeploymentConfig(TypedDict):
    """The place of a model, and its share of the traffic."""

    serving_platform: Literal["tensorzero", "vllm", "tgi", "ollama"]
    """Server, or the one whose dialect is spoken."""
    endpoint: Uri
    """Address for callers."""
    model_name: str
    """Name that callers give as `model`."""
    rollout_strategy: Literal["canary", "blue_green", "immediate"]
    """Strategy of the release."""
    traffic_percentage: NotRequired[Percent]
    """Share of the traffic now, 0 to 100."""
    ramp_schedule: NotRequired[list[RampStep]]
    """Steps of a canary, in order."""


@with_config(OPEN)
class ValidationResults(TypedDict):
    """The findings of a gate."""

    benchmark_passed: bool
    """True if every benchmark of the gate was passed."""
    safety_checks_passed: bool
    """True if every safety check was passed."""
    performance_regression: bool
    """True if it is worse than the version in production."""
    human_eval_score: NotRequired[Share]
    """Mean judgement by people."""
    benchmark_scores: NotRequired[dict[str, float]]
    """Mean success by benchmark."""


@with_config(OPEN)
class DeploymentMetadata(TypedDict):
    """The author of a deployment."""

    deployed_by: NotRequired[str]
    """Person or program that released it."""
    approval_status: NotRequired[Literal["automated", "manual_approved", "emergency_override"]]
    """Approval by the gate alone, by a person after the gate, or by a person without or against it."""
    previous_model: NotRequired[str]
    """The version that it takes traffic from."""


@with_config(CLOSED)
class ModelDeployed(TypedDict):
    """A model that answers, or has another share of the traffic."""

    deployment_id: UUID
    """Id of the deployment, and of the message: a repeated one is dropped."""
    training_job_id: UUID
    """The job that made the version."""
    timestamp: Timestamp
    """Time from which the share holds."""
    model_info: ModelInfo
    """The version."""
    deployment_config: DeploymentConfig
    """Its place, and its share of the traffic."""
    validation_results: ValidationResults
    """Findings of the gate."""
    metadata: NotRequired[DeploymentMetadata]
    """The author, and the version before."""
