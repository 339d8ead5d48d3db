"""How a language policy is made and taught: model, engine sampling, warm start, algorithm. Parameters as data."""

from typing import Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import Fraction, NonNegative, Positive, PositiveInt, Seconds, ServerUrl, Share
from loomrl.config.optimizer import Clip, ConstantRate, Schedule
from loomrl.schema import Config


class Eyes(Config):
    """Vision for a model that is built: square pictures, cut into patches, of which several become one token."""

    image_size: PositiveInt = 64
    """Pixels; every picture is scaled to it."""
    patch_size: PositiveInt = 8
    shuffle: PositiveInt = 2
    """So many patches by so many become one token."""
    hidden_size: PositiveInt = 64
    intermediate_size: PositiveInt = 192
    layers: PositiveInt = 2
    heads: PositiveInt = 2

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.image_size % (self.patch_size * self.shuffle):
            raise ValueError(
                f"image_size={self.image_size} must be a multiple of patch_size * shuffle="
                f"{self.patch_size * self.shuffle}"
            )
        if self.hidden_size % self.heads:
            raise ValueError(f"hidden_size={self.hidden_size} must be a multiple of heads={self.heads}")
        return self

    @property
    def tokens(self) -> int:
        """Image tokens of a picture."""
        return int((self.image_size // self.patch_size // self.shuffle) ** 2)


class Architecture(Config):
    """A Llama built from configuration, for where nothing can be downloaded."""

    hidden_size: PositiveInt = 128
    intermediate_size: PositiveInt = 384
    layers: PositiveInt = 4
    heads: PositiveInt = 4
    vocabulary: int = Field(320, ge=260)
    """Entries of its own tokenizer, learnt from the tasks: bytes, special tokens, and what occurs together."""
    vision: Eyes | None = None
    """With it the model is an Idefics3, which sees pictures."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(f"hidden_size={self.hidden_size} must be a multiple of 2 * heads={2 * self.heads}")
        return self


class Lora(Config):
    """Train low-rank additions to the linear layers instead of the weights (`peft`)."""

    rank: PositiveInt = 16
    alpha: PositiveInt = 32
    dropout: Share = 0.0
    """While demonstrations are imitated; what samples, and is reinforced, has none."""
    targets: tuple[str, ...] = ()
    """Names of the layers; empty means all linear ones."""


class LanguageModel(Config):
    """The weights to begin with: a Hugging Face folder, or, without a `path`, a small model that is built."""

    path: str | None = None
    build: Architecture | None = None
    """None builds the default one where there is no `path`."""
    context: PositiveInt = 256
    """Tokens of a whole episode at most; one that outgrows them fails as a context overflow."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    lora: Lora | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.path is not None and self.build is not None:
            raise ValueError("path and build are both given: a model is loaded or built, not both")
        return self


class Sampling(Config):
    """How a token is drawn from the model's distribution."""

    temperature: NonNegative = 1.0
    """0 takes the likeliest token."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Draw from the likeliest tokens that hold this share. Log-probabilities stay those of the whole distribution."""
    max_tokens: PositiveInt = 64
    """Of one action."""


class WarmStart(Config):
    """Supervised steps on demonstrations of the environments' oracles, openly imperfect, before reinforcement."""

    steps: int = Field(0, ge=0)
    batch_size: PositiveInt = 128
    learning_rate: Positive = 1e-3
    formats: tuple[str, ...] = ("{work}\n<answer>{answer}</answer>",)
    """Ways in which demonstrations end, in equal shares; `{work}` and `{answer}` are the oracle's."""
    wrong: Share = 0.0
    """Share of answers that are wrong, and of other actions that are taken without skill and end the demonstration."""


class KL(Config):
    """A leash to the policy with which reinforcement began."""

    coefficient: NonNegative = 0.0
    estimator: Literal["k1", "k2", "k3"] = "k3"
    place: Literal["loss", "reward"] = "loss"
    watch: bool = True
    """Measure it on some samples also where nothing else needs it. The learners keep a copy of the first policy."""


class Optimizer(Config):
    """AdamW, its learning rate, and how a batch becomes steps."""

    learning_rate: Positive = 1e-4
    schedule: Schedule = ConstantRate()
    weight_decay: NonNegative = 0.0
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    clip_norm: Positive = 1.0
    """Gradients longer than this are shortened to it."""
    epochs: PositiveInt = 1
    """How often an update goes through its samples."""
    minibatches: PositiveInt = 1
    """Optimizer steps per epoch."""
    micro_batch_tokens: PositiveInt = 16_384
    """Tokens in one forward pass at most, padding included; gradients are accumulated over the passes of a step."""


class Learners(Config):
    """Where gradients are computed."""

    count: int = Field(0, ge=0)
    """Remote learners (Ray actors); 0 learns in this process."""
    gpus: Share = 0.0
    """Of each learner."""
    sharding: Literal["replicate", "fsdp"] = "replicate"
    """Every learner holds the whole model (DDP), or a shard of it (FSDP2)."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """How gradients are made smaller on their way between learners that replicate; bf16 needs GPUs."""

    @model_validator(mode="after")
    def _shards_need_learners(self) -> Self:
        if self.sharding == "fsdp" and self.count < 2:
            raise ValueError(f"sharding=fsdp needs count of at least 2, got {self.count}")
        if self.sharding == "fsdp" and self.compression != "none":
            raise ValueError(f"compression={self.compression} has no effect with sharding=fsdp: leave it out")
        return self


class LanguageAlgorithm(Config):
    """What every algorithm over token policies has."""

    model: LanguageModel = LanguageModel()
    sampling: Sampling = Sampling()
    warm_start: WarmStart = WarmStart()
    optimizer: Optimizer = Optimizer()
    learners: Learners = Learners()
    reward_clip: tuple[float, float] | None = None
    """Bounds of what one attempt can earn as far as learning is concerned; what is stored stays unclipped."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.reward_clip is not None and not self.reward_clip[0] < self.reward_clip[1]:
            raise ValueError(f"reward_clip={self.reward_clip}: the lower bound must be below the upper one")
        return self

    @model_validator(mode="after")
    def _dropout_has_demonstrations(self) -> Self:
        lora = self.model.lora
        if lora is not None and lora.dropout and not self.warm_start.steps:
            raise ValueError(
                f"model.lora.dropout={lora.dropout:g} has no effect with warm_start.steps=0: dropout is on while "
                "demonstrations are imitated, and off in what samples and is reinforced. Leave it out"
            )
        return self


class PolicyGradient(LanguageAlgorithm):
    """What the algorithms that follow a policy gradient share."""

    clip: Clip = Clip()
    kl: KL = KL()
    entropy_coefficient: float = 0.0
    average: Literal["token", "sequence"] = "token"
    """What weighs the same in the loss: every token of a step, or every attempt."""
    importance_cap: Positive | None = 2.0
    """Truncated importance sampling: the most that a token counts for which learner and engine disagree. None: off."""
    dynamic_sampling: bool = False
    """Drop groups in which all attempts earned the same; they are counted."""
    normalize_advantages: bool = False
    """Over the whole batch, to mean 0 and deviation 1."""


class PPO(PolicyGradient):
    """Proximal policy optimisation with a value head and token-level GAE across turns."""

    kind: Literal["ppo"] = "ppo"
    normalize_advantages: bool = True
    gamma: Share = 1.0
    gae_lambda: Share = 0.95
    value_coefficient: NonNegative = 0.5
    value_clip: Positive | None = 0.2
    """How far a value may leave the one it was collected with before it stops teaching; None: anywhere."""


class GRPO(PolicyGradient):
    """Advantage = reward minus the group's mean, over its deviation (`scale`)."""

    kind: Literal["grpo"] = "grpo"
    scale: bool = True
    """False leaves the deviation out (Dr. GRPO)."""


class RLOO(PolicyGradient):
    """Advantage = reward minus the mean of the siblings."""

    kind: Literal["rloo"] = "rloo"


class Reinforce(PolicyGradient):
    """REINFORCE++: reward with the KL in it, normalised over the whole batch."""

    kind: Literal["reinforce"] = "reinforce"
    normalize_advantages: bool = True
    gamma: Share = 1.0


class DPO(LanguageAlgorithm):
    """Direct preference optimisation: in every group the best attempts are preferred to the worst."""

    kind: Literal["dpo"] = "dpo"
    beta: Positive = 0.1
    pairs: PositiveInt = 4
    """Of one group at most."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)


class LanguagePolicy(Config):
    """A trained language model, from its Hugging Face folder."""

    kind: Literal["language"] = "language"
    path: str
    context: PositiveInt = 256
    sampling: Sampling = Sampling(temperature=0.0)
    version: int = -1
    """What its tokens say they come from."""


class OpenAIPolicy(Config):
    """A model behind a server that speaks OpenAI's chat completions. It can be judged, not trained."""

    kind: Literal["openai"] = "openai"
    url: ServerUrl
    """Such as http://127.0.0.1:8000/v1."""
    model: str
    """By its name there."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key, if one is needed."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=256)
    timeout_s: Seconds = 120.0
