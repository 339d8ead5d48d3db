"""All settings. `Experiment`, `ControlExperiment`, `ServingExperiment`, `LoopExperiment` are the roots of the trees."""

from loomrl.config.control import BC, DQN, IQL, SAC, ControlPPO, LoggedData, Network
from loomrl.config.control_experiment import (
    ControlCurriculum,
    ControlEnvironment,
    ControlEvaluation,
    ControlExperiment,
    ControlRollout,
    ControlTrain,
    CustomEnvironment,
    EnvironmentWrapper,
    GymnasiumEnvironment,
    ReturnPatience,
    ReturnThreshold,
)
from loomrl.config.engine import Checks, EngineChoice, OpenAIEngineConfig, TorchEngineConfig, VllmEngineConfig
from loomrl.config.evaluation import EvaluationConfig, Patience
from loomrl.config.experiment import (
    AdaptiveCurriculum,
    Algorithm,
    Curriculum,
    CurriculumStage,
    CustomPolicy,
    DataSelection,
    DatasetConfig,
    EnvironmentConfig,
    Experiment,
    FixedCurriculum,
    HubConfig,
    PolicyChoice,
    ProgressiveCurriculum,
    QuarantineConfig,
    ReplayConfig,
    RolloutConfig,
    ScriptedPolicy,
    StagedCurriculum,
    Threshold,
    TrainConfig,
    TurnLimit,
)
from loomrl.config.language import (
    DPO,
    GRPO,
    KL,
    KTO,
    PPO,
    RAFT,
    RLOO,
    SFT,
    Architecture,
    LanguageAlgorithm,
    LanguageModel,
    LanguagePolicy,
    LanguageWeave,
    Learners,
    Lora,
    OpenAIPolicy,
    Optimizer,
    PolicyGradient,
    Reinforce,
    Remote,
    RewardModel,
    Sampling,
    WarmStart,
)
from loomrl.config.loop import LoopExperiment
from loomrl.config.optimizer import AdaptiveRate, Clip, ConstantRate, CosineRate, LinearRate, Schedule
from loomrl.config.placement import GpuResources, Placement, ProcessResources
from loomrl.config.rewards import RewardPipeline, RewardWatch, RewardWeights
from loomrl.config.root import CustomAlgorithm, Records, Root, Training, WandB
from loomrl.config.serving import (
    CallerLimits,
    Gateways,
    OpenAIServing,
    RecordingConfig,
    ServedArm,
    ServingEngine,
    ServingExperiment,
    ServingReplicas,
    TorchServing,
    VllmServing,
)
from loomrl.config.weave import Weave
from loomrl.errors import ConfigError, unknown
from loomrl.schema import Tree

AnyExperiment = Experiment | ControlExperiment
"""One that trains a policy."""
AnyRoot = AnyExperiment | ServingExperiment | LoopExperiment
AnyClass = type[Experiment] | type[ControlExperiment] | type[ServingExperiment] | type[LoopExperiment]
KINDS: dict[str, AnyClass] = {
    "language": Experiment,
    "control": ControlExperiment,
    "serving": ServingExperiment,
    "loop": LoopExperiment,
}


def experiment_class(kind: str) -> AnyClass:
    """The experiment class for this kind; a ConfigError lists the known kinds."""
    if str(kind) not in KINDS:  # YAML may have a list there
        raise ConfigError(unknown("kind", str(kind), list(KINDS)))
    return KINDS[kind]


def parse_experiment(raw: Tree, *, origin: str) -> AnyExperiment:
    """The training experiment from plain data; without a `kind` it is one of a language policy."""
    return require_training(experiment_class(raw.get("kind", "language")).parse(raw, origin=origin))


def require_training(experiment: AnyRoot) -> AnyExperiment:
    """The experiment, if it trains a policy."""
    if isinstance(experiment, ServingExperiment):
        raise ConfigError(
            f"experiment {experiment.name!r} is one of serving, which trains and judges nothing: `loomrl serve` starts "
            "it. Name an experiment of kind language or control here."
        )
    if isinstance(experiment, LoopExperiment):
        raise ConfigError(
            f"experiment {experiment.name!r} is a loop, whose trainings `loomrl loop` starts. Name an experiment "
            "of kind language or control here."
        )
    return experiment


__all__ = [
    "BC",
    "DPO",
    "DQN",
    "GRPO",
    "IQL",
    "KINDS",
    "KL",
    "KTO",
    "PPO",
    "RAFT",
    "RLOO",
    "SAC",
    "SFT",
    "AdaptiveCurriculum",
    "AdaptiveRate",
    "Algorithm",
    "AnyExperiment",
    "AnyRoot",
    "Architecture",
    "CallerLimits",
    "Checks",
    "Clip",
    "ConstantRate",
    "ControlCurriculum",
    "ControlEnvironment",
    "ControlEvaluation",
    "ControlExperiment",
    "ControlPPO",
    "ControlRollout",
    "ControlTrain",
    "CosineRate",
    "Curriculum",
    "CurriculumStage",
    "CustomAlgorithm",
    "CustomEnvironment",
    "CustomPolicy",
    "DataSelection",
    "DatasetConfig",
    "EngineChoice",
    "EnvironmentConfig",
    "EnvironmentWrapper",
    "EvaluationConfig",
    "Experiment",
    "FixedCurriculum",
    "Gateways",
    "GpuResources",
    "GymnasiumEnvironment",
    "HubConfig",
    "LanguageAlgorithm",
    "LanguageModel",
    "LanguagePolicy",
    "LanguageWeave",
    "Learners",
    "LinearRate",
    "LoggedData",
    "LoopExperiment",
    "Lora",
    "Network",
    "OpenAIEngineConfig",
    "OpenAIPolicy",
    "OpenAIServing",
    "Optimizer",
    "Patience",
    "Placement",
    "PolicyChoice",
    "PolicyGradient",
    "ProcessResources",
    "ProgressiveCurriculum",
    "QuarantineConfig",
    "RecordingConfig",
    "Records",
    "Reinforce",
    "Remote",
    "ReplayConfig",
    "ReturnPatience",
    "ReturnThreshold",
    "RewardModel",
    "RewardPipeline",
    "RewardWatch",
    "RewardWeights",
    "RolloutConfig",
    "Root",
    "Sampling",
    "Schedule",
    "ScriptedPolicy",
    "ServedArm",
    "ServingEngine",
    "ServingExperiment",
    "ServingReplicas",
    "StagedCurriculum",
    "Threshold",
    "TorchEngineConfig",
    "TorchServing",
    "TrainConfig",
    "Training",
    "TurnLimit",
    "VllmEngineConfig",
    "VllmServing",
    "WandB",
    "WarmStart",
    "Weave",
    "experiment_class",
    "parse_experiment",
    "trained",
]
