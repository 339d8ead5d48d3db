"""All settings of a run. `Experiment` and `ControlExperiment` are the roots of the two trees."""

from loomrl.config.control import SAC, ControlPPO, Network
from loomrl.config.control_experiment import (
    ControlCurriculum,
    ControlEnvironment,
    ControlEvaluation,
    ControlExperiment,
    ControlRollout,
    ControlTrain,
    CustomEnvironment,
    GymnasiumEnvironment,
    ReturnGate,
    ReturnPatience,
)
from loomrl.config.engine import Checks, EngineChoice, OpenAIEngineConfig, TorchEngineConfig, VllmEngineConfig
from loomrl.config.experiment import (
    AdaptiveCurriculum,
    Algorithm,
    Curriculum,
    CurriculumStage,
    CustomPolicy,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    FixedCurriculum,
    Gate,
    HubConfig,
    Patience,
    PolicyChoice,
    ProgressiveCurriculum,
    QuarantineConfig,
    RolloutConfig,
    ScriptedPolicy,
    StagedCurriculum,
    TrainConfig,
)
from loomrl.config.language import (
    DPO,
    GRPO,
    KL,
    PPO,
    RLOO,
    Architecture,
    LanguageAlgorithm,
    LanguageModel,
    LanguagePolicy,
    Learners,
    Lora,
    OpenAIPolicy,
    Optimizer,
    PolicyGradient,
    Reinforce,
    Sampling,
    WarmStart,
)
from loomrl.config.optimizer import AdaptiveRate, Clip, ConstantRate, CosineRate, LinearRate, Schedule
from loomrl.config.placement import GpuPlace, Place, Placement
from loomrl.config.root import CustomAlgorithm, Records, Root, WandB
from loomrl.config.weave import Weave
from loomrl.errors import ConfigError, unknown
from loomrl.schema import Tree

AnyExperiment = Experiment | ControlExperiment
KINDS: dict[str, type[Experiment] | type[ControlExperiment]] = {"language": Experiment, "control": ControlExperiment}


def experiment_class(kind: str) -> type[Experiment] | type[ControlExperiment]:
    """The experiment class for this kind; a ConfigError lists the known kinds."""
    if str(kind) not in KINDS:  # YAML may have a list there
        raise ConfigError(unknown("kind", str(kind), list(KINDS)))
    return KINDS[kind]


def parse_experiment(raw: Tree, *, origin: str) -> AnyExperiment:
    """The experiment from plain data; without a `kind` it is one of a language policy."""
    return experiment_class(raw.get("kind", "language")).parse(raw, origin=origin)


__all__ = [
    "DPO",
    "GRPO",
    "KINDS",
    "KL",
    "PPO",
    "RLOO",
    "SAC",
    "AdaptiveCurriculum",
    "AdaptiveRate",
    "Algorithm",
    "AnyExperiment",
    "Architecture",
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
    "EngineChoice",
    "EnvironmentConfig",
    "EvaluationConfig",
    "Experiment",
    "FixedCurriculum",
    "Gate",
    "GpuPlace",
    "GymnasiumEnvironment",
    "HubConfig",
    "LanguageAlgorithm",
    "LanguageModel",
    "LanguagePolicy",
    "Learners",
    "LinearRate",
    "Lora",
    "Network",
    "OpenAIEngineConfig",
    "OpenAIPolicy",
    "Optimizer",
    "Patience",
    "Place",
    "Placement",
    "PolicyChoice",
    "PolicyGradient",
    "ProgressiveCurriculum",
    "QuarantineConfig",
    "Records",
    "Reinforce",
    "ReturnGate",
    "ReturnPatience",
    "RolloutConfig",
    "Root",
    "Sampling",
    "Schedule",
    "ScriptedPolicy",
    "StagedCurriculum",
    "TorchEngineConfig",
    "TrainConfig",
    "VllmEngineConfig",
    "WandB",
    "WarmStart",
    "Weave",
    "experiment_class",
    "parse_experiment",
]
