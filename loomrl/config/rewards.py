"""Settings of further reward parts."""

from typing import Annotated, Any, Literal

from pydantic import Field

from loomrl.config.basic import EntryPoint, NonNegative, Positive, PositiveInt
from loomrl.config.rubric import RubricPart
from loomrl.config.rule import TextRuleChoice
from loomrl.schema import Config

Phrase = Annotated[str, Field(pattern=r"^\w[\w' -]*$", max_length=100)]


class CustomPart(Config):
    """A `loomrl.rewards.RewardComponent`, or a class of such that is called with `settings`."""

    kind: Literal["custom"] = "custom"
    entry_point: EntryPoint
    """The component or its class, as `package.module:name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class."""
    weight: float | None = None
    """None takes the component's own."""


class NoveltyPart(Config):
    """Answers to a task that were rarely trained on before."""

    kind: Literal["novelty"] = "novelty"
    weight: float = 0.1
    """Weight of this part in the reward."""


class EfficiencyPart(Config):
    """Success in few words: half of it at a hundred words."""

    kind: Literal["efficiency"] = "efficiency"
    weight: float = 0.1
    """Weight of this part in the reward."""


class BrevityPart(Config):
    """Few tokens, whether the task is solved or not: 1 for none, 0 from `tokens` on."""

    kind: Literal["brevity"] = "brevity"
    tokens: PositiveInt
    """Tokens of all answers of an attempt from which nothing is earned; words, where nobody has the tokens."""
    weight: float = 1.0
    """Weight of this part in the reward."""


class CourtesyPart(Config):
    """Politeness in few tokens, whether the task is solved or not: the share of polite turns × (1 − (n / `tokens`)^
    `power`), n tokens being said in all.
    """

    kind: Literal["courtesy"] = "courtesy"
    phrases: Annotated[tuple[Phrase, ...], Field(min_length=1)] = ("please", "thank you")
    """Whole words, in capitals or not; a turn with one of them is polite."""
    tokens: PositiveInt
    """Tokens of all answers of an attempt from which nothing is earned; words, where nobody has the tokens."""
    power: Positive = 1.0
    """Above 1 patience wears out: every further token costs more than the one before it."""
    weight: float = 1.0
    """Weight of this part in the reward."""


class RulesPart(Config):
    """A constraint: minus the share of turns that break one of these rules, the same ones as a gateway's monitor."""

    kind: Literal["rules"] = "rules"
    rules: Annotated[tuple[TextRuleChoice, ...], Field(min_length=1)]
    """The rules."""
    weight: Positive = 1.0
    """Weight of this part in the reward."""


class RewardConfig(Config):
    """Parts of the reward beside the environments' own, in training only; success stays what it is."""

    parts: tuple[
        Annotated[
            CustomPart | NoveltyPart | EfficiencyPart | BrevityPart | CourtesyPart | RulesPart | RubricPart,
            Field(discriminator="kind"),
        ],
        ...,
    ] = ()
    """Further parts of the reward."""
    adaptation: NonNegative = 0.0
    """Rate at which weight moves, after every update, to the parts whose mean score is behind; 0 keeps the weights."""
