"""`loomrl runs`, `loomrl lineage` and `loomrl export`: recorded runs and policy versions."""

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

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
    """List the latest runs."""
    from loomrl.store import open_store
    from loomrl.store.runs import list_runs

    with open_store(store) as db:
        found = list_runs(db, limit=limit)
    rows = [
        (
            run.id,
            run.kind,
            run.status,
            f"{datetime.fromtimestamp(run.started_at):%Y-%m-%d %H:%M:%S}",
            run.experiment[:12],
        )
        for run in found
    ]
    columns = ("run", "kind", "status", "started", "experiment")
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
    policy: Annotated[str, typer.Argument(help="A policy version, such as RUN/12.")],
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Show a policy version's origins, back to the first, and its descendants."""
    from loomrl.store import open_store
    from loomrl.store.lineage import lineage as trace

    with open_store(store) as db:
        found = trace(db, policy)

    def render(console: Console) -> None:
        for version in [found, *found["ancestors"]]:
            made = version["made_from"]
            made_at = f"{datetime.fromtimestamp(version['created_at']):%Y-%m-%d %H:%M:%S}"
            console.print(f"[bold]{version['id']}[/bold]  {version['algorithm']}, {version['stage']}, {made_at}")
            console.print(f"  experiment {made['experiment'][:12]}, code {made['code']}, data {made['data']}")
            console.print(f"  environments {', '.join(f'{k} {v[:12]}' for k, v in made['environments'].items())}")
        for kind in ("children", "evaluations", "deployments"):
            if found[kind]:
                console.print(f"{kind}: {', '.join(found[kind])}")

    emit(found, as_json=as_json, show=render)


@exports.command(DEFAULT)
def export(
    policy: Annotated[str, typer.Argument(help="RUN (its last version) or RUN/NUMBER.")],
    folder: Annotated[Path, typer.Argument(help="Target folder; must be empty if it exists.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="Of control: also policy.onnx, its greedy path.")] = False,
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
        version = exported(policy, db, folder, onnx=onnx, preference=asked)
    result = {"policy": version, "folder": str(folder)}
    emit(result, as_json=as_json, show=lambda console: console.print(f"{version} is in {folder}", highlight=False))


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
    from loomrl.store.service.replicas import ReplicaRole, live_replicas, url_of

    with open_store(store) as db:
        present = show_endpoint(db, endpoint)
        fronts = live_replicas(db, role=ReplicaRole.FRONT, endpoint=endpoint)
    if url is None and not fronts:
        raise ConfigError(f"endpoint {endpoint!r} is not served now: say where it will be, --url http://HOST:8000.")
    url = url or url_of(fronts[0].address)
    file.write_text(configuration(present, url=url, key_variable=key_variable), encoding="utf-8")
    result = {"endpoint": endpoint, "revision": present.revision, "url": url, "file": str(file)}
    emit(result, as_json=as_json, show=lambda console: console.print(f"{endpoint} is in {file}", highlight=False))
