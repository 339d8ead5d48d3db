"""Settings of rollouts: attempts at groups of tasks, their limits, and what an update learns from beside fresh ones."""

from pydantic import Field

from loomrl.config.basic import PositiveInt, Seconds
from loomrl.config.language import DPO, KTO, RAFT, PolicyGradient
from loomrl.config.language_weave import LanguageWeave
from loomrl.errors import ConfigError
from loomrl.schema import Config


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

    def check_algorithm(self, algorithm: PolicyGradient | DPO | KTO | RAFT) -> None:
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
    """Time limit for an environment's answer to an action."""
    episode_timeout_s: Seconds = 600.0
    """Time limit for a whole episode."""
    quarantine: QuarantineConfig = QuarantineConfig()
