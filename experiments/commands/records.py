"""`loomrl runs`, `loomrl lineage`, `loomrl league` and `loomrl export`: recorded runs and policy versions."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.group import DEFAULT, DefaultGroup
from loomrl.experiments.commands.output import AsJson, emit, table

exports = typer.Typer(
    cls=DefaultGroup,
    help="Copy a policy version out of the artifacts, or write an endpoint's configuration for others.",
    no_args_is_help=True,
)
Scraped = Annotated[
    str | None,
    typer.Option("--metrics", envvar="LOOMRL_METRICS", help="HOST:PORT for Prometheus; port 0 takes any that is free."),
]
StoreUrl = Annotated[
    str, typer.Option("--store", envvar="LOOMRL_STORE", help="LoomDB: sqlite:///FILE or postgresql://…")
]

Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="How many at most.")]


def runs(store: StoreUrl = "sqlite:///loom.db", limit: Limit = 20, as_json: AsJson = False) -> None:
    """List the latest runs, with what they measured last."""
    from loomrl.console.run_table import results_of
    from loomrl.store import open_store
    from loomrl.store.runs import RUNS

    with open_store(store) as db:
        found = RUNS.latest(db, limit=limit)
        results = results_of(db, [run.id for run in found])
    rows = [
        (
            run.id,
            run.name,
            run.kind,
            run.status,
            f"{datetime.fromtimestamp(run.started_at):%Y-%m-%d %H:%M:%S}",
            f"{results[run.id].title} {results[run.id].text}" if run.id in results else "",
        )
        for run in found
    ]
    columns = ("run", "experiment", "kind", "status", "started", "latest")
    emit(
        {"runs": [asdict(run) for run in found]},
        as_json=as_json,
        show=lambda console: console.print(table("", columns, rows) if rows else f"No runs in {store}."),
    )


def stop(
    run: Annotated[str, typer.Argument(help="A run that is being trained, on whatever machine.")],
    why: Annotated[str, typer.Option(help="Stays on record.")] = "no reason given",
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Ask a run to end after its present update, with a checkpoint. `loomrl train --resume --run RUN` goes on."""
    import getpass
    import time

    from loomrl.store import open_store
    from loomrl.store.runs import ask_to_stop

    with open_store(store) as db:
        ask_to_stop(db, run, who=getpass.getuser(), why=why, at=time.time())
    said = f"{run} ends after its present update."
    emit({"run": run}, as_json=as_json, show=lambda console: console.print(said, highlight=False))


