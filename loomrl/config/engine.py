"""Settings of engines, and of the checks of their weights."""

from typing import Annotated, Any, Literal

from pydantic import Field

from loomrl.config.basic import NonNegative, Positive, PositiveInt, Seconds, ServerUrl
from loomrl.schema import Config


class Checks(Config):
    """Checks before an engine acts with new weights. Checksums are always compared."""

    probes: int = Field(3, ge=0)
    """Prompts that every engine answers after an update, compared with the learner; 0 disables them. The first is the
    longest, the others are spread down to one token.
    """
    tolerance: Positive | None = None
    """Tolerated difference of a probed token's log-probability from the learner's; None: the default of its dtype."""
    drift: Positive = 0.1
    """Mean difference between sampled and recomputed log-probabilities of an update above which a warning is logged."""


class TorchEngineConfig(Config):
    """The embedded engine, one in every runner."""

    kind: Literal["torch"] = "torch"
    checks: Checks = Checks()


class VllmEngineConfig(Config):
    """vLLM in separate Ray actors, shared by all runners."""

    kind: Literal["vllm"] = "vllm"
    count: PositiveInt = 1
    """Engines; each holds the whole model."""
    gpus: NonNegative = 0.0
    """GPUs of each engine; 0 uses vLLM's CPU build."""
    memory_gb: Positive | None = None
    """Memory for keys and values of each engine; None lets vLLM decide on GPUs and means 1 on CPUs."""
    transport: Literal["auto", "shared", "nexus", "nccl"] = "auto"
    """Transport of new weights: shared memory on the learner's node (shared), a delta to a file on every engine node
    (nexus), or a process group: NCCL between GPUs, gloo on CPUs (nccl). `auto`: shared memory on the learner's node,
    nexus on others.
    """
    start_timeout_s: Seconds = 300.0
    """Time limit for an engine's start."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's engine, by vLLM's names."""
    checks: Checks = Checks()


class OpenAIEngineConfig(Config):
    """A remote server that speaks OpenAI's completions."""

    kind: Literal["openai"] = "openai"
    url: ServerUrl
    """Such as http://127.0.0.1:8000/v1."""
    model: str
    """The model's name on that server."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key, if one is needed."""
    updates: Literal["none", "sglang", "vllm"] = "none"
    """The server type for weight updates; with `none` the model can be evaluated, not trained."""
    staging: str | None = None
    """A folder for new weights, at the same path on the server. None: shared memory of this machine."""
    timeout_s: Seconds = 120.0
    """Time limit of a request, its retries included."""
    checks: Checks = Checks()


EngineChoice = Annotated[
    TorchEngineConfig | VllmEngineConfig | OpenAIEngineConfig,
    Field(discriminator="kind"),
]
