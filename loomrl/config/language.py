"""Settings of language policies and their algorithms: model, sampling, warm start, optimizer."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from loomrl.config.basic import Fraction, NonNegative, Positive, PositiveInt, Seconds, ServerUrl, Share
from loomrl.config.optimizer import Clip, ConstantRate, Schedule
from loomrl.config.weave import Woven
from loomrl.schema import Config

Formats = tuple[str, ...]


class WarmStart(Config):
    """Supervised steps on imperfect demonstrations by the environments' oracles, before reinforcement learning."""

    steps: int = Field(0, ge=0)
    """Number of supervised steps; 0 for none."""
    batch_size: PositiveInt = 128
    """Demonstrations per step."""
    learning_rate: Positive = 1e-3
    """Learning rate of these steps."""
    formats: Formats | Mapping[str, Formats] = ("{work}\n<answer>{answer}</answer>",)
    """Formats of a demonstration's end, in equal shares, with the oracle's `{work}` and `{answer}`. Actions without
    answer tags use the formats with `{action}`, or `{command}` (its last line), if there are any. Or a map from
    family patterns (`Math/calculus.*`) to formats; the first match counts."""
    wrong: Share | Mapping[str, Share] = 0.0
    """Fraction of demonstrations that end with a wrong answer or a random action. Or one per objective of `weave`,
    averaged by a demonstration's preference."""
    again: Share = 0.0
    """Fraction of demonstrations that begin with a wrong answer, where the environment allows another attempt."""
    tasks: PositiveInt | None = None
    """Number of tasks that demonstrations repeat; null takes a new task for each, which is slow for agents,
    and where an environment starts a sandbox or a server.
    """
    failed: Share = 0.1
    """Fraction of demonstrations that may fail, such as by an agent that crashes: they are left out, and logged."""


class Eyes(Config):
    """Vision for a built model: square pictures are cut into patches, several of which become one token."""

    image_size: PositiveInt = 64
    """Width and height in pixels to which every picture is scaled."""
    patch_size: PositiveInt = 8
    """Width of a patch in pixels."""
    shuffle: PositiveInt = 2
    """Patches per side of the square that becomes one token."""
    hidden_size: PositiveInt = 64
    """Width of the vision layers."""
    intermediate_size: PositiveInt = 192
    """Width of the feed-forward parts of the layers."""
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
    """A Llama built from this configuration, for use without downloads."""

    hidden_size: PositiveInt = 128
    """Width of the layers; a multiple of twice the heads."""
    intermediate_size: PositiveInt = 384
    """Width of the feed-forward parts of the layers."""
    layers: PositiveInt = 4
    """Number of layers."""
    heads: PositiveInt = 4
    """Attention heads per layer."""
    vocabulary: int = Field(320, ge=260)
    """Size of the tokenizer's vocabulary, which is fitted to the tasks: bytes, special tokens and frequent
    sequences."""
    vision: Eyes | None = None
    """Vision layers, which make the model an Idefics3; null for none."""

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
    """Scale of the additions: they are multiplied by `alpha / rank`."""
    dropout: Share = 0.0
    """Dropout while demonstrations are imitated (warm start, sft); sampling and reinforcement learning have none."""
    targets: tuple[str, ...] = ()
    """Names of the layers; empty for all linear ones."""


class LanguageModel(Config):
    """The initial weights: a Hugging Face folder or, without a `path`, a small model that is built."""

    path: str | None = None
    """A Hugging Face folder; null builds a model."""
    build: Architecture | None = None
    """The model to build; null builds the default one if there is no `path`."""
    context: PositiveInt = 256
    """Maximum tokens of an episode; longer episodes fail with a context overflow."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format in which learners and engines compute and weights are published. What is trained is float32, as
    are its gradients and AdamW's averages."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Compute layers again for the backward pass, for less memory and more time: but for matrix products and attention
    (selective), or all of them (full)."""
    trust_remote_code: bool = False
    """Allow Python files in the model's folder and a teacher's to run with this user's rights. Read them first."""
    lora: Lora | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.path is not None and self.build is not None:
            raise ValueError("path and build are both given: a model is loaded or built, not both")
        return self


