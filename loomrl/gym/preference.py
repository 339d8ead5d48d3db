"""Preferences among objectives, as a language policy reads them: a line of its first observation.

A preference is part of the task, as a memory is, so that an attempt can be replayed from its trajectory alone. As text
it needs no support in engines, recordings and servers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from loomrl.errors import ConfigError
from loomrl.types import Message, Observation, Task

PREFERENCE = "preference"
"""The key of a preference in a task's parameters."""

Preference = Mapping[str, float]
"""The weight of every objective; they sum to 1."""


def with_preference(task: Task, preference: Preference | None) -> Task:
    """The task with this preference; None leaves it unchanged."""
    return task if preference is None else replace(task, parameters={**task.parameters, PREFERENCE: dict(preference)})


def preference_of(task: Task) -> Preference | None:
    """The preference of a task, if it has one."""
    found: Preference | None = task.parameters.get(PREFERENCE)
    return found


def add_preference(observation: Observation, preference: Preference | None) -> Observation:
    """The first observation with the preference in its system message, which is added if it is missing."""
    if preference is None:
        return observation
    first = observation[0] if observation else None
    if first is None or first.role != "system":
        return (Message("system", line(preference)), *observation)
    return (first._replace(content=f"{first.content}\n{line(preference)}"), *observation[1:])


def line(preference: Preference) -> str:
    """The preference in words, in alphabetical order: records keep no other."""
    # Alphabetical: records keep objects without an order, and equal preferences must read alike.
    return f"Preference: {', '.join(f'{name} {percent}' for name, percent in sorted(percents(preference).items()))}."


def percents(preference: Preference) -> dict[str, int]:
    """The weights in percent, rounded so that they sum to 100."""
    exact = {name: 100 * weight for name, weight in preference.items()}
    rounded = {name: math.floor(value + 1e-9) for name, value in exact.items()}
    for name in sorted(exact, key=lambda name: rounded[name] - exact[name])[: 100 - sum(rounded.values())]:
        rounded[name] += 1
    return rounded


def parse_weights(given: object, objectives: Sequence[str]) -> Preference:
    """A caller's preference as weights of these objectives, 0 for those left out; a ConfigError if it is invalid."""
    told = f"preference={given!r:.80}"
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"{told}: an object is needed, such as {dict.fromkeys(objectives, 1 / len(objectives))}.")
    strange = sorted({*map(str, given)} - {*objectives})
    if strange:
        raise ConfigError(f"{told}: no objective is named {', '.join(strange)}; known: {', '.join(objectives)}.")
    weights = {name: given.get(name, 0.0) for name in objectives}
    if any(isinstance(w, bool) or not isinstance(w, int | float) or not 0 <= w < math.inf for w in weights.values()):
        raise ConfigError(f"{told}: weights are finite numbers and not negative.")
    if not math.isclose(sum(weights.values()), 1.0, abs_tol=1e-4):
        raise ConfigError(f"{told}: the weights sum to {sum(weights.values()):g}, and must sum to 1.")
    return weights


def parse_preference(text: str) -> Preference:
    """From `correctness=0.7,brevity=0.3`."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.partition("=")
        try:
            weights[name.strip()] = float(weight)
        except ValueError:
            raise ConfigError(f"preference {text!r}: weights by name, as correctness=0.7,brevity=0.3.") from None
    return weights
