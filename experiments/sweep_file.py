"""A sweep from its file: resolves the experiment, and tries every path of the space before anything starts."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.config import AnyExperiment, ControlExperiment, parse_experiment
from loomrl.config.sweep import Choice, Grid, LogUniform, RandInt, Sweep
from loomrl.errors import ConfigError, unknown
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.shipped import SWEEPS, experiment_file, find_file, names_in
from loomrl.load import load, parse_assignment, read_yaml
from loomrl.schema import Tree, merge, nest
from loomrl.telemetry.metric import Metric

DRAWS = 64
"""Random points of the space at which an experiment is built before anything starts."""

ONLY = {
    "language": ("success", "level", "groups", "supervised", "failures"),
    "control": ("return", "front", "curriculum", "node"),
}
"""Prefixes of metrics that only one kind of experiment logs."""


def names() -> list[str]:
    """The names of the shipped sweeps."""
    return names_in(SWEEPS)


def resolve_sweep(words: Sequence[str]) -> Sweep:
    """The sweep of `FILE path=value…`; FILE may be the name of a shipped one."""
    files = [word for word in words if "=" not in word]
    if len(files) != 1:
        raise ConfigError(f"a sweep is one FILE, then path=value; got {len(files)}. Shipped: {', '.join(names())}.")
    tree = read_yaml(find_file(files[0], SWEEPS, what="sweep"))
    space = dict(tree.get("space") or {})
    over = [parse_assignment(word) for word in words if "=" in word]
    given = dict(pair for each in over for pair in each.items())
    tree = merge(tree, nest({path: value for path, value in given.items() if path.startswith("experiment.base")}))
    tree["experiment"] = _experiment(tree.get("experiment"), origin=files[0])
    for path, value in given.items():
        if path.startswith("space."):
            _lay_upon(space, path.removeprefix("space."), value)
        elif path != "experiment.base":
            tree = merge(tree, nest({path: value}))
    return Sweep.parse({**tree, "space": space}, origin=files[0])


def _experiment(given: Any, *, origin: str) -> Tree:
    """A whole experiment from a name, a file, or settings, which may override those of `base`."""
    if isinstance(given, str):
        given = {"base": given}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{origin}: experiment={given!r}: name a file or a shipped experiment, or write one here.")
    base = given.get("base")
    under = load([experiment_file(base)]).plain if base is not None else {}
    tree = merge(under, {name: value for name, value in given.items() if name != "base"})
    return parse_experiment(tree, origin=f"{origin}, experiment").plain


def _lay_upon(space: dict[str, Any], path: str, value: Any) -> None:
    """Set a dimension of the space, or a part of one."""
    known = next((name for name in space if path.startswith(f"{name}.")), None)
    if known is None:
        space[path] = value
    else:
        space[known] = merge(space[known], nest({path.removeprefix(f"{known}."): value}))


def check(sweep: Sweep) -> None:
    """A ConfigError unless the metric is known, and an experiment can be built at every tried point."""
    metric = sweep.judged_by
    if not any(metric == name or metric.startswith(f"{name}/") for name in Metric):
        raise ConfigError(unknown("metric", metric, [name.value for name in Metric]))
    other = "language" if sweep.unit == "steps" else "control"
    if metric.partition("/")[0] in ONLY[other]:
        raise ConfigError(f"metric={metric!r} is told of {other} policies only, as is all of {', '.join(ONLY[other])}.")
    for path, dimension in sweep.space.items():
        for value in dimension.edges:
            _build(sweep, {path: value})
    rng = random.Random(sweep.seed)
    for _ in range(DRAWS):
        point = {path: draw_value(dimension, rng) for path, dimension in sweep.space.items()}
        _built(sweep, point)
    _build(sweep, point)


def _built(sweep: Sweep, point: Mapping[str, Any]) -> AnyExperiment:
    try:
        return sweep.at(point)
    except ConfigError as error:
        where = ", ".join(f"{path}={value!r}" for path, value in point.items())
        raise ConfigError(f"sweep {sweep.name!r}, space at {where}: {error}") from None


def _build(sweep: Sweep, point: Mapping[str, Any]) -> None:
    """Check a trial as far as possible without Ray; for control, its environment is made."""
    experiment = _built(sweep, point)
    config = open_algorithm(experiment)
    config.validate()
    if isinstance(experiment, ControlExperiment) and any(path.startswith("environment.") for path in point):
        config.look()


def draw_value(dimension: Any, rng: random.Random) -> Any:
    """A value of a dimension."""
    if isinstance(dimension, Choice | Grid):
        return rng.choice(dimension.values)
    if isinstance(dimension, RandInt):
        return rng.randint(dimension.low, dimension.high)
    if isinstance(dimension, LogUniform):
        return dimension.low * (dimension.high / dimension.low) ** rng.random()
    return rng.uniform(dimension.low, dimension.high)


def short(paths: Sequence[str]) -> list[str]:
    """The shortest end of each path that is unique."""
    return [
        next(
            end
            for end in (".".join(path.split(".")[-count:]) for count in range(1, path.count(".") + 2))
            if sum(other == end or other.endswith(f".{end}") for other in paths) == 1
        )
        for path in paths
    ]
