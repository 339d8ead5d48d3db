"""The Experiment of control policies: one whole run as frozen data."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import EntryPoint, Episodes, Positive, PositiveInt, Share
from loomrl.config.control import BC, DQN, IQL, SAC, ControlPPO, LoggedData, offline_faults
from loomrl.config.evaluation import PolicyEvaluation
from loomrl.config.placement import ProcessResources, refuse_empty
from loomrl.config.root import CustomAlgorithm, Records, Training
from loomrl.config.weave import Weave
from loomrl.schema import Config, merge


class EnvironmentWrapper(Config):
    """A wrapper around an environment, such as `gymnasium.wrappers:FrameStackObservation`."""

    entry_point: EntryPoint
    """The wrapper's class as `package.module:Class`; it is called with the environment."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the wrapper."""


class _Environment(Config):
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment."""
    wrappers: tuple[EnvironmentWrapper, ...] = ()
    """Wrappers around the environment, innermost first."""
    info_mask: bool = False
    """Make `info["action_mask"]`, which marks the allowed actions, part of the observation."""
    vectorization: Literal["auto", "sync", "async"] = "auto"
    """How several environments run: `sync` in turns, `async` in a process each, `auto` the environment's own vector
    form if it has one and nothing wraps it, else sync. Agents that share a policy are always sync."""


class GymnasiumEnvironment(_Environment):
    """A Gymnasium environment by id. `package.module:Name-v0` imports the module first, which registers it."""

    kind: Literal["gymnasium"] = "gymnasium"
    id: str = "CartPole-v1"
    """Name in Gymnasium's registry."""


PolicyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
AgentNames = Annotated[tuple[str, ...], Field(min_length=1)]


class CustomEnvironment(_Environment):
    """`entry_point` names a Gymnasium environment, a `VectorEnv`, or a PettingZoo one whose agents share policies."""

    kind: Literal["custom"] = "custom"
    entry_point: EntryPoint
    """The environment's class as `package.module:Class`, or a function that makes it; one of a `VectorEnv` is called
    with `num_envs`."""
    policies: dict[PolicyName, AgentNames] = Field(default_factory=dict)
    """The agents of each policy, for a `ParallelEnv` with ppo; empty: all share one."""


ControlEnvironment = Annotated[GymnasiumEnvironment | CustomEnvironment, Field(discriminator="kind")]


class ReturnThreshold(Config):
    """The mean return that ends a stage."""

    reward: float
    """Mean return to reach."""
    episodes: int = Field(100, ge=1, le=100)
    """Number of latest episodes over which the mean is taken."""


class SettingsStage(Config):
    """A stage of the curriculum: settings that override the environment's, and the threshold for the next stage."""

    settings: dict[str, Any]
    """Settings in this stage, overriding `environment.settings`."""
    threshold: ReturnThreshold


class SettingsStages(Config):
    """Stages in order, followed by the environment with its own settings."""

    kind: Literal["stages"] = "stages"
    stages: tuple[SettingsStage, ...] = Field(min_length=1)


class SettingsRamp(Config):
    """Numeric settings that move from initial values to the environment's own, in equal steps."""

    kind: Literal["ramp"] = "ramp"
    begin: dict[str, float] = Field(min_length=1)
    """Initial values of the settings."""
    steps: PositiveInt = 5
    """Number of equal steps from `begin` to the final values."""
    threshold: ReturnThreshold
    """Threshold that ends each step."""


ControlCurriculum = Annotated[SettingsStages | SettingsRamp, Field(discriminator="kind")]


class ControlRollout(Config):
    """Collection of steps."""

    runners: int = Field(0, ge=0)
    """Ray actors that host environments; 0 keeps them in this process."""
    environments: PositiveInt | None = None
    """Environments per runner; null means 8 for ppo and 1 for sac and dqn."""
    steps: PositiveInt | None = None
    """Steps per environment and update; null means 128 for ppo and 1 for sac and dqn."""


