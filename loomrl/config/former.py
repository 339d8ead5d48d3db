"""Sweeps that an earlier version recorded: the paths of their space by today's names of settings.

A settings class lists its former names in `Config.former`; `Config.parse(…, recorded=True)` reads them.
"""

from collections.abc import Mapping
from typing import Any

from loomrl.config import experiment_class
from loomrl.config.sweep import Sweep
from loomrl.schema import Config, Tree, models_in


def parse_recorded_sweep(raw: Tree, *, origin: str) -> Sweep:
    """The sweep from plain data of a record."""
    root = experiment_class(raw["experiment"].get("kind", "language"))
    return Sweep.parse({**raw, "space": renamed(raw["space"], root)}, origin=origin, recorded=True)


def renamed(point: Mapping[str, Any], root: type[Config]) -> dict[str, Any]:
    """The same values by today's paths of an experiment's settings."""
    return {_path(path, root): value for path, value in point.items()}


def _path(path: str, root: type[Config]) -> str:
    """`rollout.actors` as `rollout.runners`."""
    models, names = [root], []
    for name in path.split("."):
        today = next((model.former[name] for model in models if name in model.former), name)
        fields = [model.model_fields[today] for model in models if today in model.model_fields]
        inner = [each for field in fields for each in models_in(field.annotation) if issubclass(each, Config)]
        models = models if name.isdecimal() else inner
        names.append(today)
    return ".".join(names)
