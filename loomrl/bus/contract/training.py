"""The contracts `agent.rl.training.request.v1` and `agent.rl.training.status.v1`."""

from typing import Literal, NotRequired
from uuid import UUID

from pydantic import with_config
from typing_extensions import TypedDict

from loomrl.bus.contract.basic import (
    CLOSED,
    OPEN,
    Domain,
    Integer,
    Natural,
    NotNegative,
    Percent,
    Positive,
    Share,
    Timestamp,
)


@with_config(OPEN)
class DateRange(TypedDict):
    """A span of time."""

    start: NotRequired[Timestamp]
    end: NotRequired[Timestamp]


@with_config(OPEN)
class DatasetFilter(TypedDict):
    """Conditions that trajectories have to meet."""

    min_reward: NotRequired[float]
    max_trajectory_length: NotRequired[Positive]
    date_range: NotRequired[DateRange]
    task_domains: NotRequired[list[Domain]]
    exclude_subordinate_profiles: NotRequired[list[str]]


@with_config(OPEN)
class Dataset(TypedDict):
    """The data of a training."""

    source: Literal["nats_stream", "clickhouse", "s3", "local"]
    sample_size: Positive
    stream_name: NotRequired[str]
    filter: NotRequired[DatasetFilter]


@with_config(OPEN)
class Hyperparameters(TypedDict):
    """Settings of the algorithm."""

    learning_rate: NotRequired[float]
    batch_size: NotRequired[Positive]
    epochs: NotRequired[Positive]
    clip_epsilon: NotRequired[NotNegative]
    gamma: NotRequired[Share]
    gae_lambda: NotRequired[Share]


@with_config(OPEN)
class Compute(TypedDict):
    """The machines of a training."""

    gpu_count: NotRequired[Natural]
    gpu_type: NotRequired[str]
    distributed: NotRequired[bool]
    mixed_precision: NotRequired[Literal["fp32", "fp16", "bf16"]]


@with_config(OPEN)
class Checkpointing(TypedDict):
    """The checkpoints of a training."""

    save_interval: NotRequired[Positive]
    max_checkpoints: NotRequired[Positive]
    storage_path: NotRequired[str]


@with_config(OPEN)
class TrainingConfig(TypedDict):
    """The algorithm of a training, its model and its data."""

    algorithm: Literal["ppo", "dpo", "rloo", "grpo", "reinforce"]
    base_model: str
    dataset: Dataset
    hyperparameters: Hyperparameters
    compute: NotRequired[Compute]
    checkpointing: NotRequired[Checkpointing]


@with_config(OPEN)
class EvaluationPlan(TypedDict):
    """The evaluation after a training."""

    enabled: NotRequired[bool]
    holdout_size: NotRequired[Share]
    metrics: NotRequired[list[Literal["reward", "task_completion", "efficiency", "loss", "kl_divergence"]]]
    benchmark_tasks: NotRequired[list[str]]


@with_config(OPEN)
class RequestMetadata(TypedDict):
    """The author of a request."""

    requested_by: NotRequired[str]
    previous_training_job: NotRequired[UUID | None]
    notes: NotRequired[str]


@with_config(CLOSED)
class TrainingRequest(TypedDict):
    """A training that somebody asks for."""

    training_job_id: UUID
    timestamp: Timestamp
    requester: str
    trigger_reason: Literal["scheduled", "threshold_reached", "manual", "performance_degradation"]
    training_config: TrainingConfig
    evaluation: NotRequired[EvaluationPlan]
    priority: NotRequired[Literal["low", "normal", "high", "urgent"]]
    metadata: NotRequired[RequestMetadata]


@with_config(OPEN)
class Progress(TypedDict):
    """The progress of a training."""

    current_epoch: NotRequired[Integer]
    total_epochs: NotRequired[Positive]
    current_step: NotRequired[Integer]
    total_steps: NotRequired[Positive]
    percent_complete: NotRequired[Percent]
    eta_seconds: NotRequired[NotNegative]


@with_config(OPEN)
class CurrentMetrics(TypedDict):
    """Figures now."""

    loss: NotRequired[float]
    reward_mean: NotRequired[float]
    reward_std: NotRequired[NotNegative]
    policy_entropy: NotRequired[float]
    kl_divergence: NotRequired[NotNegative]
    learning_rate: NotRequired[NotNegative]


@with_config(OPEN)
class BestMetrics(TypedDict):
    """Figures at their best."""

    epoch: NotRequired[Integer]
    step: NotRequired[Integer]
    reward_mean: NotRequired[float]
    checkpoint_path: NotRequired[str]


@with_config(OPEN)
class StatusMetrics(TypedDict):
    """Figures of a training."""

    current: NotRequired[CurrentMetrics]
    best: NotRequired[BestMetrics]


@with_config(OPEN)
class EvaluationResults(TypedDict):
    """The results of an evaluation."""

    holdout_reward: NotRequired[float]
    benchmark_scores: NotRequired[dict[str, float]]
    improvement_over_baseline: NotRequired[float]


@with_config(OPEN)
class TrainingArtifacts(TypedDict):
    """The files of a training."""

    final_checkpoint: NotRequired[str]
    tensorboard_logs: NotRequired[str]
    training_curves: NotRequired[str]
    model_card: NotRequired[str]


@with_config(OPEN)
class ResourceUsage(TypedDict):
    """The cost of a training."""

    gpu_hours: NotRequired[float]
    cost_usd: NotRequired[float]
    peak_memory_gb: NotRequired[float]
    total_training_time_seconds: NotRequired[float]


@with_config(OPEN)
class TrainingError(TypedDict):
    """The reason of a failure."""

    code: NotRequired[Literal["OOM", "CONVERGENCE", "DATA", "INFRA", "TIMEOUT", "UNKNOWN"]]
    message: NotRequired[str]
    traceback: NotRequired[str]


@with_config(OPEN)
class StatusMetadata(TypedDict):
    """The platform of a training."""

    training_platform: NotRequired[str]
    cuda_version: NotRequired[str]
    pytorch_version: NotRequired[str]


@with_config(CLOSED)
class TrainingStatus(TypedDict):
    """The state of a training."""

    training_job_id: UUID
    timestamp: Timestamp
    status: Literal["queued", "running", "completed", "failed", "cancelled"]
    progress: NotRequired[Progress]
    metrics: NotRequired[StatusMetrics]
    evaluation_results: NotRequired[EvaluationResults]
    artifacts: NotRequired[TrainingArtifacts]
    resource_usage: NotRequired[ResourceUsage]
    error: NotRequired[TrainingError]
    metadata: NotRequired[StatusMetadata]
