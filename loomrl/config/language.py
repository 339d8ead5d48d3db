"""Settings of language policies and their algorithms: model, sampling, warm start, optimizer."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import Fraction, NonNegative, Positive, PositiveInt, Seconds, ServerUrl, Share
from loomrl.config.optimizer import Clip, ConstantRate, Schedule
from loomrl.config.warm_start import WarmStart
from loomrl.schema import Config


class Eyes(Config):
    """Vision for a built model: square pictures, cut into patches, several of which become one token."""

    image_size: PositiveInt = 64
    """Pixels; every picture is scaled to it."""
    patch_size: PositiveInt = 8
    """Width of a patch in pixels."""
    shuffle: PositiveInt = 2
    """A square of this many patches per side becomes one token."""
    hidden_size: PositiveInt = 64
    """Width of the vision layers."""
    intermediate_size: PositiveInt = 192
    """Width of their feed-forward parts."""
    layers: PositiveInt = 2
    """Number of vision layers."""
    heads: PositiveInt = 2
    """Attention heads per layer."""

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
        """Image tokens per picture."""
        return int((self.image_size // self.patch_size // self.shuffle) ** 2)


class Architecture(Config):
    """A Llama built from configuration, for use without downloads."""

    hidden_size: PositiveInt = 128
    """Width of the layers; a multiple of twice the heads."""
    intermediate_size: PositiveInt = 384
    """Width of their feed-forward parts."""
    layers: PositiveInt = 4
    """Number of layers."""
    heads: PositiveInt = 4
    """Attention heads per layer."""
    vocabulary: int = Field(320, ge=260)
    """Entries of its own tokenizer, fitted to the tasks: bytes, special tokens, and frequent sequences."""
    vision: Eyes | None = None
    """Makes the model an Idefics3 with vision."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(f"hidden_size={self.hidden_size} must be a multiple of 2 * heads={2 * self.heads}")
        return self


class Lora(Config):
    """Train low-rank additions to the linear layers instead of the weights (`peft`)."""

    rank: PositiveInt = 16
    """Rank of the additions."""
    alpha: PositiveInt = 32
    """The additions are multiplied by `alpha / rank`."""
    dropout: Share = 0.0
    """Dropout during the warm start; sampling and reinforcement learning have none."""
    targets: tuple[str, ...] = ()
    """Names of the layers; empty means all linear ones."""


class LanguageModel(Config):
    """The initial weights: a Hugging Face folder, or, without a `path`, a small built model."""

    path: str | None = None
    """A Hugging Face folder; None builds a model."""
    build: Architecture | None = None
    """None builds the default one if there is no `path`."""
    context: PositiveInt = 256
    """Maximum tokens of an episode; a longer one fails with a context overflow."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the weights."""
    gradient_checkpointing: bool = False
    """Compute activations a second time instead of keeping them: less memory, more time."""
    trust_remote_code: bool = False
    """Python files in the folder (and in a teacher's) may run, with all that this user may do. Read them first."""
    lora: Lora | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.path is not None and self.build is not None:
            raise ValueError("path and build are both given: a model is loaded or built, not both")
        return self


class Sampling(Config):
    """Sampling from the model's distribution."""

    temperature: NonNegative = 1.0
    """0 takes the likeliest token."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the likeliest tokens with this total probability. Log-probabilities stay those of the whole
    distribution.
    """
    max_tokens: PositiveInt = 64
    """Maximum tokens of one action."""
    entropies: bool = False
    """Record the entropy of the distribution behind every token, for the console. Four bytes a token; kind=torch."""


class KL(Config):
    """A penalty for the KL from the reference policy: that with which reinforcement learning began, or a teacher."""

    coefficient: NonNegative = 0.0
    """Weight of the penalty; 0 is none."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimate per token from the log-ratio: itself (k1), half its square (k2), or the unbiased one that is never
    negative (k3).
    """
    place: Literal["loss", "reward"] = "loss"
    """As a term of the loss, or subtracted from the reward of every token."""
    teacher: str | None = None
    """A Hugging Face folder with the same tokenizer, of any size, as the reference policy: with place=reward and
    estimator=k1 the policy learns from the teacher's log-probabilities of what it sampled itself (on-policy
    distillation).
    """
    watch: bool = True
    """Measure it on a few samples even if no loss needs it. The learners keep a copy of the reference policy."""

    @model_validator(mode="after")
    def _teacher_is_heard(self) -> Self:
        if self.teacher is not None and not self.coefficient:
            raise ValueError(f"teacher={self.teacher!r} has no effect with coefficient=0: raise it, or leave it out")
        return self


