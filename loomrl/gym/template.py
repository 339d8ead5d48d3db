"""Task templates: families of tasks that a user writes in YAML, without code.

    templates:
      - environment: Math
        family: custom
        name: percentages
        levels: {1: {a: [1, 9], b: [10, 90]}, 5: {a: [1, 99], b: [100, 999]}}
        parameters: {prompt: "What is {a} percent of {b}?", answer: "{a}*{b}/100"}

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
from loomrl.errors import ConfigError
from loomrl.load import read_yaml
from loomrl.schema import Config
from loomrl.types import Task


class Choice(Config):
    """One of these values, drawn uniformly."""

    choice: tuple[str | int | float, ...] = Field(min_length=1)


Range = tuple[int, int]


class Noted(Mapping[str, Any]):
    """A mapping that records which of its keys were read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.unread = set(values)

    def __getitem__(self, key: str) -> Any:
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
    levels: dict[Level, dict[str, Range | Choice]] = Field(min_length=1)
    parameters: dict[str, str | int | float | bool]

    @model_validator(mode="after")
    def _fillable(self) -> Self:
        for level, variables in self.levels.items():
            for name, values in variables.items():
                if isinstance(values, tuple) and values[0] > values[1]:
                    raise ValueError(f"levels.{level}.{name}={list(values)}: the range is empty")
            drawn = Noted(dict.fromkeys(variables, 0))
            try:
                self._filled(drawn)
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
            name: rng.choice(values.choice) if isinstance(values, Choice) else rng.randint(*values)
            for name, values in self.levels[max(steps)].items()
        }
        return replace(base, parameters=self._filled(drawn) | {"template": self.name})

    def _filled(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v.format_map(drawn) if isinstance(v, str) else v for k, v in self.parameters.items()}


class _TemplateFile(Config):
    templates: tuple[TaskTemplate, ...] = Field(min_length=1)


def load_templates(path: str | Path) -> tuple[TaskTemplate, ...]:
    """The templates of a YAML file; names must differ."""
    templates = _TemplateFile.parse(read_yaml(path), origin=str(path)).templates
    names = [template.name for template in templates]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(f"{path}: template names must differ; repeated: {', '.join(repeated)}.")
    return templates
