""""""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NotRequired
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, with_config
from typing_extensions import TypedDict

CLOSED = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
OPEN = ConfigDict(extra="allow", allow_inf_nan=False, use_attribute_docstrings=True)
"""The string below a property is its description in the JSON Schema."""
ISO = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d")
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


def _timestamp(value: object) -> datetime:
    """A time without an offset is UTC."""
    if not isinstance(value, str) or not ISO.match(value):
        raise ValueError("not a time by ISO 8601, such as 2026-01-31T12:00:00Z")
    try:
        time = datetime.fromisoformat(value.upper())
    except ValueError:
        raise ValueError("not a time by ISO 8601, such as 2026-01-31T12:00:00Z") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _whole(value: object) -> object:
    """In JSON 1.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _uri(value: str) -> str:
    if not URI.fullmatch(value):
        raise ValueError("not a URI, such as http://127.0.0.1:8000")
    return value


Timestamp = Annotated[
    datetime, PlainValidator(_timestamp), WithJsonSchema({"type": "string", "format": "date-time"}, mode="validation")
]
Uri = Annotated[str, AfterValidator(_uri), WithJsonSchema({"type": "string", "format": "uri"})]
Integer = Annotated[int, BeforeValidator(_whole)]
Natural = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
Positive = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
NotNegative = Annotated[float, Field(ge=0)]
Object = dict[str, Any]
Domain = Literal["coding", "research", "data_analysis", "general", "debugging", "writing"]


@with_config(OPEN)
class Context(TypedDict):
    """Circumstances of an observation."""

    memory_state: NotRequired[Object]
    """The agent's memory at this moment, in a form of its own."""
    available_tools: NotRequired[list[str]]
    """Names of the tools that it could call."""
    subordinates_active: NotRequired[Natural]
    """Other agents that worked for it."""


@with_config(OPEN)
class Observation(TypedDict):
    """An observation of an agent."""

    type: Literal["user_message", "tool_result", "subordinate_response", "system_message"]
    """Origin of the observation."""
    content: str | Object
    """Text, or what a tool gave back as an object."""
    context: NotRequired[Context]
    """Circumstances."""


@with_config(OPEN)
class Action(TypedDict):
    """An action of an agent."""

    type: Literal["tool_call", "subordinate_call", "response", "memory_update"]
    """Kind of the action."""
    tool_name: NotRequired[str]
    """Name of the tool, in a tool call."""
    tool_args: NotRequired[Object]
    """Arguments of a tool call."""
    raw_response: NotRequired[str]
    """The agent's words, unchanged."""


@with_config(OPEN)
class Result(TypedDict):
    """The outcome of an action."""

    success: bool
    """True if the action could be carried out."""
    output: NotRequired[str | Object | None]
    """Output of the action, as text or as an object."""
    error: NotRequired[str | None]
    """The error's message; null without one."""
    execution_time_ms: NotRequired[NotNegative]
    """Duration in milliseconds."""


@with_config(OPEN)
class TurnEvent(TypedDict):
    """One turn of an agent."""

    turn_id: Positive
    """Number of the turn, from 1."""
    timestamp: Timestamp
    """Time of the action."""
    observation: Observation
    """The observation before the action."""
    thought_process: NotRequired[list[str]]
    """Its thoughts, in order."""
    action: Action
    """The action."""
    result: Result
    """The outcome of the action."""


@with_config(OPEN)
class TaskContext(TypedDict):
    """The task of a trajectory."""

    task_id: str
    """Id of the task; attempts at the same task share it."""
    instructions: str
    """The system's message to the agent."""
    complexity_score: NotRequired[Share]
    """Difficulty, from 0, easy, to 1."""
    domain: NotRequired[Domain]
    """Kind of work; `general` if absent."""


@with_config(OPEN)
class TrajectoryMetadata(TypedDict):
    """The model behind a trajectory, and its cost."""

    model: str
    """Name of the model, as its provider calls it."""
    temperature: NotRequired[Annotated[float, Field(ge=0, le=2)]]
    """Sampling temperature."""
    total_tokens: NotRequired[Natural]
    """Tokens read and written in all turns."""
    total_cost_usd: NotRequired[NotNegative]
    """Cost in US dollars."""


@with_config(CLOSED)
class TrajectoryEvent(TypedDict):
    """A finished trajectory, as text."""

    trajectory_id: UUID
    """Id of the trajectory, and of the message: a repeated one is dropped."""
    session_id: str
    """The conversation; several trajectories may share it."""
    agent_id: str
    """The agent, by the name that its operator gave it."""
    subordinate_profile: NotRequired[Literal["researcher", "developer", "hacker", "rl-trainer"] | None]
    """Role of an agent that works for another one; null or absent for one that does not."""
    start_timestamp: Timestamp
    """Beginning of the first turn."""
    end_timestamp: Timestamp
    """End of the last turn."""
    turns: Annotated[list[TurnEvent], Field(min_length=1)]
    """All turns, oldest first."""
    task_context: TaskContext
    """The task."""
    metadata: TrajectoryMetadata
    """The model, and the cost."""


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