def lineage(
    policy: Annotated[str, typer.Argument(help="A policy version, such as RUN/12; of RUN the last.")],
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Show a policy version's origins, back to the first, and its descendants."""
    from loomrl.run.version import find_version
    from loomrl.store import open_store
    from loomrl.store.policies import lineage as trace

    with open_store(store) as db:
        last = find_version(policy, db)
        found = trace(db, policy if last is None else last.id)

    emit(found, as_json=as_json, show=lambda console: _render_lineage(found, console))


def _render_lineage(found: Mapping[str, Any], console: Console) -> None:
    for version in [found, *found["ancestors"]]:
        made = version["made_from"]
        made_at = f"{datetime.fromtimestamp(version['created_at']):%Y-%m-%d %H:%M:%S}"
        environments = ", ".join(f"{name} ({hash[:12]})" for name, hash in made["environments"].items())
        parent = version["parent"] or made["run"]["parent_policy"]
        console.print(
            f"[bold]{version['id']}[/bold]: a {version['stage']}, made by {version['algorithm']} at {made_at}"
        )
        console.print(
            f"  from {parent or 'nothing earlier'}, by training on {_in_words(made['data'])}", highlight=False
        )
        console.print(f"  in {environments}", highlight=False)
        console.print(f"  experiment {made['run']['name']} ({made['experiment'][:12]}), code {made['code'][:12]}")
    for kind in ("children", "evaluations", "deployments"):
        if found[kind]:
            console.print(f"{kind}: {', '.join(found[kind])}", highlight=False)


def _in_words(data: Mapping[str, Any]) -> str:
    """The data that a version was trained on: counts before their nouns, long lists as their length."""
    parts = []
    for name, value in data.items():
        if isinstance(value, Mapping):
            parts.append(f"{name} ({_in_words(value)})")
        elif isinstance(value, list | tuple):
            parts.append(f"{len(value):,} {name}")
        elif isinstance(value, int | float):
            parts.append(f"{value:,} {name}" if name.endswith("s") else f"{name} {value:,}")
        elif value:
            parts.append(f"{name} {value}")
    return ", ".join(parts) or "nothing yet"


def league(
    run: Annotated[str, typer.Argument(help="A run whose opponents are drawn by a league.")],
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Show ratings of a run's versions and scripted opponents, and who won against whom, as of its last checkpoint."""
    import json

    from loomrl.algorithms.language.league import standings
    from loomrl.errors import ConfigError
    from loomrl.run.version import file_of, find_version
    from loomrl.store import open_store

    with open_store(store) as db:
        version = find_version(run, db)
        state = None if version is None else file_of(version, db, "line.json")
    if version is None:
        raise ConfigError(f"there is no version of a run {run!r} in {store}: `loomrl runs` lists them.")
    if state is None:
        raise ConfigError(f"the checkpoint of {version.id} is gone: name the run, {version.run}, for that of its last.")
    kept = json.loads(state).get("league")
    if not kept:
        raise ConfigError(f"run {version.run} has no league: its experiment says nowhere opponent.kind=league.")
    found = {"version": version.id, **standings(kept)}
    emit(found, as_json=as_json, show=lambda console: _render_league(found, console))


def _render_league(found: Mapping[str, Any], console: Console) -> None:
    """Ratings, then a row for whoever had the first seat, with its share of points and the number of games."""
    ratings = found["ratings"]
    title = f"Ratings as of {found['version']}, in Elo with 95% intervals"
    columns = ("player", "rating>", "interval>", "games>", "in the pool")
    rated = [
        (one["player"], f"{one['rating']:.0f}", _between(one), one["games"], "yes" if one["member"] else "")
        for one in ratings
    ]
    console.print(table(title, columns, rated))
    console.print(
        f"\nThe first seat is worth {found['advantage']['rating']:.0f} {_between(found['advantage'])}.\n",
        highlight=False,
    )
    met = {(each["player"], each["opponent"]): each for each in found["results"]}
    names = [each["player"] for each in ratings]
    firsts, seconds = ([name for name in names if any(pair[seat] == name for pair in met)] for seat in (0, 1))
    rows = [(first, *(_points(met.get((first, second))) for second in seconds)) for first in firsts]
    console.print(table("Share of points, and games", ("", *(f"{name}>" for name in seconds)), rows))


def _between(rating: Mapping[str, float]) -> str:
    return f"[{rating['low']:.0f}, {rating['high']:.0f}]"


def _points(result: Mapping[str, Any] | None) -> str:
    return "" if result is None else f"{result['points'] / result['games']:.2f} ({result['games']})"


@exports.command(DEFAULT)
def export(  # noqa: PLR0913 - a command with its options
    policy: Annotated[str, typer.Argument(help="RUN (its last version) or RUN/NUMBER.")],
    folder: Annotated[Path, typer.Argument(help="Target folder; must be empty if it exists.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="Of control: also policy.onnx, its greedy path.")] = False,
    stable_baselines: Annotated[
        bool,
        typer.Option("--stable-baselines", help="Of control: also stable_baselines.zip, for its PPO.load."),
    ] = False,
    preference: Annotated[
        str | None,
        typer.Option(help="Of a language policy that reads one: have it always, as correctness=0.7,brevity=0.3."),
    ] = None,
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Copy a policy version out of the artifacts: a Hugging Face folder, or one that ControlPolicy loads."""
    from loomrl.experiments.policies import exported
    from loomrl.gym.preference import parse_preference
    from loomrl.store import open_store

    with open_store(store) as db:
        asked = None if preference is None else parse_preference(preference)
        version = exported(policy, db, folder, onnx=onnx, stable_baselines=stable_baselines, preference=asked)
    result = {"policy": version, "folder": str(folder)}
    emit(result, as_json=as_json, show=lambda console: console.print(f"{version} is in {folder}", highlight=False))


def take_over(
    file: Annotated[Path, typer.Argument(help="A zip file that Stable-Baselines3 wrote: PPO, A2C or SAC.")],
    folder: Annotated[Path, typer.Argument(help="Target folder; must be empty if it exists.")],
    environment: Annotated[str, typer.Option(help="The environment that it was made for, such as CartPole-v1.")],
    most_mb: Annotated[float, typer.Option(min=1, help="Megabytes of it that are read at most, unpacked.")] = 512.0,
    as_json: AsJson = False,
) -> None:
    """Take over a policy of Stable-Baselines3: a folder to evaluate, serve and gate. Nothing pickled is read."""
    from contextlib import closing

    from loomrl.config import GymnasiumEnvironment
    from loomrl.control.environment import open_environment
    from loomrl.control.stable_baselines import read
    from loomrl.experiments.policies import refuse_full

    refuse_full(folder)
    with closing(open_environment(GymnasiumEnvironment(id=environment), {})) as place:
        read(file, place.observation_space, place.action_space, most_mb=most_mb).save(folder)
    result = {"file": str(file), "folder": str(folder), "environment": environment}
    emit(result, as_json=as_json, show=lambda console: console.print(f"{file} is in {folder}", highlight=False))


@exports.command()
def tensorzero(
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="The name that callers give as model.")],
    file: Annotated[Path, typer.Option("--to", help="The file to write.")] = Path("tensorzero.toml"),
    url: Annotated[str | None, typer.Option(help="The gateway's; by default that of the service that is up.")] = None,
    key_variable: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the key, if callers need one.")
    ] = None,
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Write a tensorzero.toml whose function is an endpoint, and whose variants are its arms."""
    from loomrl.errors import ConfigError
    from loomrl.experiments.tensorzero import configuration
    from loomrl.store import open_store
    from loomrl.store.endpoints import show_endpoint
    from loomrl.store.replicas import front_of

    with open_store(store) as db:
        present = show_endpoint(db, endpoint)
        url = url or front_of(db, endpoint)
    if url is None:
        raise ConfigError(f"endpoint {endpoint!r} is not served now: say where it will be, --url http://HOST:8000.")
    file.write_text(configuration(present, url=url, key_variable=key_variable), encoding="utf-8")
    result = {"endpoint": endpoint, "revision": present.revision, "url": url, "file": str(file)}
    emit(result, as_json=as_json, show=lambda console: console.print(f"{endpoint} is in {file}", highlight=False))