class Sampling(Config):
    """Sampling from the model's distribution."""

    temperature: NonNegative = 1.0
    """Sampling temperature; 0 takes the likeliest token."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the likeliest tokens with this total probability. Recorded log-probabilities are those of the whole
    distribution."""
    max_tokens: PositiveInt = 64
    """Maximum tokens of one action."""
    entropies: bool = False
    """Record the entropy of every token's distribution for the console: four bytes per token, with engine kind torch
    only."""


class KL(Config):
    """A penalty for the KL from the reference policy: the initial policy or a teacher."""

    coefficient: NonNegative = 0.0
    """Weight of the penalty; 0 for none."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimate per token from the log-ratio: the log-ratio itself (k1), half its square (k2), or the unbiased estimate
    that is never negative (k3)."""
    place: Literal["loss", "reward"] = "loss"
    """Where the penalty applies: as a term of the loss, or subtracted from the reward of every token."""
    teacher: str | None = None
    """Hugging Face folder of a teacher, a model of any size with the same tokenizer, that replaces the reference
    policy. With place=reward and estimator=k1 this is on-policy distillation."""
    watch: bool = True
    """Measure the KL on a few samples even if no loss needs it; the learners then keep a copy of the reference
    policy."""

    @model_validator(mode="after")
    def _teacher_is_heard(self) -> Self:
        if self.teacher is not None and not self.coefficient:
            raise ValueError(f"teacher={self.teacher!r} has no effect with coefficient=0: raise it, or leave it out")
        return self


AUTO: Literal["auto"] = "auto"
MOST_TOKENS = 16_384
MOST_ON_GPU = 131_072
"""The most tokens of a forward pass that `auto` chooses."""


class Optimizer(Config):
    """AdamW, the learning rate, and the division of a batch into steps."""

    learning_rate: Positive = 1e-4
    """Learning rate, before the schedule."""
    schedule: Schedule = ConstantRate()
    """The learning rate over the training."""
    weight_decay: NonNegative = 0.0
    """Weight decay of AdamW."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    """Decay of AdamW's averages of the gradient and of its square."""
    states: Literal["float32", "8bit"] = "float32"
    """Number format of these averages: 8bit takes a quarter of the memory, as codes with a scale for every 256 of a row
    or fewer. Averages of vectors and of parameters with fewer than 4096 numbers stay float32."""
    clip_norm: Positive = 1.0
    """Maximum gradient norm; longer gradients are clipped to it."""
    epochs: PositiveInt = 1
    """Passes over an update's samples."""
    minibatches: PositiveInt = 1
    """Optimizer steps per epoch."""
    micro_batch_tokens: PositiveInt | Literal["auto"] = "auto"
    """Maximum tokens of a forward pass, including padding; a step accumulates the gradients of its passes. `auto`: as
    many as fit into the free memory when the run begins, at most 16384, or 131072 on a GPU; the run's record has the
    number. Learners that share rows multiply it."""


