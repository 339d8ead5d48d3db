"""Problems that a user writes as task templates: a prompt, and an answer in plain notation."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from loomrl.envs.math.answer import Answer, Kind, Match, compare
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import number
from loomrl.envs.math.polynomial import Unreadable
from loomrl.envs.math.problem import Problem
from loomrl.envs.math.syntax import evaluate, read
from loomrl.envs.math.value import Calculator, rational
from loomrl.errors import ConfigError
from loomrl.schema import Config

FAMILY = "custom"


class _Parameters(Config):
    """The parameters in a template of Math."""

    prompt: str = Field(min_length=1)
    answer: str
    """Plain notation; a number may be given as the expression that computes it, such as `7*50/100`."""
    kind: Kind = "value"
    unknowns: tuple[str, ...] = ()
    variables: str = ""
    unit: str = ""
    template: str = ""


PARAMETERS = tuple(name for name in _Parameters.model_fields if name != "template")


def custom_problem(parameters: Mapping[str, Any]) -> Problem:
    """The problem of these parameters; an answer that our own grammar cannot read is a ConfigError."""
    given = _Parameters.parse(dict(parameters), origin="parameters of a task template of Math")
    text = _computed(given.answer, given.variables) if given.kind == "value" else given.answer
    for form in (Form.EXPANDED, Form.AS_GIVEN):
        answer = Answer(
            text, kind=given.kind, form=form, names=given.unknowns, variables=given.variables, unit=given.unit
        )
        if compare(answer, text) is Match.EQUAL:
            return Problem(given.prompt, answer, ())
    raise ConfigError(
        f"answer={given.answer!r} is no finished {given.kind}. Write it in plain notation, every number worked out."
    )


def _computed(text: str, variables: str) -> str:
    """The number that an expression stands for; anything else unchanged."""
    try:
        value = rational(evaluate(read(text, variables), Calculator()))
    except Unreadable:
        return text
    return text if value is None else number(value)
