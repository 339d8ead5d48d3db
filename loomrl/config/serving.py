"""The experiment of serving: an endpoint, the policies behind it, and the door in front, as frozen data."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import NonNegative, Positive, PositiveInt, Seconds, ServerUrl, Share
from loomrl.config.monitor import Monitoring
from loomrl.config.pipeline import RewardPipeline
from loomrl.config.placement import GpuPlace
from loomrl.config.root import Root
from loomrl.schema import Config
from loomrl.threshold import reaches

EndpointName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
RoleName = Literal["stable", "canary", "shadow"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
Origin = Annotated[str, Field(pattern=r"^https?://[^/\s,]+$")]
HostName = Annotated[str, Field(min_length=1, pattern=r"^[^\s/:]+$")]


class ServedArm(Config):
    """A policy behind the endpoint."""

    what: Annotated[str, Field(min_length=1)]
    """`RUN` (its last version), `RUN/NUMBER`, a model's folder, or the folder of an exported control policy."""
    name: Name | None = None
    """None takes the role."""
    role: RoleName = "stable"
    """Stable answers whatever no other does; a shadow's answers are recorded and reach nobody."""
    share: Share = 1.0
    """Share of the sessions; of a shadow, the share that it gets a copy of."""
    follow: Literal["newest", "best"] | None = None
    """Take each newer, or better, version that the run `what` records, in place and without losing a call."""

    @property
    def label(self) -> str:
        """Its name."""
        return self.name or self.role


class TorchServing(Config):
    """The embedded engine in each replica."""

    kind: Literal["torch"] = "torch"
    slots: PositiveInt = 64
    """Calls of a replica that sample at once; others wait."""
    trust_remote_code: bool = False
    """Python files in folders that are served may run, with all that this user may do. Read them first."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of the weights."""
    threads: PositiveInt = 1
    """Threads of torch in each replica: small models are slower on several."""


class VllmServing(Config):
    """vLLM in each replica."""

    kind: Literal["vllm"] = "vllm"
    memory_gb: Positive | None = None
    """Memory for keys and values of each replica; None lets vLLM decide on GPUs and means 1 on CPUs."""
    start_timeout_s: Seconds = 300.0
    """Time limit for an engine's start."""
    trust_remote_code: bool = False
    """Python files in folders that are served may run, with all that this user may do. Read them first."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's engine, by vLLM's names."""


class OpenAIServing(Config):
    """Replicas that forward to a server of OpenAI's completions; `what` names the folder of its tokenizer."""

    kind: Literal["openai"] = "openai"
    url: ServerUrl
    """Such as http://127.0.0.1:8000/v1."""
    model: str
    """The model's name on that server."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key, if one is needed."""
    timeout_s: Seconds = 120.0
    """Time limit of a request."""
    trust_remote_code: bool = False
    """Python files in the tokenizer's folder may run, with all that this user may do. Read them first."""


ServingEngine = Annotated[TorchServing | VllmServing | OpenAIServing, Field(discriminator="kind")]