class Learners(Config):
    """The learners."""

    count: int = Field(0, ge=0)
    """Remote learners (Ray actors); 0 learns in this process."""
    gpus: Share = 0.0
    """GPUs of each learner."""
    sharding: Literal["replicate", "fsdp"] = "replicate"
    """Every learner holds the whole model (DDP) or a shard of it (FSDP2)."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """Compression of gradients between learners that replicate the model; bf16 needs GPUs."""
    attention: Literal["auto", "flat", "dense"] = "auto"
    """Samples of a forward pass in one row without masks, in which a prompt that several share is read once (flat), or
    in padded rows with masks (dense). `auto`: flat on CPUs; dense on GPUs, where flat has not been run yet, and for
    models that mix tokens otherwise than by attention."""
    sequence_parallel: PositiveInt = 1
    """Learners that share each flat row, with a slice of its tokens each, for rows too long for one: a divisor of
    `count` and of the model's key-value heads. Not run on a GPU yet."""
    compile: bool = False
    """Compile the layers (`torch.compile`), for faster steps after a slow first one. Not run on a GPU yet."""

    @model_validator(mode="after")
    def _shards_need_learners(self) -> Self:
        if self.sharding == "fsdp" and self.count < 2:
            raise ValueError(f"sharding=fsdp needs count of at least 2, got {self.count}")
        if self.sharding == "fsdp" and self.compression != "none":
            raise ValueError(f"compression={self.compression} has no effect with sharding=fsdp: leave it out")
        together = self.sequence_parallel
        if together > 1 and (self.count < together or self.count % together):
            raise ValueError(f"sequence_parallel={together} needs a multiple of it as count, got {self.count}")
        if together > 1 and (self.attention == "dense" or (self.attention == "auto" and self.gpus)):
            raise ValueError(f"sequence_parallel={together} needs attention=flat")
        if self.compile and (not self.gpus or self.attention != "flat" or together > 1):
            raise ValueError("compile=true needs gpus, attention=flat and sequence_parallel=1")
        return self


class LanguageAlgorithm(Config):
    """Settings that all language algorithms share."""

    model: LanguageModel = LanguageModel()
    sampling: Sampling = Sampling()
    warm_start: WarmStart = WarmStart()
    optimizer: Optimizer = Optimizer()
    learners: Learners = Learners()
    reward_clip: tuple[float, float] | None = None
    """Bounds of an attempt's reward in learning; the stored reward is not clipped."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.reward_clip is not None and not self.reward_clip[0] < self.reward_clip[1]:
            raise ValueError(f"reward_clip={self.reward_clip}: the lower bound must be below the upper one")
        return self

    @property
    def objective_names(self) -> tuple[str, ...]:
        """The objectives that a preference weighs; empty with a single reward."""
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
        if lora is not None and lora.dropout and not self.warm_start.steps and not isinstance(self, SFT):
            raise ValueError(
                f"model.lora.dropout={lora.dropout:g} has no effect with warm_start.steps=0: dropout is on while "
                "demonstrations are imitated, and off in what samples and is reinforced. Leave it out"
            )
        return self


class PolicyGradient(LanguageAlgorithm):
    """Settings that the policy gradient algorithms share."""

    surrogate: Literal["clip", "cispo"] = "clip"
    """Treatment of ratios outside the range of `clip`: no gradient (clip), or the ratio is cut to the range and weighs
    the token's gradient (cispo)."""
    ratio: Literal["token", "sequence"] = "token"
    """Ratio of new to old probability per token, or its geometric mean over a thread's tokens (GSPO)."""
    clip: Clip = Clip()
    kl: KL = KL()
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    average: Literal["token", "sequence"] = "token"
    """Unit of equal weight in the loss: a token of a step, or an attempt."""
    importance_cap: Positive | None = 2.0
    """Maximum weight of a token on which learner and engine disagree (truncated importance sampling); null turns it
    off."""
    dynamic_sampling: bool = False
    """Drop groups in which all attempts have the same reward; the metrics count them."""
    cut_off: Literal["learn", "skip"] = "learn"
    """Attempts with an answer cut off at `sampling.max_tokens` or the context: learn from them, or only compare others
    with them (DAPO's overlong filtering)."""
    normalize_advantages: bool = False
    """Normalise advantages over the whole batch to mean 0 and standard deviation 1."""

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
    """Clip range of a value around the old one; null for no clipping."""


Credit = Literal["attempt", "turn"]


class GRPO(PolicyGradient):
    """Advantage = reward minus the group's mean, over its standard deviation (`scale`)."""

    kind: Literal["grpo"] = "grpo"
    scale: bool = True
    """Divide by the standard deviation; false is Dr. GRPO."""
    credit: Credit = "attempt"
    """Reward credited to an answer: all that its attempt earned, or what it earned from this turn on."""


