"""Task templates: families of tasks that a user writes in YAML, without code.

    templates:
      - environment: Math
        family: custom
        name: percentages
        levels: {1: {a: [1, 9], b: [10, 90]}, 5: {a: [1, 99], b: [100, 999]}}
        parameters: {prompt: "What is {a} percent of {b}?", answer: "{a}*{b}/100"}

or, in short, by environment, with the parameters of one of its families, or lists of them:

    LogicPuzzle: {templates: ["{a} is taller than {b}."], variables: [[Anna, Ben], [Ben, Cara]]}
    Dialogue: {scenarios: [{type: negotiation, context: "You sell bicycles in Porto."}]}

A level's entries are inclusive ranges of whole numbers, or lists under `choice:`; the highest defined level up to the
task's level applies. Text in `parameters` is filled with the drawn values. The environment reads the result as
`task.parameters`. A variable that no text uses, or a parameter that the environment does not read, is an error.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from loomrl.config.basic import Level
from loomrl.errors import ConfigError, unknown
from loomrl.gym.catalogue import find, names
from loomrl.load import read_yaml
from loomrl.schema import Config
from loomrl.types import Task


class OneOf(Config):
    """One of these values, drawn uniformly."""

    choice: tuple[str | int | float, ...] = Field(min_length=1)


Range = tuple[int, int]


class Noted(Mapping[str, Any]):
    """A mapping that records which of its keys were read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.unread = set(values)

    def __getitem__(self, key: str) -> Any:
        # Reads are observed, not declared: a declaration could be wrong, and the template would change nothing.
        self.unread.discard(key)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class TaskTemplate(Config):
    """A named pattern of tasks of one family of an environment."""

    name: str = Field(pattern=r"^[\w.-]+$")
    environment: str
    family: str
    levels: dict[Level, dict[str, Range | OneOf]] = Field(min_length=1)
    parameters: dict[str, str | int | float | bool | list[Any]]

    @model_validator(mode="after")
    def _fillable(self) -> Self:
        for level, variables in self.levels.items():
            for name, values in variables.items():
                if isinstance(values, tuple) and values[0] > values[1]:
                    raise ValueError(f"levels.{level}.{name}={list(values)}: the range is empty")
            drawn = Noted(dict.fromkeys(variables, 0))
            try:
                self._fill(drawn)
            except (KeyError, IndexError, ValueError, AttributeError) as error:
                raise ValueError(
                    f"parameters cannot be filled at level {level}: {type(error).__name__} {error}"
                ) from None
            if drawn.unread:
                names = ", ".join(sorted(drawn.unread))
                raise ValueError(f"levels.{level}: no text in parameters has {names}, so they would change nothing")
        return self

    def task(self, base: Task) -> Task:
        """`base` – this template's environment and family, any level and seed – with the template's parameters filled
        in.
        """
        steps = [level for level in self.levels if level <= base.level] or [min(self.levels)]
        rng = random.Random(f"{self.name}/{base.level}/{base.seed}")
        drawn = {
            name: rng.choice(values.choice) if isinstance(values, OneOf) else rng.randint(*values)
            for name, values in self.levels[max(steps)].items()
        }
        return replace(base, parameters=self._fill(drawn) | {"template": self.name})

    def _fill(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v.format_map(drawn) if isinstance(v, str) else v for k, v in self.parameters.items()}


class _TemplateFile(Config):
    templates: tuple[TaskTemplate, ...] = Field(min_length=1)


def load_templates(path: str | Path) -> tuple[TaskTemplate, ...]:
    """The templates of a YAML file; names must differ."""
    raw = read_yaml(path)
    if isinstance(raw, Mapping):
        short = [one for name, given in raw.items() if name != "templates" for one in _in_full(name, given, str(path))]
        raw = {"templates": [*raw.get("templates", []), *short]} if short else raw
    templates = _TemplateFile.parse(raw, origin=str(path)).templates
    given = [template.name for template in templates]
    repeated = sorted({name for name in given if given.count(name) > 1})
    if repeated:
        raise ConfigError(f"{path}: template names must differ; repeated: {', '.join(repeated)}.")
    return templates


def _in_full(name: str, given: Any, path: str) -> Iterator[dict[str, Any]]:
    """The templates of one environment in a file that is ordered by environment."""
    environment = _environment(name, path)
    if isinstance(given, list):
        yield from ({"environment": environment, **each} for each in given)
        return
    if not isinstance(given, Mapping):
        raise ConfigError(f"{path}: {name}={given!r:.60}: a mapping of parameters, or a list of templates is needed.")
    lists = {key: value for key, value in given.items() if isinstance(value, list) and _all_mappings(value)}
    loose = {key: value for key, value in given.items() if key not in lists}
    told = [
        (f"{environment}.{key}-{place}", each) for key, value in lists.items() for place, each in enumerate(value, 1)
    ]
    for label, parameters in [*told, *([(environment, loose)] if loose else [])]:
        family = _family(environment, parameters, path)
        yield {"name": label, "environment": environment, "family": family, "levels": {1: {}}, "parameters": parameters}


def _environment(name: str, path: str) -> str:
    """An environment's name, also as `logic_puzzle`."""
    plain = {known.replace("_", "").casefold(): known for known in names()}
    found = plain.get(name.replace("_", "").casefold())
    if found is None:
        raise ConfigError(f"{path}: environment " + unknown("name", name, names()))
    return found


def _family(environment: str, parameters: Mapping[str, Any], path: str) -> str:
    """The family that takes these parameters."""
    families = find(environment).cls.template_families
    for family, taken in families.items():
        if set(parameters) <= set(taken):
            return family
    known = "; ".join(f"{family} ({', '.join(taken)})" for family, taken in families.items()) or "none"
    raise ConfigError(
        f"{path}: no family of {environment} takes {', '.join(sorted(parameters))}. Families that take some: {known}."
    )


def _all_mappings(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, Mapping) for value in values)
