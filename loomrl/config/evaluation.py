"""Settings of the evaluation of language policies."""

from pydantic import Field

from loomrl.config.basic import Episodes, Level, PositiveInt, Seed, Share
from loomrl.config.rule import TextRuleChoice
from loomrl.schema import Config


class EvaluationConfig(Config):
    """Evaluation of a policy on held-out tasks, whose seeds are never drawn in training."""

    episodes: Episodes = 200
    """Number of held-out tasks."""
    levels: tuple[Level, ...] = Field((1, 5, 10), min_length=1)
    """Levels that they are drawn from."""
    seed: Seed = 0
    """Seed of the tasks."""
    attempts: PositiveInt = 1
    """Attempts at each task, by a policy that samples. Of several, reports tell how many tasks at least one of k solves
    (pass@k), and how often the most frequent answer is right.
    """
    confidence: float = Field(0.95, gt=0, lt=1)
    """Level of the confidence intervals."""
    may_fail: Share = 0.0
    """Share of a policy's attempts that may fail; beyond it `loomrl evaluate` exits with status 1."""
    preferences: PositiveInt | None = None
    """Preferences, evenly spread, that a policy of several objectives is judged by, each on all these tasks; None: 11.
    """
    rules: tuple[TextRuleChoice, ...] = ()
    """Rules whose violations are reported: the share of attempts in which a turn breaks one."""