class RLOO(PolicyGradient):
    """Advantage = reward minus the mean of the group's other attempts."""

    kind: Literal["rloo"] = "rloo"
    credit: Credit = "attempt"
    """Reward credited to an answer: all that its attempt earned, or what it earned from this turn on."""


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
    """Strength of the pull to the reference policy."""
    pairs: PositiveInt = 4
    """Maximum pairs per group; in a data set, maximum pairs by reward per prompt."""
    margin: NonNegative = 0.0
    """Minimum difference in reward within a pair."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Assumed share of pairs in the wrong order."""


class KTO(LanguageAlgorithm):
    """Kahneman–Tversky optimisation: single answers that were liked or disliked, against a KL baseline."""

    kind: Literal["kto"] = "kto"
    beta: Positive = 0.1
    """Strength of the pull to the reference policy."""
    feedback: tuple[str, ...] = Field(("thumb", "stars", "outcome"), min_length=1)
    """Kinds of feedback that judge an answer: above 0.5 it is desirable, below undesirable."""
    desirable: Positive = 1.0
    """Weight of desirable answers, in addition to `balance`."""
    undesirable: Positive = 1.0
    """Weight of undesirable answers, in addition to `balance`."""
    balance: bool = True
    """Give desirable and undesirable answers the same total weight."""


class RAFT(LanguageAlgorithm):
    """Imitation of the best answers by reward; the only algorithm for text without token ids."""

    kind: Literal["raft"] = "raft"
    best: Share = 0.5
    """Share of each domain's answers to imitate, the best by reward."""
    min_reward: float | None = None
    """Minimum reward of an answer to imitate."""
    average: Literal["token", "sequence"] = "token"
    """Unit of equal weight in the loss: a token of a step, or an answer."""
    kl: KL = KL(estimator="k2")
    """Penalty for leaving the reference policy. With k2 and coefficient c, no token gains much more than 1 / c nats."""

    @model_validator(mode="after")
    def _leash_in_loss(self) -> Self:
        if self.kl.place != "loss":
            raise ValueError(f"kl.place={self.kl.place} has no effect: nothing is rewarded here. Leave it out")
        return self


class SFT(LanguageAlgorithm):
    """Supervised fine-tuning on conversations: the loss is that of the assistant's tokens alone."""

    kind: Literal["sft"] = "sft"

    @model_validator(mode="after")
    def _nothing_is_rewarded(self) -> Self:
        if self.reward_clip is not None:
            raise ValueError(f"reward_clip={self.reward_clip} has no effect: nothing is rewarded here. Leave it out")
        if self.optimizer.schedule.kind == "adaptive":
            raise ValueError(
                "optimizer.schedule.kind=adaptive follows the KL of an update, which is not measured here: take "
                "constant, linear or cosine"
            )
        return self


class Remote(LanguageAlgorithm):
    """A run whose loop is that of a client of `loomrl serve --train`: on record only, and not to be started."""

    kind: Literal["remote"] = "remote"


class RewardModel(Config):
    """A reward model: a sequence classifier that learns to score the preferred answer of a pair higher
    (Bradley–Terry), from the pairs of dpo."""

    kind: Literal["reward"] = "reward"
    model: LanguageModel
    """Folder to begin with: a language model, which gets a head of one logit, or a classifier with one. Pairs with a
    conversation longer than `context` are left out."""
    learning_rate: Positive = 1e-5
    """Step size of AdamW."""
    together: PositiveInt = 8
    """Pairs that are computed at a time: fewer need less memory, and the result is the same."""
    pairs: PositiveInt = 4
    """Maximum pairs by reward per prompt."""
    margin: NonNegative = 0.0
    """Minimum difference in reward within a pair."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of the training."""

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.model.path is None:
            raise ValueError("model.path=null: name the folder to begin with, a language model or a classifier")
        idle = {
            "dtype": self.model.dtype != "float32",
            "lora": self.model.lora is not None,
            "trust_remote_code": self.model.trust_remote_code,
        }
        for name, given in idle.items():
            if given:
                raise ValueError(f"model.{name} has no effect with kind=reward: leave it out")
        return self


