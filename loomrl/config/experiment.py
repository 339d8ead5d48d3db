"""The Experiment of language policies: one whole run as frozen data, for Python, command line, Tune and jobs alike."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from loomrl.config.basic import EntryPoint, Fraction, Level, PathText, PositiveInt, Seconds, Share
from loomrl.config.engine import EngineChoice, TorchEngineConfig, VllmEngineConfig
from loomrl.config.evaluation import EvaluationConfig, Patience
from loomrl.config.language import (
    DPO,
    GRPO,
    KL,
    KTO,
    PPO,
    RAFT,
    RLOO,
    SFT,
    LanguageAlgorithm,
    LanguagePolicy,
    LanguageWeave,
    OpenAIPolicy,
    PolicyGradient,
    Reinforce,
    Remote,
    RewardModel,
)
from loomrl.config.placement import ProcessResources, refuse_empty
from loomrl.config.rewards import RewardConfig
from loomrl.config.root import CustomAlgorithm, Records, Training
from loomrl.errors import ConfigError
from loomrl.schema import Config
from loomrl.threshold import reaches


def _zoned(moment: datetime) -> datetime:
    """Without a time zone it is UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


Moment = Annotated[datetime, AfterValidator(_zoned)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]


class DataSelection(Config):
    """The selection of trajectories for a data set. Bounds are inclusive; null bounds nothing."""

    name: Name | None = None
    """Prefix of the data set's id; null takes the first endpoint or agent."""
    endpoints: tuple[str, ...] = ()
    """Endpoints whose sessions are selected."""
    agents: tuple[str, ...] = ()
    """External agents whose trajectories are selected; text only."""
    sources: tuple[Literal["production", "foreign"], ...] = ()
    """`production`: served here; `foreign`: from external agents. Empty selects both."""
    domains: tuple[str, ...] = ()
    """Task types, such as "coding" or "calculus.*"; empty selects all."""
    since: Moment | None = None
    """Earliest end of a trajectory, such as 2026-07-01 or 2026-07-01T08:00:00Z."""
    until: Moment | None = None
    """Latest end of a trajectory."""
    max_turns: PositiveInt | None = None
    """Maximum number of turns."""
    max_characters: PositiveInt | None = None
    """Maximum characters of all messages and answers together."""
    min_reward: float | None = None
    """Minimum of the latest reward; trajectories without a reward are left out."""
    max_reward: float | None = None
    """Maximum of the latest reward; trajectories without a reward are left out."""
    min_confidence: Share | None = None
    """Minimum confidence of the latest reward; trajectories without a reward are left out."""
    without: tuple[str, ...] = ()
    """Ids of trajectories to leave out."""
    parent: str | None = None
    """The policy to be trained (`RUN/12` or a model's folder); data on which it or an ancestor was trained is left out.
    Null means the stable policy of the first endpoint."""
    balance: Literal["none", "domain"] = "none"
    """`domain`: equal numbers from every domain; with a `limit`, rare domains contribute all they have."""
    limit: PositiveInt | None = None
    """Maximum number of trajectories to train on; the latest are taken."""
    holdout: Fraction = 0.1
    """Share of the prompts that is never trained on, chosen by a fixed hash."""
    suite: str | None = None
    """A gate suite whose prompts are left out: a file or the name of a shipped suite."""
    ngram: PositiveInt = 13
    """Length of a word sequence which, shared with a prompt of the suite that it identifies, excludes a trajectory."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not (self.endpoints or self.agents):
            raise ValueError("name an endpoint or an agent: endpoints=[assistant]")
        for low, high in (("since", "until"), ("min_reward", "max_reward")):
            first, last = getattr(self, low), getattr(self, high)
            if first is not None and last is not None and first > last:
                raise ValueError(f"{low}={first} is above {high}={last}")
        return self


class DatasetConfig(Config):
    """Data to learn from instead of rollouts: a frozen data set or, for sft, a file of conversations."""

    dataset: str | None = None
    """Id of the data set, or a name for the newest of that name."""
    file: PathText | None = None
    """JSON lines of conversations for sft: `messages` (and `tools`) in OpenAI's form, or `prompt` and `completion`."""
    held_out: Share | None = None
    """Share of `file` that sft never learns from, for the held-out loss, chosen by a fixed hash of what is asked; null
    means 0.1. A data set has a `holdout` of its own."""
    held_out_file: PathText | None = None
    """Another file of conversations for the held-out loss, instead of a share."""
    batch: PositiveInt = 64
    """Trajectories per update; for dpo, pairs; for sft, conversations."""
    epochs: PositiveInt = 1
    """Passes over the data; `train.updates` may end the run earlier."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.dataset is None) == (self.file is None):
            raise ValueError(f"dataset={self.dataset!r} and file={self.file!r}: give one of them")
        for name in ("held_out", "held_out_file"):
            if self.file is None and (given := getattr(self, name)) is not None:
                raise ValueError(f"{name}={given} has no effect: data set {self.dataset} has a holdout of its own")
        if self.held_out is not None and self.held_out_file is not None:
            raise ValueError(f"held_out={self.held_out} and held_out_file={self.held_out_file}: give one of them")
        return self

    @property
    def origin(self) -> str:
        """The setting that names the data, for messages."""
        return f"data.file={self.file}" if self.dataset is None else f"data.dataset={self.dataset}"


class QuarantineConfig(Config):
    """Quarantine for task families whose environment keeps failing; the policy's failures do not count."""

    window: PositiveInt = 32
    """Number of a family's latest attempts to consider."""
    share: float = Field(0.5, gt=0, le=1)
    """Share of failed attempts in the window that leads to quarantine."""
    probation: PositiveInt = 20
    """Updates until a family is retried; doubled after each relapse."""