@with_config(OPEN)
class DateRange(TypedDict):
    """A span of time."""

    start: NotRequired[Timestamp]
    """First moment; without it there is no lower bound."""
    end: NotRequired[Timestamp]
    """Last moment; without it there is no upper bound."""


@with_config(OPEN)
class DatasetFilter(TypedDict):
    """Conditions that trajectories have to meet."""

    min_reward: NotRequired[float]
    """Smallest total reward."""
    max_trajectory_length: NotRequired[Positive]
    """Most turns."""
    date_range: NotRequired[DateRange]
    """Time in which they ended."""
    task_domains: NotRequired[list[Domain]]
    """Only these kinds of work."""
    exclude_subordinate_profiles: NotRequired[list[str]]
    """None by agents in these roles."""


@with_config(OPEN)
class Dataset(TypedDict):
    """The data of a training."""

    source: Literal["nats_stream", "clickhouse", "s3", "local"]
    """Place of the trajectories."""
    sample_size: Positive
    """Trajectories to take at most."""
    stream_name: NotRequired[str]
    """Name of the stream, for `nats_stream`."""
    filter: NotRequired[DatasetFilter]
    """Conditions; absent: all are taken."""


@with_config(OPEN)
class Hyperparameters(TypedDict):
    """Settings of the algorithm."""

    learning_rate: NotRequired[float]
    """Step size of the optimizer."""
    batch_size: NotRequired[Positive]
    """Trajectories in one update."""
    epochs: NotRequired[Positive]
    """Passes over the data."""
    clip_epsilon: NotRequired[NotNegative]
    """Furthest that the ratio of probabilities may move from 1, in PPO and GRPO."""
    gamma: NotRequired[Share]
    """Discount of later rewards."""
    gae_lambda: NotRequired[Share]
    """Weight of longer estimates of the advantage, in PPO."""


@with_config(OPEN)
class Compute(TypedDict):
    """The machines of a training."""

    gpu_count: NotRequired[Natural]
    """GPUs; 0 trains on CPUs."""
    gpu_type: NotRequired[str]
    """Kind of GPU."""
    distributed: NotRequired[bool]
    """True for several processes."""
    mixed_precision: NotRequired[Literal["fp32", "fp16", "bf16"]]
    """Type that is computed in."""


@with_config(OPEN)
class Checkpointing(TypedDict):
    """The checkpoints of a training."""

    save_interval: NotRequired[Positive]
    """Updates between two checkpoints."""
    max_checkpoints: NotRequired[Positive]
    """Checkpoints that are kept at once."""
    storage_path: NotRequired[str]
    """Folder or URL of the checkpoints."""


@with_config(OPEN)
class TrainingConfig(TypedDict):
    """The algorithm of a training, its model and its data."""

    algorithm: Literal["ppo", "dpo", "rloo", "grpo", "reinforce"]
    """Algorithm."""
    base_model: str
    """Model or policy version that the training starts from."""
    dataset: Dataset
    """Data."""
    hyperparameters: Hyperparameters
    """Settings of the algorithm; those that are absent stay as the loop has them."""
    compute: NotRequired[Compute]
    """Machines."""
    checkpointing: NotRequired[Checkpointing]
    """Checkpoints."""


@with_config(OPEN)
class EvaluationPlan(TypedDict):
    """The evaluation after a training."""

    enabled: NotRequired[bool]
    """False leaves the evaluation out."""
    holdout_size: NotRequired[Share]
    """Share of the data that is held out."""
    metrics: NotRequired[list[Literal["reward", "task_completion", "efficiency", "loss", "kl_divergence"]]]
    """Figures to report."""
    benchmark_tasks: NotRequired[list[str]]
    """Benchmarks to run."""


@with_config(OPEN)
class RequestMetadata(TypedDict):
    """The author of a request."""

    requested_by: NotRequired[str]
    """Person or program behind the requester."""
    previous_training_job: NotRequired[UUID | None]
    """The job that this one follows or repeats; null without one."""
    notes: NotRequired[str]
    """Words for people."""


@with_config(CLOSED)
class TrainingRequest(TypedDict):
    """A request for a training."""

    training_job_id: UUID
    """Id of the job that is asked for; the same request again makes no second job."""
    timestamp: Timestamp
    """Time of the request."""
    requester: str
    """Service or person that asks."""
    trigger_reason: Literal["scheduled", "threshold_reached", "manual", "performance_degradation"]
    """Cause of the request."""
    training_config: TrainingConfig
    """The algorithm, its model and its data."""
    evaluation: NotRequired[EvaluationPlan]
    """Evaluation after the training."""
    priority: NotRequired[Literal["low", "normal", "high", "urgent"]]
    """Urgency among waiting jobs; `normal` if absent."""
    metadata: NotRequired[RequestMetadata]
    """The author, and notes."""


