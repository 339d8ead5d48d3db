"""`loomrl bench`: measurements behind the figures in docs/benchmarks.md."""

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table

app = typer.Typer(help="Measure this machine; the figures in docs/benchmarks.md come from here.", no_args_is_help=True)
Quick = Annotated[bool, typer.Option("--quick", help="Little work: a smoke test, no figure.")]
PLAIN = {
    "hub": (
        "hub",
        "Tokens ingested per second, durably: in process, over HTTP, and by a JSON server; cost of a lease as the hub "
        "grows.",
    ),
    "serve": (
        "serve",
        "Seconds to the first answer, acts per second, what the gateway adds to the bare engine, many open streams.",
    ),
    "hosts": (
        "hosts",
        "Seconds and bytes of an update by hosts and bandwidth, all-reduce, weights by Nexus and whole, a hub "
        "over the wire; on hosts of a lab, which needs root.",
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
    "sync": (
        "sync",
        "Transfer of weights to engines: the cost of checks, the size of deltas, the time to a first token.",
    ),
}
"""Benchmarks without options of their own: command → module and help."""


def _plain(command: str, module: str, says: str) -> None:
    def run(quick: Quick = False, as_json: AsJson = False) -> None:
        _measure(module, quick=quick, as_json=as_json)

    app.command(command, help=says)(run)


def _measure(module: str, *, quick: bool, as_json: bool, **asked: Any) -> None:
    bench = importlib.import_module(f"loomrl.experiments.bench.{module}")
    _tell(bench.measure(bench.QUICK if quick else bench.FULL, **asked), as_json=as_json)


for _command, (_module, _says) in PLAIN.items():
    _plain(_command, _module, _says)


@app.command()
def language(
    quick: Quick = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="A model of half a billion parameters on a GPU.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tokens per second of engine (against vLLM, if installed) and learner; the phases of an update."""
    from loomrl.experiments.bench.language import FULL, QUICK, measure
    from loomrl.experiments.bench.model import HALF_BILLION

    figures = measure(QUICK if quick else HALF_BILLION if gpu else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def loop(
    seed: Annotated[list[int], typer.Option(help="May be repeated.")] = [1],  # noqa: B006 - typer's way
    control: Annotated[bool, typer.Option("--control", help="Also a production with shuffled feedback.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write the story as an HTML file.")] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """People's satisfaction before and after the next version was trained from their feedback; then they flip it."""
    from loomrl.experiments.bench.loop import CONTROL, SHOWN

    tellings = (SHOWN, CONTROL) if control else (SHOWN,)
    _measure("loop", quick=quick, as_json=as_json, seeds=seed, tellings=tellings, page=page)


@app.command()
def envs(
    only: Annotated[list[str] | None, typer.Option(help="An environment; may be repeated. By default all.")] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Tasks and turns per second of every environment, and of 10,000 episodes of all that two actors hold at once."""
    _measure("envs", quick=quick, as_json=as_json, only=only or ())


@app.command()
def release(
    planted: Annotated[
        bool, typer.Option("--planted", help="Versions that are bad although nobody says so, by the default plan.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Few releases: a smoke test, no figure.")] = False,
    as_json: AsJson = False,
) -> None:
    """Simulated releases: good versions that come back, bad ones that get through, units until one is noticed; beside
    peeking at a z-test and fixed thresholds.
    """
    _measure("release_planted" if planted else "release", quick=quick, as_json=as_json)


def _tell(figures: Mapping[str, Any], *, as_json: bool) -> None:
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

    emit(figures, as_json=as_json, show=show)


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