class ControlLearners(Config):
    """The learners."""

    count: int = Field(0, ge=0)
    """Remote learners (Ray actors); 0 learns in this process."""
    gpus: float = Field(0.0, ge=0, le=1)
    """GPUs of each learner."""
    threads: PositiveInt = 1
    """Threads of torch and NumPy in this process. Small networks are slower on several, and sums round differently."""


class ReturnPatience(Config):
    """Early stopping rules, by the mean return of the latest 100 episodes."""

    target: float | None = None
    """Stop once the mean return reaches this."""
    evaluated: float | None = None
    """Stop once an evaluation's mean return reaches this; the evaluation before training counts."""
    success: Share | None = None
    """Stop once the mean `info["is_success"]` reaches this; needs environments that report it in an episode's last
    step."""
    plateau: PositiveInt | None = None
    """Stop after this many steps without a new best."""
    decline: Positive | None = None
    """Stop once the return has fallen this far below its best."""
    hacking: bool = True
    """Stop once more episodes are proved to succeed that `info["correct"]`, a second check, does not find correct;
    false only warns."""


class ControlTrain(Records):
    """Length of the training, checkpoints and logs."""

    steps: PositiveInt = 100_000
    """Total steps of all environments; for bc and iql the number of updates, unless they continue in the
    environment."""
    stop: ReturnPatience = ReturnPatience()
    checkpoint_every: PositiveInt = 10_000
    """Steps between checkpoints."""
    keep: Literal["needed", "all"] = "needed"
    """Checkpoints that stay: the first, the best, the last and any that are served; or all, so that each can be forked
    from."""
    tell_every: PositiveInt = 1_000
    """Steps between two lines of metrics, at least one update."""


class ControlEvaluation(PolicyEvaluation):
    """Evaluation of a policy: greedy, in separate environments, without the curriculum."""

    every: PositiveInt | None = 10_000
    episodes: Episodes = 20
    """Number of episodes; with several objectives, per preference."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment in evaluations, overriding `environment.settings`."""
    picture: Annotated[str, Field(pattern=r"\.svg$")] | None = None
    """SVG file for the Pareto front in `loomrl evaluate`; null means `front.svg` in the run's folder."""
    max_steps: PositiveInt | None = None
    """Steps after which an episode is truncated; null means the environment's registered limit, or 10,000 if it has
    none."""
    film: int = Field(64, ge=0, le=10_000)
    """Most frames of the film that is kept of an episode where a training ends, and by `loomrl evaluate`, if the
    environment renders pictures; 0 keeps none."""


ControlKind = Annotated[ControlPPO | SAC | DQN | Weave | BC | IQL | CustomAlgorithm, Field(discriminator="kind")]


