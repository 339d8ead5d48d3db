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
    """A training that somebody asks for."""

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
