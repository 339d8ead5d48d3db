"""Settings of evaluations: those that both kinds of policies have, and those of language, which may also end a run."""

from typing import Annotated, Literal

from pydantic import Field

from loomrl.config.basic import Episodes, Level, Positive, PositiveInt, Seed, Share
from loomrl.config.monitor import TextRuleChoice
from loomrl.schema import Config

Way = Literal["greedy", "sampled"]


class PolicyEvaluation(Config):
    """Evaluation of a policy in episodes that training never sees."""

    every: PositiveInt | None = None
    """Updates (control: steps) between evaluations during training, which select the best version; null evaluates only
    before and after training."""
    preferences: PositiveInt | None = None
    """Maximum number of evenly spread preferences at which a policy of several objectives is evaluated; null means 11
    for language and 101 for control."""
    seed: Seed = 0
    """First seed of the episodes; the same in every evaluation."""
    confidence: float = Field(0.95, gt=0, lt=1)
    """Level of the confidence intervals."""


class EvaluationConfig(PolicyEvaluation):
    """Evaluation of a language policy on held-out tasks, whose seeds are never drawn in training."""

    episodes: Episodes | None = None
    """Number of held-out tasks, divided among environments by weight; null means 200, and every row of a prompt file.
    No row is used twice."""
    levels: Annotated[tuple[Level, ...], Field(min_length=1)] | None = None
    """Levels of the tasks; null means 1, 5 and 10, and every level of a prompt file."""
    way: Way = "greedy"
    """How the policy acts in evaluations during training; the first and the last judge it both ways."""
    attempts: PositiveInt = 1
    """Attempts at each task by a sampling policy. With several, reports include pass@k and how often the most frequent
    answer is right."""
    may_fail: Share = 0.0
    """Share of a policy's attempts that may fail; above it `loomrl evaluate` exits with status 1."""
    rules: tuple[TextRuleChoice, ...] = ()
    """Rules to report on: the share of attempts in which a turn breaks one."""


class Patience(Config):
    """Early stopping rules, by the mean success of the last `window` updates or by evaluations."""

    by: Literal["training", "evaluation"] = "training"
    """Success used by target, plateau and decline: that of training, or of held-out tasks every `evaluation.every`
    updates."""
    window: PositiveInt = 10
    """Number of latest updates over which training success is averaged; evaluations are not averaged."""
    target: float | None = Field(None, gt=0, le=1)
    """Stop once success reaches this."""
    plateau: PositiveInt | None = None
    """Stop after this many updates without a new best."""
    decline: float | None = Field(None, gt=0, le=1)
    """Stop once success has fallen this far below its best."""
    kl: Positive | None = None
    """Stop once the KL from the reference policy exceeds this, a sign of collapse."""
    hacking: bool = True
    """Stop once attempts are proved to be paid more that an environment's second check does not find correct; false
    only warns."""

    @property
    def rules(self) -> dict[str, float | None]:
        """The rules about success, by the paths of their settings."""
        return {f"train.stop.{name}": getattr(self, name) for name in ("target", "plateau", "decline")}

    def check(self, evaluation: EvaluationConfig) -> None:
        """A ValueError for settings of either that would change nothing beside the other's."""
        if evaluation.every is None and evaluation.way != "greedy":
            raise ValueError(
                f"evaluation.way={evaluation.way} has no effect without evaluation.every: set it, or leave way out"
            )
        if self.by == "training":
            return
        if evaluation.every is None:
            raise ValueError("train.stop.by=evaluation needs evaluations: set evaluation.every, such as 10 updates")
        if not any(self.rules.values()):
            raise ValueError(f"train.stop.by=evaluation has no effect: set one of {', '.join(self.rules)}")
        if self.kl is None and self.window != Patience().window:
            raise ValueError(
                f"train.stop.window={self.window} has no effect with train.stop.by=evaluation, which looks at "
                "evaluations one by one: leave it out"
            )