class ControlExperiment(Training):
    """The whole run of a control policy."""

    kind: Literal["control"] = "control"
    environment: ControlEnvironment = GymnasiumEnvironment()
    """The environment for training and evaluation."""
    curriculum: ControlCurriculum | None = None
    """Environment settings that change as the policy improves; null for none."""
    algorithm: ControlKind = ControlPPO()
    """The algorithm, with its network and settings."""
    data: LoggedData | None = None
    """Logged episodes to learn from; bc and iql need them."""
    rollout: ControlRollout = ControlRollout()
    learners: ControlLearners = ControlLearners()
    train: ControlTrain = ControlTrain()
    evaluation: ControlEvaluation = ControlEvaluation()

    @model_validator(mode="after")
    def _check_placed_actors_exist(self) -> Self:
        placement = self.placement
        refuse_empty("placement.runner", placement.runner, "rollout.runners", self.rollout.runners)
        refuse_empty("placement.learner", placement.learner, "learners.count", self.learners.count)
        if placement.colocated:
            raise ValueError("placement.colocated=true has no effect: control policies have no engine. Leave it out")
        if placement.engine != ProcessResources():
            raise ValueError("placement.engine has no effect: control policies have no engine. Leave it out")
        return self

    @model_validator(mode="after")
    def _check_policies(self) -> Self:
        environment = self.environment
        if isinstance(environment, CustomEnvironment) and environment.policies:
            if self.algorithm.kind != "ppo":
                raise ValueError(
                    f"environment.policies={[*environment.policies]}: {self.algorithm.kind} learns one policy. Set "
                    "algorithm.kind=ppo, or leave them out"
                )
            if "default_policy" in environment.policies:
                raise ValueError("environment.policies: default_policy is RLlib's name. Choose another one")
        return self

    @model_validator(mode="after")
    def _check_evaluated(self) -> Self:
        wanted = self.train.stop.evaluated
        if wanted is not None and self.objectives:
            raise ValueError(
                f"train.stop.evaluated={wanted:g} has no effect with several objectives: an evaluation has a return "
                "for every preference. Leave it out"
            )
        return self

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        usual: dict[str, Config] = {"rollout": ControlRollout(), "train.stop": ReturnPatience()}
        given: dict[str, Config] = {"rollout": self.rollout, "train.stop": self.train.stop}
        idle = {
            f"{part}.{name}": getattr(given[part], name) != value
            for part, settings in usual.items()
            for name, value in settings
        }
        offline_faults(self.algorithm, self.data, {"curriculum": self.curriculum is not None, **idle})
        return self

    @model_validator(mode="after")
    def _check_ramp_targets(self) -> Self:
        if isinstance(self.curriculum, SettingsRamp):
            for name in self.curriculum.begin:
                if not isinstance(self.environment.settings.get(name), int | float):
                    raise ValueError(f"curriculum.begin.{name}: give environment.settings.{name}, where it leads to")
        return self

    @model_validator(mode="after")
    def _check_front_settings(self) -> Self:
        if self.evaluation.preferences is not None and not self.objectives:
            raise ValueError(
                "evaluation.preferences has no effect without objectives: a scalar reward has no front. Name "
                "algorithm.objectives (of weave), or leave it out"
            )
        if self.evaluation.picture is not None and len(self.objectives) < 2:
            raise ValueError("evaluation.picture has no effect: a front has two objectives or more. Leave it out")
        always = self.algorithm.preference.always if isinstance(self.algorithm, Weave) else None
        if self.evaluation.preferences is not None and always is not None:
            raise ValueError(
                f"evaluation.preferences={self.evaluation.preferences} has no effect: the preference is fixed to "
                f"{always}, and judged by that one alone. Leave it out, or set it to null"
            )
        return self

    @property
    def judged_in(self) -> ControlEnvironment:
        """The environment of evaluations."""
        settings = merge(self.environment.settings, self.evaluation.settings)
        return self.environment.model_copy(update={"settings": settings})

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the objectives, if there are several."""
        return self.algorithm.tree.names if isinstance(self.algorithm, Weave) else ()

    @property
    def stages(self) -> tuple[tuple[dict[str, Any], ReturnThreshold | None], ...]:
        """The environment's settings stage by stage, each with the threshold for the next; the last stage has none."""
        final = self.environment.settings
        if self.curriculum is None:
            return ((final, None),)
        way = self.curriculum.stages if isinstance(self.curriculum, SettingsStages) else _ramp(self.curriculum, final)
        return (*((merge(final, stage.settings), stage.threshold) for stage in way), (final, None))


def _ramp(ramp: SettingsRamp, final: dict[str, Any]) -> Sequence[SettingsStage]:
    def at(step: int) -> dict[str, Any]:
        numbers = {name: first + (final[name] - first) * step / ramp.steps for name, first in ramp.begin.items()}
        return {name: round(value) if isinstance(final[name], int) else value for name, value in numbers.items()}

    return [SettingsStage(settings=at(step), threshold=ramp.threshold) for step in range(ramp.steps)]