class Optimizer(Config):
    """AdamW, its learning rate, and the division of a batch into steps."""

    learning_rate: Positive = 1e-4
    """Learning rate, before the schedule."""
    schedule: Schedule = ConstantRate()
    """The learning rate over the training."""
    weight_decay: NonNegative = 0.0
    """Weight decay of AdamW."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    """Decay of AdamW's averages of the gradient and of its square."""
    clip_norm: Positive = 1.0
    """Longer gradients are clipped to this norm."""
    epochs: PositiveInt = 1
    """Passes over an update's samples."""
    minibatches: PositiveInt = 1
    """Optimizer steps per epoch."""
    micro_batch_tokens: PositiveInt = 16_384
    """Maximum tokens of a forward pass, padding included; a step accumulates the gradients of its passes."""


class Learners(Config):
    """The learners."""

    count: int = Field(0, ge=0)
    """Remote learners (Ray actors); 0 learns in this process."""
    gpus: Share = 0.0
    """GPUs of each learner."""
    sharding: Literal["replicate", "fsdp"] = "replicate"
    """Every learner holds the whole model (DDP), or a shard of it (FSDP2)."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """Compression of gradients between learners that replicate; bf16 needs GPUs."""

    @model_validator(mode="after")
    def _shards_need_learners(self) -> Self:
        if self.sharding == "fsdp" and self.count < 2:
            raise ValueError(f"sharding=fsdp needs count of at least 2, got {self.count}")
        if self.sharding == "fsdp" and self.compression != "none":
            raise ValueError(f"compression={self.compression} has no effect with sharding=fsdp: leave it out")
        return self


class LanguageAlgorithm(Config):
    """Settings that all language algorithms share."""

    model: LanguageModel = LanguageModel()
    sampling: Sampling = Sampling()
    warm_start: WarmStart = WarmStart()
    optimizer: Optimizer = Optimizer()
    learners: Learners = Learners()
    reward_clip: tuple[float, float] | None = None
    """Bounds of an attempt's reward for learning; the stored reward stays unclipped."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.reward_clip is not None and not self.reward_clip[0] < self.reward_clip[1]:
            raise ValueError(f"reward_clip={self.reward_clip}: the lower bound must be below the upper one")
        return self

    @property
    def objective_names(self) -> tuple[str, ...]:
        """What a preference weighs; empty where there is one reward."""
        return ()

    @model_validator(mode="after")
    def _wrong_is_of_objectives(self) -> Self:
        wrong = self.warm_start.wrong
        if isinstance(wrong, Mapping) and {*wrong} != {*self.objective_names}:
            known = ", ".join(self.objective_names) or "none"
            raise ValueError(f"warm_start.wrong is of {', '.join(wrong)}, objectives are {known}: give each a share")
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
    """Settings that the policy gradient algorithms share."""

    surrogate: Literal["clip", "cispo"] = "clip"
    """What becomes of ratios outside the range of `clip`: no gradient, or (cispo) they are cut to the range, and every
    token teaches with the ratio as its weight.
    """
    ratio: Literal["token", "sequence"] = "token"
    """The ratio of each token's new probability to the old one, or its geometric mean over a thread's tokens (GSPO)."""
    clip: Clip = Clip()
    kl: KL = KL()
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    average: Literal["token", "sequence"] = "token"
    """Equal weights in the loss: per token of a step, or per attempt."""
    importance_cap: Positive | None = 2.0
    """Truncated importance sampling: the maximum weight of a token on which learner and engine disagree. None: off."""
    dynamic_sampling: bool = False
    """Drop groups in which all attempts have the same reward; they are counted."""
    cut_off: Literal["learn", "skip"] = "learn"
    """Attempts with an answer that was cut off, at `sampling.max_tokens` or at the context: learn from them as from
    others, or only compare others with them (DAPO's overlong filtering).
    """
    normalize_advantages: bool = False
    """Over the whole batch, to mean 0 and standard deviation 1."""

    @model_validator(mode="after")
    def _ratios_have_an_effect(self) -> Self:
        chosen = f"surrogate={self.surrogate}" if self.surrogate != "clip" else f"ratio={self.ratio}"
        if chosen != "ratio=token" and self.optimizer.epochs * self.optimizer.minibatches == 1:
            raise ValueError(
                f"{chosen} has no effect with optimizer.epochs=1 and minibatches=1: the ratio is 1 in an only step. "
                "Raise one of them, or leave it out"
            )
        if self.surrogate == "cispo" and self.clip.dual is not None:
            raise ValueError(
                f"clip.dual={self.clip.dual:g} has no effect with surrogate=cispo, whose weights are bounded"
            )
        return self


