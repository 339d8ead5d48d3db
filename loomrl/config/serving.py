"""The experiment of serving: an endpoint, the policies behind it, and the door in front, as frozen data."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import NonNegative, Positive, PositiveInt, Seconds, Share
from loomrl.config.engine import ServerSettings, VllmSettings
from loomrl.config.monitor import Monitoring
from loomrl.config.placement import GpuResources
from loomrl.config.rewards import RewardPipeline
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
    """The policy: `RUN` (its last version), `RUN/NUMBER`, a model's folder or the folder of an exported control
    policy."""
    name: Name | None = None
    """Name of the arm; null takes its role."""
    role: RoleName = "stable"
    """Role of the arm: `stable` answers all calls that no other arm does; a `shadow`'s answers are recorded but not
    sent."""
    share: Share = 1.0
    """Share of the sessions; for a shadow, the share of which it gets a copy."""
    follow: Literal["newest", "best"] | None = None
    """Switch to each newer or better version of the run `what`, in place and without losing calls."""

    @property
    def label(self) -> str:
        """Its name."""
        return self.name or self.role


class TorchServing(Config):
    """The embedded engine, one per replica."""

    kind: Literal["torch"] = "torch"
    slots: PositiveInt = 64
    """Concurrent calls per replica, or fewer where the memory has room for fewer; others wait."""
    trust_remote_code: bool = False
    """Allow Python files in served folders to run with this user's rights. Read them first."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of the weights."""
    threads: PositiveInt = 1
    """Threads of torch per replica; small models are slower on several."""


class VllmServing(VllmSettings):
    """vLLM, one per replica."""

    kind: Literal["vllm"] = "vllm"
    trust_remote_code: bool = False
    """Allow Python files in served folders to run with this user's rights. Read them first."""


class OpenAIServing(ServerSettings):
    """Replicas that forward to a server with OpenAI's completions API; `what` names the folder of its tokenizer."""

    kind: Literal["openai"] = "openai"
    trust_remote_code: bool = False
    """Allow Python files in the tokenizer's folder to run with this user's rights. Read them first."""


ServingEngine = Annotated[TorchServing | VllmServing | OpenAIServing, Field(discriminator="kind")]


