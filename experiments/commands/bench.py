"""`loomrl bench`: measurements behind the figures in docs/benchmarks.md."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table

app = typer.Typer(help="Measure this machine; the figures in docs/benchmarks.md come from here.", no_args_is_help=True)
Quick = Annotated[bool, typer.Option("--quick", help="Little work: a smoke test, no figure.")]


@app.command()
def hub(
    quick: Annotated[bool, typer.Option("--quick", help="A hundredth of the work: a smoke test, no figure.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tokens ingested per second, durably: in process, over HTTP, and by a JSON server; cost of a lease as the hub
    grows.
    """
    from loomrl.experiments.bench.hub import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json, shown=_rounded)


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
    _tell(figures, as_json=as_json, shown=_rounded)


@app.command()
def serve(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Seconds to the first answer, acts per second, what the gateway adds to the bare engine, many open streams."""
    from loomrl.experiments.bench.serve import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def hosts(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Seconds and bytes of an update by hosts and bandwidth, all-reduce, weights by Nexus and whole, a hub over the
    wire; on hosts of a lab, which needs root.
    """
    from loomrl.experiments.bench.hosts import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def monitor(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """CPU time of the monitor's rules for an answer and for an action."""
    from loomrl.experiments.bench.monitor import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def metrics(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """CPU time of a call with and without a gateway's metrics, and of a scrape."""
    from loomrl.experiments.bench.metrics import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def rewards(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Trajectories judged per second, and milliseconds from feedback on record to its reward on record."""
    from loomrl.experiments.bench.rewards import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def analytics(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Trajectories per second that are loaded as columns from LoomDB, and the time of the standard questions."""
    from loomrl.experiments.bench.analytics import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def console(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Milliseconds of the console's pages over a million trajectories, and from a commit to the browser."""
    from loomrl.experiments.bench.console import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def bus(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Trajectories per second that agents publish on NATS and that are then durable in their hubs, and the delay of
    each.
    """
    from loomrl.experiments.bench.bus import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
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


@app.command("async")
def asynchronous(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Seconds until equal success, with rollouts that overlap with learning and with rollouts that alternate
    with it.
    """
    from loomrl.experiments.bench.overlap import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def control(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """PPO and SAC against RLlib's own and, if installed, Stable-Baselines3: steps per second of CPU time."""
    from loomrl.experiments.bench.control import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
    _tell(figures, as_json=as_json)


@app.command()
def weave(
    only: Annotated[str | None, typer.Option(help="One part, as ablations, which are not measured otherwise.")] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """WEAVE's fronts on the shipped experiments, against PGMORL if installed, and its cost against PPO's."""
    from loomrl.experiments.bench.weave.fronts import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL, only)
    _tell(figures, as_json=as_json, left_out="_runs")


@app.command()
def steer(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """One steerable language policy against a policy for every preference and mixed weights, at equal samples."""
    from loomrl.experiments.bench.weave.steer import FULL, QUICK, measure

    _tell(measure(QUICK if quick else FULL), as_json=as_json, left_out="_runs", shown=_rounded)


@app.command()
def replay(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Success per generated token with experience replay, against fresh attempts only."""
    from loomrl.experiments.bench import contest

    figures = contest.measure(contest.replay, contest.QUICK if quick else contest.FULL)
    _tell(figures, as_json=as_json, shown=_rounded, left_out="_runs")


@app.command()
def losses(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Success per generated token with the bounds of PPO, DAPO, GSPO and CISPO, with none, and with one step."""
    from loomrl.experiments.bench import contest

    figures = contest.measure(contest.losses, contest.QUICK if quick else contest.FULL)
    _tell(figures, as_json=as_json, shown=_rounded, left_out="_runs")


@app.command()
def league(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Self-play in a league against a frozen first version, random moves, and rewards by a coin, at equal samples."""
    from loomrl.experiments.bench.league import FULL, QUICK, measure

    _tell(measure(QUICK if quick else FULL), as_json=as_json, left_out="_runs", shown=_rounded)


@app.command()
def meta(
    only: Annotated[list[str] | None, typer.Option(help="bandit, grid or cartpole; may be repeated.")] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Return by trial on held-out tasks: with a memory, without one, fine-tuned; bandits also by known algorithms."""
    from loomrl.experiments.bench.meta.measure import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL, only or ())
    _tell(figures, as_json=as_json, shown=_rounded, left_out="_runs")


@app.command()
def offline(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """IQL and behaviour cloning on half good, half random episodes of Pendulum, and how they go on online."""
    from loomrl.experiments.bench.logs.offline import FULL, QUICK, measure

    _tell(measure(QUICK if quick else FULL), as_json=as_json, shown=_rounded)


@app.command()
def estimates(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Coverage and error of estimates from logged probabilities, in a bandit whose value is known."""
    from loomrl.experiments.bench.logs.bandit import FULL, QUICK, measure

    _tell(measure(QUICK if quick else FULL), as_json=as_json, shown=_rounded)


@app.command()
def sync(
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Transfer of weights to engines: the cost of checks, the size of deltas, the time to a first token."""
    from loomrl.experiments.bench.sync import FULL, QUICK, measure

    figures = measure(QUICK if quick else FULL)
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
    quick: Annotated[bool, typer.Option("--quick", help="Few releases: a smoke test, no figure.")] = False,
    as_json: AsJson = False,
) -> None:
    """Simulated releases: good versions that come back, bad ones that get through, units until one is noticed; beside
    peeking at a z-test and fixed thresholds.
    """
    if picture is not None:
        from loomrl.experiments.bench.release_picture import draw

        return draw(picture)
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


def _tell(
    figures: Mapping[str, Any], *, as_json: bool, shown: Callable[[Any], Any] = str, left_out: str | None = None
) -> None:
    """Print figures, one per line for people; names that end in `left_out` are only in the JSON."""
    told = {name: value for name, value in figures.items() if left_out is None or not name.endswith(left_out)}
    drawn = table("", ("figure", "value>"), [(name, shown(value)) for name, value in _flat(told)])
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


def _rounded(value: Any) -> Any:
    return f"{value:,.3f}" if isinstance(value, float) else value