class PPO(PolicyGradient):
    """Proximal policy optimisation with a value head and token-level GAE across turns."""

    kind: Literal["ppo"] = "ppo"
    normalize_advantages: bool = True
    gamma: Share = 1.0
    """Discount of later rewards, per token."""
    gae_lambda: Share = 0.95
    """Decay of GAE: 0 trusts the value function, 1 the returns."""
    value_coefficient: NonNegative = 0.5
    """Weight of the value loss."""
    value_clip: Positive | None = 0.2
    """Clip range of a value around the old one; None: unlimited."""


Credit = Literal["attempt", "turn"]


class GRPO(PolicyGradient):
    """Advantage = reward minus the group's mean, over its standard deviation (`scale`)."""

    kind: Literal["grpo"] = "grpo"
    scale: bool = True
    """False omits the standard deviation (Dr. GRPO)."""
    credit: Credit = "attempt"
    """What an answer is compared by: all that its attempt earned, or what it earned from this turn on."""


class RLOO(PolicyGradient):
    """Advantage = reward minus the mean of the group's other attempts."""

    kind: Literal["rloo"] = "rloo"
    credit: Credit = "attempt"
    """What an answer is compared by: all that its attempt earned, or what it earned from this turn on."""


class Reinforce(PolicyGradient):
    """REINFORCE++: reward including the KL, normalised over the whole batch."""

    kind: Literal["reinforce"] = "reinforce"
    normalize_advantages: bool = True
    gamma: Share = 1.0
    """Discount of later rewards, per token."""


class DPO(LanguageAlgorithm):
    """Direct preference optimisation: in every group the best attempts are preferred to the worst.

    From a data set: of a choice the chosen answer, a correction to what it corrects, and of answers to the same prompt
    the one of the higher reward.
    """

    kind: Literal["dpo"] = "dpo"
    beta: Positive = 0.1
    """Strength of the leash to the reference policy."""
    pairs: PositiveInt = 4
    """Maximum pairs per group; from a data set, by reward, per prompt."""
    margin: NonNegative = 0.0
    """Minimum difference in reward between the two of a pair."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Assumed share of pairs that are the wrong way round."""


class KTO(LanguageAlgorithm):
    """Kahneman–Tversky optimisation: answers that were liked or disliked, each by itself, against a KL baseline."""

    kind: Literal["kto"] = "kto"
    beta: Positive = 0.1
    """Strength of the leash to the reference policy."""
    feedback: tuple[str, ...] = Field(("thumb", "stars", "outcome"), min_length=1)
    """Kinds of feedback that judge an answer: it is desirable above 0.5, and undesirable below."""
    desirable: Positive = 1.0
    """Weight of desirable answers, beside `balance`."""
    undesirable: Positive = 1.0
    """Weight of undesirable answers, beside `balance`."""
    balance: bool = True
    """Both sides count alike in all, however rare one is."""


class RAFT(LanguageAlgorithm):
    """Imitation of the best answers, by reward: all that text can teach of which nobody has the ids."""

    kind: Literal["raft"] = "raft"
    best: Share = 0.5
    """Share of each domain that is imitated, by reward."""
    min_reward: float | None = None
    """Nothing below it is imitated, even if it is of the best."""
    average: Literal["token", "sequence"] = "token"
    """Equal weights in the loss: per token of a step, or per answer."""
    kl: KL = KL(estimator="k2")
    """A leash to the reference policy. By k2 with coefficient c, no token becomes likelier by much over 1 / c nats."""

    @model_validator(mode="after")
    def _leash_in_loss(self) -> Self:
        if self.kl.place != "loss":
            raise ValueError(f"kl.place={self.kl.place} has no effect: nothing is rewarded here. Leave it out")
        return self


class LanguagePolicy(Config):
    """A trained language model, from its Hugging Face folder."""

    kind: Literal["language"] = "language"
    path: str
    """Its folder."""
    trust_remote_code: bool = False
    """Python files in the folder may run, with all that this user may do. Read them first."""
    context: PositiveInt = 256
    """Maximum tokens of an episode."""
    sampling: Sampling = Sampling(temperature=0.0)
    version: int = -1
    """The version recorded with its tokens."""


class OpenAIPolicy(Config):
    """A model behind a server that speaks OpenAI's chat completions. It can be evaluated, not trained."""

    kind: Literal["openai"] = "openai"
    url: ServerUrl
    """Such as http://127.0.0.1:8000/v1."""
    model: str
    """The model's name on that server."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key, if one is needed."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=256)
    timeout_s: Seconds = 120.0
    """Time limit of a request."""
