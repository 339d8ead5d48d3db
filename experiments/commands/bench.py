"""`loomrl bench`: measurements behind the figures in docs/benchmarks.md."""

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.console import Console

from loomrl.errors import ConfigError, unknown
from loomrl.experiments.commands.face import without
from loomrl.experiments.commands.output import emit, table

BENCHMARKS = {
    "hub": (
        "hub",
        "Tokens ingested per second, durably: in process, over HTTP, and by a JSON server; cost of a lease as the hub "
        "grows.",
    ),
    "serve": (
        "serve",
        "Seconds to the first answer, acts per second, what the gateway adds to the bare engine, many open streams; "
        "litellm=PROGRAM: beside LiteLLM's proxy and vLLM's own server.",
    ),
    "console": (
        "console",
        "Milliseconds of the console's pages over a million trajectories, and from a commit to the browser.",
    ),
    "scale": (
        "scale",
        "Cost of controller, hub and weight publication with 1 to 2,048 rollout actors, which replay a short real run.",
    ),
    "async": (
        "overlap",
        "Seconds until equal success, with rollouts that overlap with learning and with rollouts that alternate "
        "with it.",
    ),
    "control": (
        "control.measure",
        "PPO and SAC against RLlib's own and, if installed, Stable-Baselines3: steps per second of CPU time.",
    ),
    "zoo": (
        "control.zoo",
        "The tuned files of experiments/control beside Stable-Baselines3 with its zoo's settings: return and CPU "
        "seconds; only=[cartpole], seeds=[1,2,3], page=FILE.",
    ),
    "sync": (
        "sync",
        "Transfer of weights to engines: the cost of checks, the size of deltas, the time to a first token.",
    ),
    "language": (
        "language",
        "Tokens per second of engine (against vLLM, if installed) and learner, and the phases of an update; gpu=true: "
        "half a billion parameters on a GPU.",
    ),
    "adapters": (
        "adapters",
        "Tokens per second of CPU time of an engine whose requests name eight adapters, against its base alone.",
    ),
    "forms": (
        "forms",
        "Tokens per second of CPU time of an engine whose 16 answers follow a JSON schema, against free ones.",
    ),
    "loop": (
        "loop",
        "People's satisfaction before and after the next version was trained from their feedback, then they flip it; "
        "seeds=[1,2], control=true (also with shuffled feedback), page=FILE.",
    ),
    "envs": (
        "envs",
        "Tasks and turns per second of every environment, and of 10,000 episodes that two actors hold at once; "
        "only=[Math].",
    ),
    "release": (
        "release",
        "Simulated releases: false alarms, bad versions that pass, units until one is noticed, beside a z-test; "
        "planted=true: subtly bad versions.",
    ),
}
"""Benchmark → its module and what it measures, with its settings."""


def _complete_benchmark(incomplete: str) -> list[str]:
    """Benchmarks that begin with these letters."""
    return [name for name in BENCHMARKS if name.startswith(incomplete)]


@without("--store")
def bench(
    name: Annotated[
        str | None,
        typer.Argument(help="Without it: a list of benchmarks.", autocompletion=_complete_benchmark),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Settings of the benchmark.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Little work: a smoke test, no figure.")] = False,
) -> None:
    """Measure this machine; the figures in docs/benchmarks.md come from here."""
    from loomrl.load import parse_assignments

    if name is None:
        about = {name: about for name, (_, about) in BENCHMARKS.items()}
        emit(about, show=lambda console: console.print(table("", ("benchmark", "measures"), about.items())))
        return
    if name not in BENCHMARKS:
        raise ConfigError(unknown("benchmark", name, BENCHMARKS))
    given = parse_assignments(settings or [])
    known = SETTINGS.get(name, ())
    if others := set(given) - set(known):
        raise ConfigError(f"bench {name}: " + unknown("setting", min(others), known))
    for setting in LISTS & set(given):
        if not isinstance(value := given[setting], list):
            raise ConfigError(f"bench {name}: {setting}={value} is a list: {setting}=[{value}]")
    _print_figures(_measure(name, given, quick=quick))


LISTS = {"only", "seeds"}
"""Settings that are lists."""

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "serve": ("litellm",),
    "language": ("gpu",),
    "loop": ("seeds", "control", "page"),
    "envs": ("only",),
    "zoo": ("only", "seeds", "page"),
    "release": ("planted",),
}


def _measure(name: str, given: Mapping[str, Any], *, quick: bool) -> Mapping[str, Any]:
    """The figures of a benchmark."""
    module = importlib.import_module(f"loomrl.experiments.bench.{BENCHMARKS[name][0]}")
    size = module.QUICK if quick else module.FULL
    page = None if given.get("page") is None else Path(given["page"])
    match name:
        case "language" if given.get("gpu") and not quick:
            from loomrl.experiments.bench.model import HALF_BILLION

            size = HALF_BILLION
        case "serve":
            return _figures(module, size, litellm=str(given.get("litellm", "")))
        case "loop":
            tellings = (module.SHOWN, module.CONTROL) if given.get("control") else (module.SHOWN,)
            return _figures(module, size, seeds=given.get("seeds", [1]), tellings=tellings, page=page)
        case "zoo":
            return _figures(module, size, only=given.get("only", ()), seeds=given.get("seeds", ()), page=page)
        case "envs":
            return _figures(module, size, only=given.get("only", ()))
        case "release" if given.get("planted"):
            planted = importlib.import_module("loomrl.experiments.bench.release_planted")
            return _figures(planted, planted.QUICK if quick else planted.FULL)
    return _figures(module, size)


def _figures(module: ModuleType, size: Any, **settings: Any) -> Mapping[str, Any]:
    figures: Mapping[str, Any] = module.measure(size, **settings)
    return figures


def _print_figures(figures: Mapping[str, Any]) -> None:
    """Print figures, rows as tables and all others one per line; names that end in `_runs` are only in the JSON."""
    shown = {name: value for name, value in figures.items() if not name.endswith("_runs")}
    tables = {name: rows for name, value in shown.items() if (rows := _rows(value))}
    rest = {name: value for name, value in shown.items() if name not in tables}

    def show(console: Console) -> None:
        for name, rows in tables.items():
            columns = list(dict.fromkeys(column for row in rows for column in row))
            cells = [[_rounded(row.get(column, "")) for column in columns] for row in rows]
            console.print(table("", (columns[0] or name, *(f"{column}>" for column in columns[1:])), cells))
        drawn = table("", ("figure", "value>"), [(name, _rounded(value)) for name, value in _flat(rest)])
        drawn.columns[0].no_wrap = True
        drawn.columns[1].no_wrap = False  # or a long value leaves no room for its name
        console.print(drawn)

    emit(figures, show=show)


def _rows(value: Any) -> list[dict[str, Any]]:
    """The rows of a table, with their names in the column "" if they have any; none if the value is not a table."""
    rows = list(value.values()) if isinstance(value, Mapping) else value
    if not isinstance(rows, list) or len(rows) < 2 or not all(isinstance(row, Mapping) for row in rows):
        return []
    if any(isinstance(cell, Mapping | list) for row in rows for cell in row.values()):
        return []
    return [{"": name, **row} for name, row in value.items()] if isinstance(value, Mapping) else rows


def _flat(figures: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Figures with those of tables and of lists of tables under names such as `runs.0.seconds`."""
    for name, value in figures.items():
        if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            value = dict(enumerate(value))
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", each) for inner, each in _flat({str(key): of for key, of in value.items()}))
        else:
            yield name, value


def _rounded(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.3f}" if abs(value) >= 1 else f"{value:.3g}"
