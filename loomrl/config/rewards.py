"""Settings of further reward parts."""

from typing import Annotated, Any, Literal

from pydantic import Field

from loomrl.config.basic import EntryPoint, NonNegative, Positive, PositiveInt
from loomrl.config.rubric import RubricPart
from loomrl.config.rule import TextRuleChoice
from loomrl.schema import Config

Phrase = Annotated[str, Field(pattern=r"^\w[\w' -]*$", max_length=100)]


class CustomPart(Config):
    """A `loomrl.rewards.RewardComponent`, or a class that makes one from `settings`."""

    kind: Literal["custom"] = "custom"
    entry_point: EntryPoint
    """The component or its class as `package.module:name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class."""
    weight: float | None = None
    """Weight of this part in the reward; null takes the component's own."""


class NoveltyPart(Config):
    """Novelty: a bonus for answers to a task that were rarely trained on before."""

    kind: Literal["novelty"] = "novelty"
    weight: float = 0.1
    """Weight of this part in the reward."""


class EfficiencyPart(Config):
    """Success discounted by length: half the success at a hundred words."""

    kind: Literal["efficiency"] = "efficiency"
    weight: float = 0.1
    """Weight of this part in the reward."""


class BrevityPart(Config):
    """Brevity regardless of success: 1 for no tokens, falling to 0 at `tokens`."""

    kind: Literal["brevity"] = "brevity"
    tokens: PositiveInt
    """Tokens of all answers of an attempt at which the part reaches 0; words where tokens are unknown."""
    weight: float = 1.0
    """Weight of this part in the reward."""


class CourtesyPart(Config):
    """Politeness in few tokens, regardless of success: the share of polite turns × (1 − (n / `tokens`)^ `power`) with n
    tokens in all."""

    kind: Literal["courtesy"] = "courtesy"
    phrases: Annotated[tuple[Phrase, ...], Field(min_length=1)] = ("please", "thank you")
    """Phrases that make a turn polite: whole words, in any case."""
    tokens: PositiveInt
    """Tokens of all answers of an attempt at which the part reaches 0; words where tokens are unknown."""
    power: Positive = 1.0
    """Shape of the discount: above 1, every further token costs more than the one before."""
    weight: float = 1.0
    """Weight of this part in the reward."""


class RulesPart(Config):
    """A constraint: minus the share of turns that break one of these rules, which are those of a gateway's monitor."""

    kind: Literal["rules"] = "rules"
    rules: Annotated[tuple[TextRuleChoice, ...], Field(min_length=1)]
    """The rules."""
    weight: Positive = 1.0
    """Weight of this part in the reward."""


class RewardConfig(Config):
    """Parts of the reward in addition to the environments' own, in training only; success is not affected."""

    parts: tuple[
        Annotated[
            CustomPart | NoveltyPart | EfficiencyPart | BrevityPart | CourtesyPart | RulesPart | RubricPart,
            Field(discriminator="kind"),
        ],
        ...,
    ] = ()
    """Further parts of the reward."""
    adaptation: NonNegative = 0.0
    """Rate at which weight moves, after every update, to the parts with low mean scores; 0 keeps the weights."""