@with_config(OPEN)
class Progress(TypedDict):
    """The progress of a training."""

    current_epoch: NotRequired[Integer]
    """Passes over the data so far."""
    total_epochs: NotRequired[Positive]
    """Passes in all."""
    current_step: NotRequired[Integer]
    """Updates so far."""
    total_steps: NotRequired[Positive]
    """Updates in all."""
    percent_complete: NotRequired[Percent]
    """Share that is done, 0 to 100."""
    eta_seconds: NotRequired[NotNegative]
    """Seconds until the end, as far as is known."""


@with_config(OPEN)
class CurrentMetrics(TypedDict):
    """Figures now."""

    loss: NotRequired[float]
    """Loss of the latest update."""
    reward_mean: NotRequired[float]
    """Mean reward of its attempts."""
    reward_std: NotRequired[NotNegative]
    """Standard deviation of these rewards."""
    policy_entropy: NotRequired[float]
    """Mean entropy of the next action, in nats."""
    kl_divergence: NotRequired[NotNegative]
    """KL to the reference policy, in nats per token."""
    learning_rate: NotRequired[NotNegative]
    """Step size of the optimizer."""


@with_config(OPEN)
class BestMetrics(TypedDict):
    """Figures at their best."""

    epoch: NotRequired[Integer]
    """Epoch of the best checkpoint."""
    step: NotRequired[Integer]
    """Update of the best checkpoint."""
    reward_mean: NotRequired[float]
    """Its mean reward."""
    checkpoint_path: NotRequired[str]
    """Folder or URL of this checkpoint."""


@with_config(OPEN)
class StatusMetrics(TypedDict):
    """Figures of a training."""

    current: NotRequired[CurrentMetrics]
    """Figures of the latest update."""
    best: NotRequired[BestMetrics]
    """Figures of the best checkpoint so far."""


@with_config(OPEN)
class EvaluationResults(TypedDict):
    """The results of an evaluation."""

    holdout_reward: NotRequired[float]
    """Mean reward on held-out tasks."""
    benchmark_scores: NotRequired[dict[str, float]]
    """Mean success by benchmark."""
    improvement_over_baseline: NotRequired[float]
    """Gain over the version in production."""


@with_config(OPEN)
class TrainingArtifacts(TypedDict):
    """The files of a training."""

    final_checkpoint: NotRequired[str]
    """Folder or URL of the last checkpoint."""
    tensorboard_logs: NotRequired[str]
    """Folder for TensorBoard."""
    training_curves: NotRequired[str]
    """File of the figures by update."""
    model_card: NotRequired[str]
    """Page about the model."""


@with_config(OPEN)
class ResourceUsage(TypedDict):
    """The cost of a training."""

    gpu_hours: NotRequired[float]
    """GPUs times hours."""
    cost_usd: NotRequired[float]
    """Cost in US dollars."""
    peak_memory_gb: NotRequired[float]
    """Most memory that was used at once, in GB."""
    total_training_time_seconds: NotRequired[float]
    """Duration in seconds."""


@with_config(OPEN)
class TrainingError(TypedDict):
    """The reason of a failure."""

    code: NotRequired[Literal["OOM", "CONVERGENCE", "DATA", "INFRA", "TIMEOUT", "UNKNOWN"]]
    """Kind of failure, which decides how the job is tried again."""
    message: NotRequired[str]
    """The failure in one line."""
    traceback: NotRequired[str]
    """Lines of the log around it."""


@with_config(OPEN)
class StatusMetadata(TypedDict):
    """The platform of a training."""

    training_platform: NotRequired[str]
    """Framework that trains, with its version."""
    cuda_version: NotRequired[str]
    """CUDA's version."""
    pytorch_version: NotRequired[str]
    """PyTorch's version."""


@with_config(CLOSED)
class TrainingStatus(TypedDict):
    """The state of a training."""

    training_job_id: UUID
    """The job."""
    timestamp: Timestamp
    """Time of the status."""
    status: Literal["queued", "running", "completed", "failed", "cancelled"]
    """State of the job."""
    progress: NotRequired[Progress]
    """The progress."""
    metrics: NotRequired[StatusMetrics]
    """Figures of the training."""
    evaluation_results: NotRequired[EvaluationResults]
    """Figures of the evaluation, once there are any."""
    artifacts: NotRequired[TrainingArtifacts]
    """Files that it left."""
    resource_usage: NotRequired[ResourceUsage]
    """The cost."""
    error: NotRequired[TrainingError]
    """The reason, if the job failed."""
    metadata: NotRequired[StatusMetadata]
    """The platform."""


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