class ReplayConfig(Config):
    """Experience replay: updates also learn from groups that earlier updates used.

    They are drawn evenly, and weighed by the log-probabilities with which they were sampled.
    """

    groups: PositiveInt = 8
    """Number of replayed groups per update, in addition to fresh ones."""
    max_age: PositiveInt = 4
    """Maximum age, in policy versions, of the oldest token of a replayed group."""

    def check_promise(self, *, max_staleness: int, fresh: int) -> None:
        """A ConfigError if the bound leaves nothing to replay, or less than was asked for."""
        if self.max_age <= max_staleness:
            raise ConfigError(
                f"rollout.replay.max_age={self.max_age}, but hub.max_staleness={max_staleness} lets a group be that "
                "old when it is first learnt from, and it is older when it is again: set max_age="
                f"{max_staleness + 1} or more"
            )
        if self.groups > fresh * self.max_age:
            raise ConfigError(
                f"rollout.replay.groups={self.groups}: {self.max_age} updates (max_age) of {fresh} fresh groups "
                f"(rollout.groups_per_update) are {fresh * self.max_age}. Lower it, or raise one of them"
            )

    def check_algorithm(self, algorithm: PolicyGradient | DPO | KTO | RAFT | SFT | Remote) -> None:
        """A ConfigError for an algorithm that cannot learn from tokens of older policies."""
        if not isinstance(algorithm, PolicyGradient):
            raise ConfigError(
                f"rollout.replay with algorithm.kind={algorithm.kind}, which does not weigh tokens by the policy that "
                "sampled them: leave it out, or take ppo, grpo, rloo or reinforce"
            )
        if isinstance(algorithm, LanguageWeave):
            raise ConfigError(
                "rollout.replay with algorithm.kind=weave, which trusts critics by their errors on attempts that none "
                "has learnt from: leave it out, or take ppo"
            )
        if algorithm.importance_cap is None:
            raise ConfigError(
                "rollout.replay, but algorithm.importance_cap is null, so nothing corrects for tokens of older "
                "policies: set it to 2.0"
            )
        leash = algorithm.kl
        if leash.coefficient and leash.place == "loss" and leash.estimator != "k2":
            raise ConfigError(
                f"rollout.replay with algorithm.kl.estimator={leash.estimator} and place=loss, which is for tokens "
                "that the present policy sampled: of older ones its pull has no bound. Set estimator=k2, or "
                "place=reward"
            )


