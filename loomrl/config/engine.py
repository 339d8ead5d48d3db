"""Settings of engines, and of the checks of their weights."""

from typing import Annotated, Any, Literal

from pydantic import Field

from loomrl.config.basic import NonNegative, Positive, PositiveInt, Seconds, ServerUrl
from loomrl.schema import Config


class Checks(Config):
    """Checks before an engine uses new weights. Checksums are always compared."""

    probes: int = Field(3, ge=0)
    """Prompts that every engine answers after an update for comparison with the learner; 0 disables the check. Their
    lengths spread from the longest down to one token."""
    tolerance: Positive | None = None
    """Tolerated difference between the engine's and the learner's log-probability of a token; null means the default of
    the dtype."""
    drift: Positive = 0.1
    """Mean difference between sampled and recomputed log-probabilities above which a warning is logged."""


class TorchEngineConfig(Config):
    """The embedded engine, one per runner."""

    kind: Literal["torch"] = "torch"
    graphs: bool = False
    """Let a GPU replay the steps as CUDA graphs. Not tried on a GPU yet."""
    checks: Checks = Checks()


class VllmSettings(Config):
    """The settings of vLLM wherever it runs."""

    memory_gb: Positive | None = None
    """Memory for the key-value cache of each engine; null lets vLLM decide on GPUs and means 1 on CPUs."""
    start_timeout_s: Seconds = 300.0
    """Time limit for starting an engine."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's engine, under vLLM's names."""


class VllmEngineConfig(VllmSettings):
    """vLLM in separate Ray actors, shared by all runners."""

    kind: Literal["vllm"] = "vllm"
    count: PositiveInt = 1
    """Number of engines; each holds the whole model."""
    gpus: NonNegative = 0.0
    """GPUs per engine; 0 uses vLLM's CPU build."""
    transport: Literal["auto", "shared", "nexus", "nccl"] = "auto"
    """Transport of new weights: `shared` memory on the learner's node; `nexus`, a delta to a file on every engine node;
    `nccl`, a process group (gloo on CPUs). `auto` uses shared memory on the learner's node and nexus on others."""
    checks: Checks = Checks()


class ServerSettings(Config):
    """The address of a model on a server."""

    url: ServerUrl
    """The server's URL, such as http://127.0.0.1:8000/v1."""
    model: str
    """The model's name on that server."""
    key_variable: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the API key, if one is needed."""
    timeout_s: Seconds = 120.0
    """Time limit of a request, including retries."""


class OpenAIEngineConfig(ServerSettings):
    """A remote server with OpenAI's completions API."""

    kind: Literal["openai"] = "openai"
    updates: Literal["none", "sglang", "vllm"] = "none"
    """Server type for weight updates; with `none` the model can be evaluated but not trained."""
    staging: str | None = None
    """Folder for new weights, at the same path on the server; null means this machine's shared memory."""
    checks: Checks = Checks()


EngineChoice = Annotated[
    TorchEngineConfig | VllmEngineConfig | OpenAIEngineConfig,
    Field(discriminator="kind"),
]