class LanguagePolicy(Config):
    """A trained language model in a Hugging Face folder."""

    kind: Literal["language"] = "language"
    path: str
    """The model's folder."""
    trust_remote_code: bool = False
    """Allow Python files in the folder to run with this user's rights. Read them first."""
    context: PositiveInt = 256
    """Maximum tokens of an episode."""
    sampling: Sampling = Sampling(temperature=0.0)
    version: int = -1
    """Version recorded with the tokens."""


class OpenAIPolicy(Config):
    """A model behind a server with OpenAI's chat completions API; it can be evaluated but not trained."""

    kind: Literal["openai"] = "openai"
    url: ServerUrl
    """The server's URL, such as http://127.0.0.1:8000/v1."""
    model: str
    """The model's name on that server."""
    key_variable: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the API key, if one is needed."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=256)
    timeout_s: Seconds = 120.0
    """Time limit of a request."""


class LanguageWeave(PPO, Woven):
    """PPO over tokens with experts for the policy, critics for the value, and objectives for the reward.

    A preference among the objectives is a line of what the policy reads first, and may be another for every request.
    """

    kind: Literal["weave"] = "weave"  # type: ignore[assignment]
    experts: PositiveInt = 1
    """Number of experts: low-rank changes of the last hidden state whose distributions are mixed token by token."""
    expert_rank: PositiveInt = 8
    """Rank of an expert's change."""
    critics: PositiveInt = 1
    """Number of critics: value heads on the same trunk."""
    shown: dict[str, Formats] = Field({})
    """Formats of demonstrations per objective, instead of `warm_start.formats`; each is used as often as a
    demonstration's preference weighs its objective."""
    baseline: Literal["values", "group"] = "values"
    """Baseline of the advantage: `values` of every objective, or the `group` of attempts with the same task and
    preference. With `group`, the weighted reward is normalised within the group, so that the scales of the
    objectives do not matter; the critics' values are learnt but not used."""
    precision: Positive = 0.1
    """Sampled preferences are multiples of this."""

    @property
    @override
    def objective_names(self) -> tuple[str, ...]:
        return self.tree.names if self.objectives else ()

    @model_validator(mode="after")
    def _check_language(self) -> Self:
        if self.experts > 1 and self.model.lora is not None:
            raise ValueError(f"experts={self.experts} with model.lora: the experts would not be trained. Leave one out")
        if self.experts == 1 and self.expert_rank != type(self).model_fields["expert_rank"].default:
            raise ValueError(f"expert_rank={self.expert_rank} has no effect with experts=1: leave it out")
        if not self.objectives:
            self._refuse_without_objectives("precision", "shown", "baseline")
            return self
        names = self.tree.names
        if self.shown and (self.shown.keys() != {*names} or not all(self.shown.values())):
            some = ", ".join(self.shown)
            raise ValueError(f"shown has formats of {some}: some are needed of each of {', '.join(names)}")
        if not 0.01 <= self.precision <= 0.5:
            raise ValueError(f"precision={self.precision:g}: 0.01 to 0.5; preferences are told in percent")
        idle = {
            "reward_clip": self.reward_clip is not None,
            "dynamic_sampling": self.dynamic_sampling,
            "kl.place=reward": self.kl.coefficient > 0 and self.kl.place == "reward",
        }
        if self.baseline == "group" and (self.critics > 1 or self.normalize_advantages):
            raise ValueError(
                "baseline=group compares with the group alone: several critics and normalize_advantages would have no "
                "effect. Set critics=1 and normalize_advantages=false"
            )
        for name, given in idle.items():
            if given:
                raise ValueError(f"{name} is about one reward, and objectives are several: leave it out")
        return self