class TurnLimit(Config):
    """A limit on an attempt's turns that rises to the environment's `max_steps` (ScalingInter-RL).

    Evaluations always have all turns.
    """

    first: PositiveInt = 2
    """Initial limit."""
    more: PositiveInt = 2
    """Turns added by each rise."""
    every: PositiveInt = 10
    """Updates between rises."""

    def after(self, updates: int) -> int:
        """The limit when so many updates are done."""
        return self.first + self.more * (updates // self.every)


class RolloutConfig(Config):
    """Collection of attempts."""

    runners: int = Field(0, ge=0)
    """Ray actors that host episodes; 0 keeps them in this process."""
    concurrency: PositiveInt = 64
    """Concurrent episodes per runner."""
    group_size: PositiveInt = 8
    """Attempts at each task."""
    groups_per_update: PositiveInt = 8
    """Fresh groups per update."""
    replay: ReplayConfig | None = None
    """Replay of groups from earlier updates; null for none."""
    publish_every: PositiveInt = 1
    """Updates between publications of new weights to the engines."""
    turn_limit: TurnLimit | None = None
    """Rising limit on turns; null allows all turns from the beginning."""
    turn_timeout_s: Seconds = 60.0
    """Time limit for an action, and for an environment's answer to it. Time in which the engine works for other
    attempts does not count."""
    episode_timeout_s: Seconds = 600.0
    """Time limit for a whole episode, counted likewise."""
    quarantine: QuarantineConfig = QuarantineConfig()


class EnvironmentConfig(Config):
    """One environment of the run, with its share of the tasks."""

    id: str
    """A registered name (see `loomrl envs list`) or `package.module:Class`."""
    version: str | None = None
    """Version of the environment; null takes the newest registered one. The resolved version is recorded with the
    run."""
    families: tuple[str, ...] = ()
    """Task families to draw from; empty for all."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The environment's own settings."""
    weight: float = Field(1.0, gt=0)
    """Weight of the environment in the mix of tasks, relative to the others."""
    min_share: Share = 0.0
    """Minimum share of the tasks, regardless of the curriculum."""


class FixedCurriculum(Config):
    """Every task at one level, families in equal shares."""

    kind: Literal["fixed"] = "fixed"
    level: Level = 1
    """Level of every task."""


class _RisingCurriculum(Config):
    """From one level to another."""

    first_level: Level = 1
    """Lowest level."""
    last_level: Level = 10
    """Highest level."""
    start_level: Level | None = None
    """Initial level; null means `first_level`."""
    replay: Share = 0.1
    """Share of tasks from lower levels."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.first_level > self.last_level:
            raise ValueError(f"first_level={self.first_level} is above last_level={self.last_level}")
        if not self.first_level <= self.begin <= self.last_level:
            raise ValueError(f"start_level={self.start_level} is not in {self.first_level} to {self.last_level}")
        return self

    @property
    def begin(self) -> int:
        """The initial level."""
        return self.first_level if self.start_level is None else self.start_level


class AdaptiveCurriculum(_RisingCurriculum):
    """Levels follow success within a family; the most learnable families are drawn more often."""

    kind: Literal["adaptive"] = "adaptive"
    target: float = Field(0.5, gt=0, lt=1)
    """Target success; the level rises above it and falls below it."""
    eta: float = Field(0.5, gt=0)
    """Maximum change of the level per update."""
    alpha: float = Field(2.0, gt=0)
    """Sensitivity of the level to success off target."""
    floor: float = Field(0.05, gt=0, le=1)
    """Minimum learnability of a family, so that every family keeps being drawn."""
    memory: float = Field(0.9, ge=0, lt=1)
    """Share of a family's estimate that persists through an update without its tasks."""


class Threshold(Config):
    """The mean success that ends a stage."""

    success: float = Field(0.8, gt=0, le=1)
    """Mean success to reach."""
    attempts: PositiveInt = 64
    """Number of latest attempts over which the mean is taken."""


class ProgressiveCurriculum(_RisingCurriculum):
    """Every family rises one level once it passes the threshold; levels never fall."""

    kind: Literal["progressive"] = "progressive"
    threshold: Threshold = Threshold(attempts=32)
    """Threshold that a family must pass at its level."""


class CurriculumStage(Config):
    """A named stage: its families ("Math/algebra.*"), its levels, and the threshold for the next stage."""

    name: str
    """Name of the stage in logs."""
    families: tuple[str, ...] = Field(("*",), min_length=1)
    """Patterns of the families whose tasks are drawn."""
    curriculum: Annotated[FixedCurriculum | ProgressiveCurriculum | AdaptiveCurriculum, Field(discriminator="kind")] = (
        FixedCurriculum()
    )
    """Curriculum of levels within the stage."""
    threshold: Threshold = Threshold()


class StagedCurriculum(Config):
    """Stages in order; the last one remains."""

    kind: Literal["staged"] = "staged"
    stages: tuple[CurriculumStage, ...] = Field(min_length=1)


Curriculum = Annotated[
    FixedCurriculum | ProgressiveCurriculum | AdaptiveCurriculum | StagedCurriculum, Field(discriminator="kind")
]


class ScriptedPolicy(Config):
    """A policy without weights: the environment's oracle, or one of the checker's unskilled policies."""

    kind: Literal["oracle", "random", "constant"] = "oracle"


class CustomPolicy(Config):
    """`entry_point` names a callable that takes `settings` as keywords and returns a policy."""

    kind: Literal["custom"] = "custom"
    entry_point: EntryPoint
    """The callable as `package.module:name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the callable."""


PolicyChoice = Annotated[ScriptedPolicy | CustomPolicy | LanguagePolicy | OpenAIPolicy, Field(discriminator="kind")]


Algorithm = Annotated[
    PPO | GRPO | RLOO | Reinforce | LanguageWeave | DPO | KTO | RAFT | SFT | Remote | RewardModel | CustomAlgorithm,
    Field(discriminator="kind"),
]


class HubConfig(Config):
    """Guarantees of the trajectory queue."""

    max_staleness: int = Field(0, ge=0)
    """Maximum age, in policy versions, of a group's oldest token when the group is trained on. Below
    `rollout.publish_every`, rollouts and learning alternate; otherwise they overlap."""
    quorum: float = Field(0.5, gt=0, le=1)
    """Share of a group's attempts that must not have failed when the group completes or times out."""
    group_timeout_s: Seconds = 600.0
    """Time after which `quorum` decides about an incomplete group."""
    lease_s: Seconds = 600.0
    """Time after which an unacknowledged lease expires and its groups are handed out again."""
    shards: PositiveInt = 1
    """Number of databases over which the hub is divided."""


class TrainConfig(Records):
    """Length of the training, checkpoints and logs."""

    updates: PositiveInt = 20
    """Number of updates, unless a stopping rule ends the run earlier."""
    stop: Patience = Patience()
    checkpoint_every: PositiveInt = 10
    """Updates between checkpoints."""
    keep: Literal["needed", "all"] = "needed"
    """Checkpoints that stay: the first, the best, the last and any that are served; or all, so that every update can be
    made again by `loomrl verify`, and each be forked from."""


class Experiment(Training):
    """The whole run of a language policy."""

    kind: Literal["language"] = "language"
    environments: tuple[EnvironmentConfig, ...] = (EnvironmentConfig(id="Math"),)
    """Environments to act in. For sft they serve evaluation only, and there are none by default."""
    curriculum: Curriculum = FixedCurriculum()
    """The rule that draws the next task."""
    rewards: RewardConfig = RewardConfig()
    templates: PathText | None = None
    """YAML file of task templates, added to the environments' own families."""
    data: DatasetConfig | None = None
    """Learn from data instead of rollouts; the environments then serve evaluation only."""
    policy: PolicyChoice = ScriptedPolicy()
    """The policy that `loomrl evaluate` judges; training uses the one being trained."""
    algorithm: Algorithm = PPO()
    """The algorithm with its model and settings."""
    engine: EngineChoice = TorchEngineConfig()
    """The engine that samples tokens."""
    rollout: RolloutConfig = RolloutConfig()
    hub: HubConfig = HubConfig()
    train: TrainConfig = TrainConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _default_environments(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping) or "environments" in raw:
            return raw
        given = raw.get("algorithm")
        kind = given.get("kind") if isinstance(given, Mapping) else getattr(given, "kind", None)
        return {**raw, "environments": ()} if kind in ("sft", "remote", "reward") else raw

    @model_validator(mode="after")
    def _check_environments(self) -> Self:
        """Without environments nothing is acted in, so that nothing about acting has an effect."""
        if isinstance(self.algorithm, RewardModel):
            if self.environments:
                raise ValueError("environments have no effect with algorithm.kind=reward: leave them out")
            if self.parent is not None:
                raise ValueError(f"parent={self.parent} has no effect with algorithm.kind=reward: leave it out")
            if self.hub != HubConfig():
                raise ValueError("hub has no effect with algorithm.kind=reward: leave it out")
        if self.environments:
            return self
        if not isinstance(self.algorithm, SFT | Remote | RewardModel):
            raise ValueError(f"algorithm.kind={self.algorithm.kind} acts in environments: name one, such as Math")
        idle = {
            "templates": self.templates is not None,
            "curriculum": self.curriculum != FixedCurriculum(),
            "engine": self.engine != TorchEngineConfig(),
            "rollout": self.rollout != RolloutConfig(),
            "train.stop": self.train.stop != Patience(),
        }
        ours = self.evaluation
        idle |= {
            f"evaluation.{name}": getattr(ours, name) != field.get_default(call_default_factory=True)
            for name, field in type(ours).model_fields.items()
            if name != "every"
        }
        for path, given in idle.items():
            if given:
                raise ValueError(f"{path} has no effect without environments: name some, or leave it out")
        return self

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        total = sum(environment.min_share for environment in self.environments)
        if not reaches(1.0, total):
            raise ValueError(f"the environments' min_share add up to {total:g}, more than 1")
        return self

    @model_validator(mode="after")
    def _check_parent(self) -> Self:
        algorithm = self.algorithm
        if self.parent is None or not isinstance(algorithm, LanguageAlgorithm):
            return self
        if isinstance(algorithm, LanguageWeave) and algorithm.experts > 1:
            raise ValueError("parent with algorithm.experts above 1 is not there: experts begin with a model.path")
        steps = algorithm.warm_start.steps
        build = algorithm.model.build
        for path, value, none in (("warm_start.steps", steps, "0"), ("model.build", build, "null")):
            if value:
                raise ValueError(
                    f"algorithm.{path} is given, and parent={self.parent} is where the run begins: set {path}={none}"
                )
        return self

    @property
    def asynchronous(self) -> bool:
        """True if rollouts and learning overlap."""
        return self.data is None and self.hub.max_staleness >= self.rollout.publish_every

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        algorithm = self.algorithm
        stop = self.train.stop
        if self.data is None:
            if isinstance(algorithm, KTO | RAFT | RewardModel):
                raise ValueError(
                    f"algorithm.kind={algorithm.kind} learns from what was served: name a data set, data.dataset=ID "
                    "(`loomrl data list`)"
                )
            if isinstance(algorithm, SFT):
                raise ValueError(
                    "algorithm.kind=sft learns from conversations: name a file of them, data.file=chats.jsonl, or a "
                    "data set, data.dataset=ID (`loomrl data list`)"
                )
            return self
        if self.data.file is not None and not isinstance(algorithm, SFT | CustomAlgorithm):
            raise ValueError(
                f"{self.data.origin} with algorithm.kind={algorithm.kind}, which learns from what was judged: set "
                "kind=sft, or name a data set (`loomrl data freeze`)"
            )
        if self.data.file is not None and isinstance(algorithm, SFT) and algorithm.model.path is self.parent is None:
            raise ValueError("algorithm.model.path=null: name the model to fine-tune, or a parent=RUN/40")
        if isinstance(algorithm, LanguageWeave):
            raise ValueError("algorithm.kind=weave learns from its own attempts: leave data out, or take another kind")
        idle = {
            "algorithm.warm_start.steps": isinstance(algorithm, LanguageAlgorithm) and algorithm.warm_start.steps,
            "algorithm.model.build": isinstance(algorithm, LanguageAlgorithm) and algorithm.model.build,
            "rewards.parts": self.rewards.parts,
            "rollout.replay": self.rollout.replay,
            "rollout.turn_limit": self.rollout.turn_limit,
            "train.stop.kl": isinstance(algorithm, SFT) and stop.kl,
            **({} if stop.by == "evaluation" else stop.rules),
        }
        for path, value in idle.items():
            if value:
                raise ValueError(f"{path} has no effect with {self.data.origin}: leave it out")
        if isinstance(algorithm, PolicyGradient) and algorithm.importance_cap is None:
            raise ValueError(
                "algorithm.importance_cap is null, so nothing corrects for tokens that older versions served: set it "
                "to 2.0"
            )
        leash = algorithm.kl if isinstance(algorithm, PolicyGradient | RAFT) else KL()
        if leash.coefficient and (leash.estimator, leash.place) != ("k2", "loss"):
            raise ValueError(
                f"algorithm.kl.estimator={leash.estimator} and place={leash.place} are for tokens that the policy "
                "sampled itself: of what was served, their pull has no bound. Set estimator=k2 and place=loss"
            )
        return self

    @model_validator(mode="after")
    def _check_overlap(self) -> Self:
        if not self.asynchronous:
            return self
        promise = f"hub.max_staleness={self.hub.max_staleness} lets rollouts and learning overlap"
        if not self.rollout.runners:
            raise ValueError(
                f"{promise}, but rollout.runners=0 makes attempts in the process that learns: set rollout.runners=1 or "
                f"more, or hub.max_staleness={self.rollout.publish_every - 1} to take turns"
            )
        if isinstance(self.algorithm, PolicyGradient) and self.algorithm.importance_cap is None:
            raise ValueError(
                f"{promise}, but algorithm.importance_cap is null, so nothing corrects for tokens of older policies: "
                "set it to 2.0"
            )
        return self

    @model_validator(mode="after")
    def _check_replay(self) -> Self:
        if (replay := self.rollout.replay) is not None:
            replay.check_promise(max_staleness=self.hub.max_staleness, fresh=self.rollout.groups_per_update)
            if isinstance(self.algorithm, LanguageAlgorithm):
                replay.check_algorithm(self.algorithm)
        return self

    @model_validator(mode="after")
    def _check_placed_actors_exist(self) -> Self:
        refuse_empty("placement.runner", self.placement.runner, "rollout.runners", self.rollout.runners)
        if self.placement.engine != ProcessResources() and not isinstance(self.engine, VllmEngineConfig):
            raise ValueError(
                f"placement.engine has no effect with engine.kind={self.engine.kind}, whose engines are no actors of "
                "Ray: set kind=vllm, or leave the place out"
            )
        if isinstance(self.engine, TorchEngineConfig) and self.engine.graphs and not self.placement.runner.gpus:
            raise ValueError(
                "engine.graphs=true has no effect with placement.runner.gpus=0: a CPU has no graphs. Give runners a "
                "GPU, or leave graphs out"
            )
        if isinstance(self.algorithm, LanguageAlgorithm):
            learners = self.algorithm.learners.count
            refuse_empty("placement.learner", self.placement.learner, "algorithm.learners.count", learners)
        return self

    @model_validator(mode="after")
    def _check_colocated(self) -> Self:
        if not self.placement.colocated:
            return self
        cause = None
        engine = self.engine
        if engine.kind == "openai":
            cause = "engine.kind=openai, a server that keeps its cache: set kind=torch"
        elif not self.environments:
            cause = "no environment, so that no engine samples: name one"
        elif isinstance(engine, VllmEngineConfig) and (not engine.gpus or self.asynchronous):
            sleeps = f"engine.gpus={engine.gpus:g} and hub.max_staleness={self.hub.max_staleness}"
            cause = f"engine.kind=vllm, {sleeps}: vLLM sleeps on GPUs, in turns. Set gpus and 0, or kind=torch"
        elif self.asynchronous and self.rollout.publish_every > 1:
            cause = f"rollout.publish_every={self.rollout.publish_every}: a paused engine waits for weights. Set 1"
        elif isinstance(self.algorithm, LanguageAlgorithm):
            name = "engine.gpus" if isinstance(engine, VllmEngineConfig) else "placement.runner.gpus"
            gpus = engine.gpus if isinstance(engine, VllmEngineConfig) else self.placement.runner.gpus
            learners = self.algorithm.learners.gpus
            if (gpus or learners) and not (0 < gpus < 1 and 0 < learners < 1):
                cause = (
                    f"{name}={gpus:g} and algorithm.learners.gpus={learners:g}, which share no GPU: give each a part "
                    "of one, such as 0.5"
                )
        if cause is not None:
            raise ValueError(f"placement.colocated=true has no effect with {cause}, or leave it out")
        if isinstance(engine, VllmEngineConfig) and engine.memory_gb is None:
            raise ValueError(
                "engine.memory_gb=null: vLLM would take all of the GPU. Set it, beside placement.colocated"
            )
        return self

    @model_validator(mode="after")
    def _check_entropies_are_known(self) -> Self:
        wanted = isinstance(self.algorithm, LanguageAlgorithm) and self.algorithm.sampling.entropies
        if wanted and self.engine.kind != "torch":
            raise ValueError(
                f"algorithm.sampling.entropies=true has no effect with engine.kind={self.engine.kind}, which tells "
                "log-probabilities only: set kind=torch, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _check_rankings(self) -> Self:
        if not self.rewards.ranks:
            return self
        part = f"rewards.parts: {self.rewards.ranks[0].name!r} ranks the attempts of a group"
        if self.rollout.group_size < 2:
            raise ValueError(f"{part}, and rollout.group_size=1 leaves nothing to compare: set 2 or more, such as 8")
        if isinstance(self.algorithm, LanguageWeave) and self.algorithm.objectives:
            raise ValueError(
                f"{part}, so that its mean is always 0.5 and no front can be measured: leave it out, or leave out "
                "algorithm.objectives"
            )
        return self

    @model_validator(mode="after")
    def _check_preferences(self) -> Self:
        algorithm = self.algorithm
        given = self.evaluation.preferences
        steered = isinstance(algorithm, LanguageWeave) and algorithm.objectives and algorithm.preference.always is None
        if given is not None and not steered:
            raise ValueError(
                f"evaluation.preferences={given} has no effect without several objectives and preferences that differ: "
                "leave it out"
            )
        return self

    @model_validator(mode="after")
    def _check_engine_knows_experts(self) -> Self:
        algorithm = self.algorithm
        if isinstance(algorithm, LanguageWeave) and algorithm.experts > 1 and self.engine.kind != "torch":
            raise ValueError(
                f"algorithm.experts={algorithm.experts} with engine.kind={self.engine.kind}, which cannot sample from "
                "a mixture: set kind=torch, or experts=1"
            )
        return self

    @model_validator(mode="after")
    def _check_publication_interval(self) -> Self:
        every = self.rollout.publish_every
        if self.hub.max_staleness < every - 1:
            raise ValueError(
                f"rollout.publish_every={every} makes trajectories up to {every - 1} versions old, but "
                f"hub.max_staleness={self.hub.max_staleness}: raise it to {every - 1}"
            )
        intervals = {
            "train.checkpoint_every": self.train.checkpoint_every,
            "evaluation.every": self.evaluation.every or every,
        }
        for path, interval in intervals.items():
            if interval % every:
                raise ValueError(
                    f"{path}={interval} is not a multiple of rollout.publish_every={every}: engines would get weights "
                    "earlier than they otherwise do, and a resumed run would act with others than an uninterrupted one"
                )
        return self

    @model_validator(mode="after")
    def _check_evaluations(self) -> Self:
        self.train.stop.check(self.evaluation)
        return self