class ServingReplicas(GpuResources):
    """Number of replicas of each policy version, between `least` and `most` according to the load."""

    least: PositiveInt = 1
    """Minimum number of replicas."""
    most: PositiveInt = 1
    """Maximum number of replicas."""
    load: PositiveInt | None = None
    """Open calls per replica above which another one is started; null means 16."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least={self.least} must not be above most={self.most}")
        if self.load is not None and self.least == self.most:
            raise ValueError(f"load has no effect with least=most={self.most}: raise most, or leave it out")
        return self


class Gateways(Config):
    """The processes that callers connect to. Requests of a gateway that dies are answered by another where possible."""

    count: Annotated[int, Field(ge=2, le=32)] = 2
    """Number of gateways."""
    slots: PositiveInt = 1024
    """Concurrent calls per gateway."""
    queue: PositiveInt = 1024
    """Calls that may wait per gateway; further ones are refused with 429."""
    deadline_s: Seconds = 120.0
    """Time limit of a call, from arrival to its last byte."""
    cpus: NonNegative = 0.0
    """CPUs that Ray reserves per gateway."""
    front: Literal["auto", "haproxy", "none"] = "auto"
    """HAProxy in front of the gateways; `auto` uses it if its program is found. Without it, one gateway holds the
    port."""


class RecordingConfig(Config):
    """Recording of answers."""

    mode: Literal["before", "after", "off"] = "before"
    """When a conversation's call is durable: before its last byte leaves (before), soon after (after), or it is not
    recorded (off). For control policies, acts that name a session are recorded."""
    retention_days: Positive = 30.0
    """Days after the last call at which sessions and calls are deleted and their trajectories move from the hub to
    files; references to them stay."""
    archive_days: Positive = 90.0
    """Days after that at which the files are deleted, with all feedback on their trajectories."""
    rate: Share = 1.0
    """Share of control sessions whose acts are recorded, chosen by a hash of the session."""
    idle_s: Seconds = 900.0
    """Time without a call after which a session ends."""

    @model_validator(mode="after")
    def _check_off(self) -> Self:
        for name in ("retention_days", "archive_days", "rate", "idle_s"):
            if self.mode == "off" and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} has no effect with mode=off: nothing is recorded. Leave it out")
        return self


class CallerLimits(Config):
    """Limits for callers."""

    body_mb: Positive = 10.0
    """Maximum size of a request; larger ones are refused with 413."""
    connections: PositiveInt = 4096
    """Maximum open connections; further ones wait."""


class Tls(Config):
    """The front's TLS certificate: PEM files on the head's machine."""

    certificate: Annotated[str, Field(min_length=1)]
    """Certificate file, including intermediate certificates."""
    key: Annotated[str, Field(min_length=1)]
    """Private key file, without a password."""


class ServingExperiment(Root):
    """A service: policies behind an endpoint, and how callers reach them."""

    kind: Literal["serving"] = "serving"
    endpoint: EndpointName = "policy"
    """Name of the endpoint, which callers send as `model`."""
    arms: Annotated[tuple[ServedArm, ...], Field(min_length=1)]
    engine: ServingEngine = TorchServing()
    """The engine of language policies."""
    replicas: ServingReplicas = ServingReplicas()
    gateways: Gateways = Gateways()
    record: RecordingConfig = RecordingConfig()
    monitor: Monitoring = Monitoring()
    """Rules that answers and actions must pass before they leave; by default, secrets of known forms are replaced."""
    rewards: RewardPipeline = RewardPipeline()
    """The reward pipeline for what was served, run by `loomrl rewards run`."""
    limits: CallerLimits = CallerLimits()
    unknown: Literal["refuse", "ignore"] = "refuse"
    """Fields of a request that are unknown or unsupported: `refuse` answers 400, `ignore` leaves them out and names
    them in the header `x-loomrl-ignored`."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address to listen on; beyond 127.0.0.1 callers need a key."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes any free one."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Further host names under which callers reach this server, for example behind a proxy."""
    origins: tuple[Origin, ...] = ()
    """Web sites whose pages may call the service (CORS), such as https://chat.example.org."""
    tls: Tls | None = None
    """HTTPS for callers; null for plain HTTP."""
    keys: Literal["auto", "required"] = "auto"
    """Keys for callers; `auto` requires one unless only this machine can reach the server."""

    @model_validator(mode="after")
    def _check_arms(self) -> Self:
        labels = [arm.label for arm in self.arms]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"arms need different names, and {', '.join(twice)} is there twice: give them a name")
        stable = [arm.label for arm in self.arms if arm.role == "stable"]
        if len(stable) != 1:
            found = ", ".join(stable) or "none"
            raise ValueError(f"exactly one stable arm is needed, for calls that no other arm answers; there is {found}")
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


class RemoteTraining(Root):
    """The service of `loomrl serve --train`: a base that callers train adapters on, each with a loop of their own."""

    name: str = Field("remote", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)
    """Beginning of the names of sessions, and so of the runs that they make."""
    base: Annotated[str, Field(min_length=1)]
    """The base: a model's folder, a GGUF file or `package:NAME`."""
    aliases: tuple[str, ...] = ()
    """Further names by which callers may know it, such as its name on the Hugging Face hub."""
    context: PositiveInt = 4096
    """Maximum tokens of a sequence, or as many as the model has positions for."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the base. What is trained is float32."""
    slots: PositiveInt = 64
    """Sequences that are sampled at once, or fewer where the memory has room for fewer."""
    pass_tokens: PositiveInt = 1024
    """Maximum tokens of a training pass, including padding; one longer sequence is a pass of its own."""
    resident: PositiveInt = 8
    """Trainings in memory, and adapters to sample from; the longest idle ones are read again when they are needed."""
    host: str = "127.0.0.1"
    """Address to serve on; beyond this machine callers need a key with the scope `train`."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port; 0 takes any free one."""
