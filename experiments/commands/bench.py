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
    "monitor": ("monitor", "CPU time of the monitor's rules for an answer and for an action."),
    "metrics": ("metrics", "CPU time of a call with and without a gateway's metrics, and of a scrape."),
    "rewards": (
        "rewards",
        "Trajectories judged per second, and milliseconds from feedback on record to its reward on record.",
    ),
    "analytics": (
        "analytics",
        "Trajectories per second that are loaded as columns from LoomDB, and the time of the standard questions.",
    ),
    "console": (
        "console",
        "Milliseconds of the console's pages over a million trajectories, and from a commit to the browser.",
    ),
    "bus": (
        "bus",
        "Trajectories per second that agents publish on NATS and that are then durable in their hubs, and the "
        "delay of each.",
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
    "league": (
        "league",
        "Self-play in a league against a frozen first version, random moves, and rewards by a coin, at equal samples.",
    ),
    "offline": (
        "logs.offline",
        "IQL and behaviour cloning on half good, half random episodes of Pendulum, and how they go on online.",
    ),
    "estimates": (
        "logs.bandit",
        "Coverage and error of estimates from logged probabilities, in a bandit whose value is known.",
    ),
    "sync": (
        "sync",
        "Transfer of weights to engines: the cost of checks, the size of deltas, the time to a first token.",
    ),
}
"""Benchmarks without options of their own: command → module and help."""


def _plain(command: str, module: str, says: str) -> None:
    def run(quick: Quick = False, as_json: AsJson = False) -> None:
        bench = importlib.import_module(f"loomrl.experiments.bench.{module}")
        _tell(bench.measure(bench.QUICK if quick else bench.FULL), as_json=as_json)

    app.command(command, help=says)(run)


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
    from loomrl.experiments.bench.loop import CONTROL, FULL, QUICK, SHOWN, measure

    tellings = (SHOWN, CONTROL) if control else (SHOWN,)
    figures = measure(QUICK if quick else FULL, seeds=seed, tellings=tellings, page=page)
    _tell(figures, as_json=as_json)


@app.command()
def envs(
    only: Annotated[list[str] | None, typer.Option(help="An environment; may be repeated. By default all.")] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Tasks and turns per second of every environment, and of 10,000 episodes of all that two actors hold at once."""
    from loomrl.experiments.bench.envs import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL, only or ())
    alone = figures["environments"]
    columns = ("families", "tasks_per_s", "turns_per_s", "turns_per_task")
    rows = [(name, *(each.get(column, each.get("left_out", "")) for column in columns)) for name, each in alone.items()]

    def show(console: Console) -> None:
        console.print(table("", ("environment", *(f"{name}>" for name in columns)), rows))
        rest = [(name, str(value)) for name, value in figures.items() if name != "environments"]
        console.print(table("", ("figure", "value"), rest))

    emit(figures, as_json=as_json, show=show)


@app.command()
def weave(
    only: Annotated[str | None, typer.Option(help="One part, as ablations, which are not measured otherwise.")] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """WEAVE's fronts on the shipped experiments, against PGMORL if installed, and its cost against PPO's."""
    from loomrl.experiments.bench.weave.fronts import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL, only)
    _tell(figures, as_json=as_json)


@app.command()
def steer(
    only: Annotated[list[str] | None, typer.Option(help="math or dialogue; may be repeated. By default both.")] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """One steerable language policy against a policy for every preference and mixed weights, at equal samples."""
    from loomrl.experiments.bench.weave.steer import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL, only or ())
    _tell(figures, as_json=as_json)


@app.command()
def replay(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Success per generated token with experience replay, against fresh attempts only."""
    from loomrl.experiments.bench import contest

    figures = contest.measure(contest.replay, contest.QUICK if quick else contest.FULL)
    _tell(figures, as_json=as_json)


@app.command()
def losses(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Success per generated token with the bounds of PPO, DAPO, GSPO and CISPO, with none, and with one step."""
    from loomrl.experiments.bench import contest

    figures = contest.measure(contest.losses, contest.QUICK if quick else contest.FULL)
    _tell(figures, as_json=as_json)


@app.command()
def pixels(
    cleanrl: Annotated[
        Path | None, typer.Option(help="CleanRL's ppo_atari_envpool.py; without it, LoomRL alone is measured.")
    ] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """PPO on an Atari game, against CleanRL's with envpool: steps per second of CPU time."""
    from loomrl.experiments.bench.control.pixels import FULL, QUICK, measure

    _tell(measure(QUICK if quick else FULL, cleanrl), as_json=as_json)


@app.command()
def memory(
    only: Annotated[list[str] | None, typer.Option(help="An environment of popgym; may be repeated.")] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Returns in popgym's easy environments, with an LSTM and without a memory."""
    from loomrl.experiments.bench.memory.popgym import FULL, QUICK, measure

    _tell(measure(QUICK if quick else FULL, only or ()), as_json=as_json)


@app.command()
def meta(
    only: Annotated[list[str] | None, typer.Option(help="bandit, grid or cartpole; may be repeated.")] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Return by trial on held-out tasks: with a memory, without one, fine-tuned; bandits also by known algorithms."""
    from loomrl.experiments.bench.memory.trials import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL, only or ())
    _tell(figures, as_json=as_json)


@app.command()
def scale(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Cost of controller, hub and weight publication with 1 to 2,048 rollout actors, which replay a short real run."""
    from loomrl.experiments.bench.scale import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    columns = list(figures["rows"][0])
    rows = [[f"{row[name]:,}" for name in columns] for row in figures["rows"]]

    def show(console: Console) -> None:
        console.print(table("", [f"{name}>" for name in columns], rows))
        rest = [(name, str(value)) for name, value in figures.items() if name != "rows"]
        console.print(table("", ("figure", "value"), rest))

    emit(figures, as_json=as_json, show=show)


@app.command()
def release(
    picture: Annotated[
        Path | None, typer.Option(help="Draw the bounds of two releases into this file, and measure nothing.")
    ] = None,
    planted: Annotated[
        bool, typer.Option("--planted", help="Versions that are bad although nobody says so, by the default plan.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Few releases: a smoke test, no figure.")] = False,
    as_json: AsJson = False,
) -> None:
    """Simulated releases: good versions that come back, bad ones that get through, units until one is noticed; beside
    peeking at a z-test and fixed thresholds.
    """
    if picture is not None:
        from loomrl.experiments.bench.release_picture import draw

        return draw(picture)
    if planted:
        from loomrl.experiments.bench.release_planted import measure as measure_planted

        return _tell(measure_planted(quick=quick), as_json=as_json)
    from loomrl.experiments.bench.release import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    rates = figures["false_rollbacks"]
    rules = tuple(next(iter(rates.values())))
    rows = [(name, *(f"{each[rule]:.3f}" for rule in rules)) for name, each in rates.items()]

    def show(console: Console) -> None:
        console.print(table("", ("good versions rolled back", *(f"{rule}>" for rule in rules)), rows))
        rest = [(name, str(value)) for name, value in figures.items() if name != "false_rollbacks"]
        console.print(table("", ("figure", "value"), rest))

    return emit(figures, as_json=as_json, show=show)


def _tell(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print figures, one per line for people; names that end in `_runs` are only in the JSON."""
    told = {name: value for name, value in figures.items() if not name.endswith("_runs")}
    drawn = table("", ("figure", "value>"), [(name, _rounded(value)) for name, value in _flat(told)])
    drawn.columns[0].no_wrap, drawn.columns[1].no_wrap = True, False  # or a long value leaves no room for its name
    emit(figures, as_json=as_json, show=lambda console: console.print(drawn))


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
