"""What samples tokens while a language policy is trained, and how closely its weights are watched."""

from typing import Annotated, Any, Literal

from pydantic import Field

from loomrl.config.basic import NonNegative, Positive, PositiveInt, Seconds, ServerUrl
from loomrl.schema import Config


class Checks(Config):
    """What must hold before an engine acts with new weights. Checksums are always compared."""

    probes: int = Field(4, ge=0)
    """Prompts that every engine answers after an update, and the learner scores; 0 asks none. The first is the longest,
    the others are spread down to one token."""
    tolerance: Positive | None = None
    """How far the log-probability of any probed token may be off what the learner says; None: what its dtype allows."""
    drift: Positive = 0.1
    """Mean distance between sampled and recomputed log-probabilities of an update above which an alarm is raised."""


class TorchEngineConfig(Config):
    """The embedded engine, one in every runner."""

    kind: Literal["torch"] = "torch"
    checks: Checks = Checks()


class VllmEngineConfig(Config):
    """vLLM in Ray actors of its own, shared by all runners."""

    kind: Literal["vllm"] = "vllm"
    count: PositiveInt = 1
    """Engines; each holds the whole model."""
    gpus: NonNegative = 0.0
    """Of each engine; 0 takes vLLM's CPU build."""
    memory_gb: Positive | None = None
    """For keys and values of each engine; None lets vLLM decide on GPUs and takes 1 on CPUs."""
    transport: Literal["auto", "shared", "nexus", "nccl"] = "auto"
    """How new weights arrive: in shared memory of the learner's node (shared), as a delta to a file on every node of
    engines (nexus), or through a process group: NCCL between GPUs, gloo on CPUs (nccl). `auto`: shared memory on the
    learner's node, nexus on others."""
    start_timeout_s: Seconds = 300.0
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's engine, by their names there."""
    checks: Checks = Checks()


class OpenAIEngineConfig(Config):
    """A server that speaks OpenAI's completions, somewhere else."""

    kind: Literal["openai"] = "openai"
    url: ServerUrl
    """Such as http://127.0.0.1:8000/v1."""
    model: str
    """By its name there."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key, if one is needed."""
    updates: Literal["none", "sglang", "vllm"] = "none"
    """Whose routes take new weights; `none` can be judged, not trained."""
    staging: str | None = None
    """A folder that the server sees under the same name, for new weights. None: shared memory of this machine."""
    timeout_s: Seconds = 120.0
    checks: Checks = Checks()


EngineChoice = Annotated[
    TorchEngineConfig | VllmEngineConfig | OpenAIEngineConfig,
    Field(discriminator="kind"),
]