class ServingReplicas(GpuPlace):
    """The replicas of each policy version. Between `least` and `most` there are as many as the load wants."""

    least: PositiveInt = 1
    """Replicas without load."""
    most: PositiveInt = 1
    """Replicas at the highest load."""
    load: PositiveInt | None = None
    """Open calls per replica beyond which another one is started; None means 16."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least={self.least} must not be above most={self.most}")
        if self.load is not None and self.least == self.most:
            raise ValueError(f"load has no effect with least=most={self.most}: raise most, or leave it out")
        return self


class Gateways(Config):
    """The processes that callers talk to. One that dies loses no request that another can answer."""

    count: Annotated[int, Field(ge=2, le=32)] = 2
    """Number of gateways."""
    slots: PositiveInt = 1024
    """Calls that a gateway has answered at once."""
    queue: PositiveInt = 1024
    """Calls that wait for a place in a gateway; further ones are refused with 429."""
    deadline_s: Seconds = 120.0
    """Time for a call from arrival to its last byte."""
    cpus: NonNegative = 0.0
    """CPUs that Ray keeps for each."""
    front: Literal["auto", "haproxy", "none"] = "auto"
    """HAProxy in front of the gateways. `auto`: where its program is found; without it, one gateway holds the port."""


class Recording(Config):
    """The record of what was answered."""

    mode: Literal["before", "after", "off"] = "before"
    """A conversation's call is durable before its last byte leaves (before), soon after it (after), or not recorded.
    Of control policies, acts that name a session are recorded.
    """
    retention_days: Positive = 30.0
    """Sessions and their calls are deleted this long after their last call; their trajectories leave the hub for files
    then, and what points at them stays.
    """
    archive_days: Positive = 90.0
    """The files are deleted this long after that, with all feedback on what was in them."""
    rate: Share = 1.0
    """Share of control sessions whose acts are recorded, by a hash of the session."""
    idle_s: Seconds = 900.0
    """A session without a call for so long is over."""

    @model_validator(mode="after")
    def _check_off(self) -> Self:
        for name in ("retention_days", "archive_days", "rate", "idle_s"):
            if self.mode == "off" and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} has no effect with mode=off: nothing is recorded. Leave it out")
        return self


class Limits(Config):
    """Limits for callers."""

    body_mb: Positive = 10.0
    """Size of a request; a larger one is refused with 413."""
    connections: PositiveInt = 4096
    """Open connections; further ones wait."""


class Tls(Config):
    """A certificate that the front shows to callers. Files of the head's machine, in PEM."""

    certificate: Annotated[str, Field(min_length=1)]
    """With those between it and a root."""
    key: Annotated[str, Field(min_length=1)]
    """Its private key, without a password."""


class ServingExperiment(Root):
    """A whole service: policies behind a name, and how they are reached."""

    kind: Literal["serving"] = "serving"
    endpoint: EndpointName = "policy"
    """The name that callers give as `model`."""
    arms: Annotated[tuple[ServedArm, ...], Field(min_length=1)]
    engine: ServingEngine = TorchServing()
    """Of language policies."""
    replicas: ServingReplicas = ServingReplicas()
    gateways: Gateways = Gateways()
    record: Recording = Recording()
    monitor: Monitoring = Monitoring()
    """Rules that answers and actions meet before they leave; by default secrets of known forms are replaced."""
    rewards: RewardPipeline = RewardPipeline()
    """The judgement of what was served, by `loomrl rewards run`."""
    limits: Limits = Limits()
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address that is listened on; beyond 127.0.0.1 callers need a key."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """0 takes any that is free."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Further names that callers may use for this server, as behind a proxy."""
    origins: tuple[Origin, ...] = ()
    """Web sites whose pages may call (CORS), such as https://chat.example.org; none by default."""
    tls: Tls | None = None
    """HTTPS for callers; null is plain HTTP."""
    keys: Literal["auto", "required"] = "auto"
    """`auto`: callers need a key unless only this machine can reach the server."""

    @model_validator(mode="after")
    def _check_arms(self) -> Self:
        labels = [arm.label for arm in self.arms]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"arms need different names, and {', '.join(twice)} is there twice: give them a name")
        stable = [arm.label for arm in self.arms if arm.role == "stable"]
        if len(stable) != 1:
            found = ", ".join(stable) or "none"
            raise ValueError(f"one stable arm is needed, which answers whatever no other does; there is {found}")
        total = sum(arm.share for arm in self.arms if arm.role != "shadow")
        if not (reaches(total, 1.0) and reaches(1.0, total)):
            raise ValueError(f"the shares of the arms sum to {total:g}, and must sum to 1 (shadows do not count)")
        return self

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if not isinstance(self.engine, OpenAIServing):
            return self
        if len(self.arms) > 1:
            raise ValueError("engine.kind=openai forwards to one model, and there are several arms: leave one")
        if any(arm.follow for arm in self.arms):
            raise ValueError("arms.0.follow has no effect with engine.kind=openai: the server's weights stay its own")
        if self.replicas.gpus:
            raise ValueError(
                "replicas.gpus has no effect with engine.kind=openai: the server has the GPUs. Leave it out"
            )
        return self
