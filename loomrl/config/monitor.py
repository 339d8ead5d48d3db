"""Rules about what leaves, and the monitor of a gateway that applies them."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import EntryPoint, Positive, PositiveInt
from loomrl.schema import Config

Bound = float | tuple[float, ...]
"""One number for all components, or one for each."""
Phrase = Annotated[str, Field(pattern=r"\w", max_length=100)]


class _Rule(Config):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=100)] | None = None
    """Name of the rule; null takes its kind."""

    @property
    def label(self) -> str:
        """Its name in reports, events and reward parts."""
        return self.name or str(getattr(self, "kind"))  # noqa: B009 - every variant has one


class SecretsRule(_Rule):
    """Secrets of known forms: API keys, private keys, passwords in assignments and URLs, e-mail addresses."""

    kind: Literal["secrets"] = "secrets"
    kinds: Annotated[tuple[Literal["key", "password", "email"], ...], Field(min_length=1)] = ("key",)
    """`password` also finds `token = next(tokens)` in code: for policies that write none."""


class BlockedRule(_Rule):
    """Words and phrases, whole and in any case."""

    kind: Literal["blocked"] = "blocked"
    words: tuple[Phrase, ...] = ()
    """Words and phrases of your own."""
    shipped: bool = True
    """Include the shipped list of threats and calls to self-harm (`loomrl.safety.phrase`)."""
    insults: bool = False
    """Include the shipped list of insults, which also hits quotations and jokes."""

    @model_validator(mode="after")
    def _check_some(self) -> Self:
        if not self.words and not self.shipped and not self.insults:
            raise ValueError("there is nothing to block: give words, shipped=true or insults=true")
        return self


class ToxicityRule(_Rule):
    """English sentences that a classifier finds offensive; its error rates are in `docs/monitor.md`.

    It needs `pip install 'loomrl[safety]'`.
    """

    kind: Literal["toxicity"] = "toxicity"
    at_least: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Minimum probability of a hit."""


class PromptRule(_Rule):
    """A sequence of words from the call's own system prompt; the whole prompt if it is shorter and has at least six
    words."""

    kind: Literal["prompt"] = "prompt"
    words: Annotated[int, Field(ge=4, le=100)] = 12
    """Number of consecutive words that are a hit."""


class RepetitionRule(_Rule):
    """A piece of text repeated several times in a row."""

    kind: Literal["repetition"] = "repetition"
    times: Annotated[int, Field(ge=3)] = 8
    """Minimum number of copies in a row."""
    characters: PositiveInt = 240
    """Minimum characters of all copies together."""


class CallsRule(_Rule):
    """Tool calls that are malformed, name a tool that is not offered, or lack required arguments."""

    kind: Literal["calls"] = "calls"


class CustomRule(_Rule):
    """A function from `loomrl.safety.rule.Saying` to `Found` or None, or a class that makes one from `settings`."""

    kind: Literal["custom"] = "custom"
    entry_point: EntryPoint
    """The function or class as `package.module:name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class."""


class BoundsRule(_Rule):
    """Components of an action that are below `low`, above `high`, or not numbers."""

    kind: Literal["bounds"] = "bounds"
    low: Bound
    """Lowest allowed value."""
    high: Bound
    """Highest allowed value."""


class RateRule(_Rule):
    """A component of an action that differs by more than `most` from the session's previous action."""

    kind: Literal["rate"] = "rate"
    most: Positive | tuple[Positive, ...]
    """Maximum change, for all components or for each."""


class StatesRule(_Rule):
    """Acting in a forbidden state: an observation with all components within these bounds."""

    kind: Literal["states"] = "states"
    within: Annotated[dict[int, tuple[float | None, float | None]], Field(min_length=1)]
    """Component → lower and upper bound; null for no bound."""


class CustomActionRule(_Rule):
    """A function from `loomrl.safety.rule.Deed` to `Wrong`, a word or None, or a class that makes one from
    `settings`."""

    kind: Literal["custom_action"] = "custom_action"
    entry_point: EntryPoint
    """The function or class as `package.module:name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class."""


TextCheck = SecretsRule | BlockedRule | ToxicityRule | PromptRule | RepetitionRule | CallsRule | CustomRule
ActionCheck = BoundsRule | RateRule | StatesRule | CustomActionRule
TextRuleChoice = Annotated[TextCheck, Field(discriminator="kind")]
RuleChoice = Annotated[TextCheck | ActionCheck, Field(discriminator="kind")]


STOPPED = "[This answer was stopped.]"


class MonitorRule(Config):
    """A rule about outgoing answers or actions, and the response to a hit."""

    check: RuleChoice
    """The check that decides what is a hit."""
    then: Literal["replace", "stable", "hold", "quarantine", "count"] = "replace"
    """Response to a hit: `replace` what has not left yet; ask the `stable` arm, else replace; `hold` it until a person
    decides or the deadline passes; `quarantine` the session; or only `count`."""
    trip: bool = False
    """A hit also rolls back an open release of this endpoint."""
    text: Annotated[str, Field(min_length=1)] | None = None
    """Replacement for an answer; null means `[This answer was stopped.]`."""
    action: float | tuple[float, ...] | None = None
    """Replacement for an action; null means the nearest allowed one; if there is none, the call is refused with 403."""

    @model_validator(mode="after")
    def _check_effect(self) -> Self:
        acts = isinstance(self.check, ActionCheck)
        replaces = self.then in ("replace", "stable")
        if self.text is not None and (acts or not replaces):
            raise ValueError(f"text has no effect with check.kind={self.check.kind} and then={self.then}: leave it out")
        if self.action is not None and not (acts and replaces):
            raise ValueError(
                f"action has no effect with check.kind={self.check.kind} and then={self.then}: leave it out"
            )
        if acts and self.then == "hold":
            raise ValueError("then=hold is for answers: an action can not wait for a person. Take stable or quarantine")
        return self


RULES = (
    MonitorRule(check=SecretsRule()),
    MonitorRule(check=BlockedRule(insults=True), then="count"),
)
"""The second changes no answer: it lets a release see that a version says such things more often."""


class Monitoring(Config):
    """Rules that every answer and action must pass before it leaves."""

    rules: tuple[MonitorRule, ...] = RULES
    fails: Literal["open", "closed"] = "closed"
    """Response to a custom rule that raises or is late: `closed` stops the answer like a hit, `open` lets it leave. A
    rule that only counts stops nothing."""
    limit_ms: Positive = 50.0
    """CPU time for each check of a custom rule. A check that takes forty times as long by the clock is also late."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [rule.check.label for rule in self.rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two rules are called {twice[0]!r}: give one of them a name")
        return self

    @model_validator(mode="after")
    def _check_own(self) -> Self:
        if any(isinstance(rule.check, CustomRule | CustomActionRule) for rule in self.rules):
            return self
        for name in ("fails", "limit_ms"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} has no effect without a rule of kind custom: leave it out")
        return self
