"""Rules about answers and actions, as settings: the same ones in serving, in rewards, and in evaluations."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import EntryPoint, Positive, PositiveInt
from loomrl.schema import Config

Bound = float | tuple[float, ...]
"""One number for all components, or one for each."""
Phrase = Annotated[str, Field(pattern=r"\w", max_length=100)]


class _Rule(Config):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=100)] | None = None
    """None takes the kind."""

    @property
    def label(self) -> str:
        """Its name in reports, events and reward parts."""
        return self.name or str(getattr(self, "kind"))  # noqa: B009 - every variant has one


class SecretsRule(_Rule):
    """Secrets of known forms: keys, private keys; also passwords in assignments and URLs, and e-mail addresses."""

    kind: Literal["secrets"] = "secrets"
    kinds: Annotated[tuple[Literal["key", "password", "email"], ...], Field(min_length=1)] = ("key",)
    """`password` also finds `token = next(tokens)` in code: for policies that write none."""


class BlockedRule(_Rule):
    """Words and phrases, whole and in any case."""

    kind: Literal["blocked"] = "blocked"
    words: tuple[Phrase, ...] = ()
    """Words and phrases of your own."""
    shipped: bool = True
    """Also the shipped list: threats, and calls to hurt oneself (`loomrl.safety.phrase`)."""
    insults: bool = False
    """Also the shipped list of insults, which may be quoted, or be meant kindly."""

    @model_validator(mode="after")
    def _check_some(self) -> Self:
        if not self.words and not self.shipped and not self.insults:
            raise ValueError("there is nothing to block: give words, shipped=true or insults=true")
        return self


class ToxicityRule(_Rule):
    """English sentences that a classifier finds offensive: it knows more than a list, and errs (`docs/monitor.md`).

    It needs `pip install 'loomrl[safety]'`.
    """

    kind: Literal["toxicity"] = "toxicity"
    at_least: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Probability from which on a sentence is a hit."""


class PromptRule(_Rule):
    """So many consecutive words of this call's own system prompt; all of it, if it is shorter and has six."""

    kind: Literal["prompt"] = "prompt"
    words: Annotated[int, Field(ge=4, le=100)] = 12
    """Consecutive words that are a hit."""


class RepetitionRule(_Rule):
    """A piece of text again and again: so many copies in a row, and so many characters in all."""

    kind: Literal["repetition"] = "repetition"
    times: Annotated[int, Field(ge=3)] = 8
    """Copies in a row, at least."""
    characters: PositiveInt = 240
    """Characters of all copies together, at least."""


class CallsRule(_Rule):
    """Tool calls that are malformed, name no offered tool, or lack what the tool needs."""

    kind: Literal["calls"] = "calls"


class CustomRule(_Rule):
    """A function of `loomrl.safety.rule.Saying` that answers `Found` or None; or a class of such, with `settings`."""

    kind: Literal["custom"] = "custom"
    entry_point: EntryPoint
    """The function or class, as `package.module:name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class."""


class BoundsRule(_Rule):
    """Components of the action below `low` or above `high`, or no numbers at all."""

    kind: Literal["bounds"] = "bounds"
    low: Bound
    """Lowest allowed value."""
    high: Bound
    """Highest allowed value."""


class RateRule(_Rule):
    """A component of the action that differs by more than `most` from the same session's action before it."""

    kind: Literal["rate"] = "rate"
    most: Positive | tuple[Positive, ...]
    """Largest allowed change, for all components or for each."""


class StatesRule(_Rule):
    """Acting in forbidden states: observations whose components are all within these bounds."""

    kind: Literal["states"] = "states"
    within: Annotated[dict[int, tuple[float | None, float | None]], Field(min_length=1)]
    """Component → lowest and highest; null is no bound."""


class CustomActionRule(_Rule):
    """A function of `loomrl.safety.rule.Deed` that answers `Wrong`, a word, or None; or a class of such."""

    kind: Literal["custom_action"] = "custom_action"
    entry_point: EntryPoint
    """The function or class, as `package.module:name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class."""


TextCheck = SecretsRule | BlockedRule | ToxicityRule | PromptRule | RepetitionRule | CallsRule | CustomRule
ActionCheck = BoundsRule | RateRule | StatesRule | CustomActionRule
TextRuleChoice = Annotated[TextCheck, Field(discriminator="kind")]
RuleChoice = Annotated[TextCheck | ActionCheck, Field(discriminator="kind")]
