"""Settings of the live monitor."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import Positive
from loomrl.config.rule import ActionCheck, BlockedRule, CustomActionRule, CustomRule, RuleChoice, SecretsRule
from loomrl.schema import Config

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
