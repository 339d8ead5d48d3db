"""`loomrl serve` and `loomrl endpoints …`: policies behind HTTP, and which of them answer."""

import sys
import time
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, beginning, emit, table
from loomrl.experiments.commands.records import StoreUrl

if TYPE_CHECKING:
    from loomrl.store.endpoints import Arm, Endpoint

endpoints = typer.Typer(help="Manage endpoints: the names that callers use.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The endpoint's name.")]
Revision = Annotated[int | None, typer.Option(help="Refuse the change if the endpoint is at another revision.")]
Reason = Annotated[str, typer.Option(help="Reason, kept on record.")]


def serve(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT] [WHAT]... [PATH=VALUE]...",
            help="WHAT is a RUN, RUN/NUMBER, a model's folder or an exported control policy's.",
        ),
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="The name that callers give as model.")] = None,
    follow: Annotated[str | None, typer.Option(help="A RUN whose newest version is served while it trains.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to serve on; beyond this machine a key is needed.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes any free port.")] = None,
    as_json: AsJson = False,
) -> None:
    """Serve policies over HTTP in the dialects of OpenAI and Anthropic, and /v1/act for control, until interrupted.

    Ray is started unless RAY_ADDRESS names one. The first WHAT is the stable arm, each further one a canary.
    """
    beginning("serve")
    from loomrl.experiments.serve import resolve_serving, serving, wait_for_the_end

    settings = {"endpoint": endpoint, "host": host, "port": port}
    experiment = resolve_serving(words or [], settings=settings, follow=follow)

    def show(console: Console) -> None:
        console.print(f"{served.endpoint} answers on {served.url} after {served.seconds:.1f} s", highlight=False)
        for arm in served.arms:
            console.print(f"  {arm['name']}: {arm['policy']}, share {arm['share']:g}", highlight=False, markup=False)
        if served.key:
            console.print(f"key (shown once): {served.key}", highlight=False, markup=False)
        console.print(f"{served.curl}", highlight=False, markup=False)
        console.print("Ctrl-C ends it.", highlight=False)

    with serving(experiment) as served:
        emit(served.as_dict(), as_json=as_json, show=show)
        sys.stdout.flush()
        wait_for_the_end()


@endpoints.command("list")
def list_all(store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """List the endpoints, with their arms and how many replicas answer."""
    from loomrl.store import open_store
    from loomrl.store.endpoints import list_endpoints
    from loomrl.store.replicas import live_replicas

    with open_store(store) as db:
        found = list_endpoints(db)
        live = [(row.endpoint, str(row.role)) for row in live_replicas(db)]
    rows = [
        (each.name, each.revision, each.state, _arms(each.arms), live.count((each.name, "policy")),
         live.count((each.name, "gateway")))
        for each in found
    ]  # fmt: skip
    columns = ("endpoint", "revision>", "state", "arms", "policies>", "gateways>")
    emit(
        {"endpoints": [_as_dict(each) for each in found]},
        as_json=as_json,
        show=lambda console: console.print(table("", columns, rows) if rows else f"No endpoints in {store}."),
    )


@endpoints.command()
def show(name: Name, store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """Show an endpoint: its arms, the replicas behind it, and its latest revisions."""
    from loomrl.store import open_store
    from loomrl.store.endpoints import ENDPOINTS, show_endpoint
    from loomrl.store.replicas import live_replicas

    with open_store(store) as db:
        found = show_endpoint(db, name)
        past = ENDPOINTS.latest(db, name=name, limit=10)
        replicas = live_replicas(db, endpoint=name)

    def render(console: Console) -> None:
        console.print(f"[bold]{found.name}[/bold]  revision {found.revision}, {found.state}", highlight=False)
        arms = [(arm.name, arm.role, f"{arm.share:g}", arm.policy) for arm in found.arms]
        console.print(table("", ("arm", "role", "share>", "policy"), arms))
        rows = [(row.role, row.state, row.version, row.address, row.node, row.pid) for row in replicas]
        console.print(table("", ("replica", "state", "version", "address", "node", "pid>"), rows))
        told = [(each.revision, _when(each.created_at), each.state, _arms(each.arms), each.reason) for each in past]
        console.print(table("", ("revision>", "at", "state", "arms", "reason"), told))

    result = {
        **_as_dict(found),
        "replicas": [asdict(row) for row in replicas],
        "history": [_as_dict(each) for each in past],
    }
    emit(result, as_json=as_json, show=render)


@endpoints.command("set")
def set_arms(
    name: Name,
    arms: Annotated[
        list[str], typer.Argument(metavar="ARM=WHAT[:SHARE[:ROLE]]...", help="Such as stable=math-1/40:0.9.")
    ],
    store: StoreUrl = "sqlite:///loom.db",
    revision: Revision = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Give an endpoint other arms or shares. What is not running yet is started by whoever serves the endpoint.

    The role is the arm's name, if that is one, else canary. A run is followed with WHAT=RUN@newest or RUN@best.
    """
    from loomrl.experiments.arms import parse_arms
    from loomrl.store import open_store
    from loomrl.store.endpoints import set_endpoint

    with open_store(store) as db:
        changed = set_endpoint(db, name, parse_arms(arms, db), at=time.time(), revision=revision, reason=reason)
    _tell(changed, as_json=as_json)


@endpoints.command()
def drain(
    name: Name,
    store: StoreUrl = "sqlite:///loom.db",
    revision: Revision = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Refuse new conversations; open ones go on. `loomrl endpoints set` opens it again."""
    from loomrl.store import open_store
    from loomrl.store.endpoints import drain_endpoint

    with open_store(store) as db:
        changed = drain_endpoint(db, name, at=time.time(), revision=revision, reason=reason)
    _tell(changed, as_json=as_json)


@endpoints.command()
def delete(
    name: Name,
    store: StoreUrl = "sqlite:///loom.db",
    revision: Revision = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Delete an endpoint: callers get 404. Its history and what was recorded stay."""
    from loomrl.store import open_store
    from loomrl.store.endpoints import delete_endpoint

    with open_store(store) as db:
        changed = delete_endpoint(db, name, at=time.time(), revision=revision, reason=reason)
    _tell(changed, as_json=as_json)


def _tell(changed: "Endpoint", *, as_json: bool) -> None:
    text = f"{changed.name}: revision {changed.revision}, {changed.state}, {_arms(changed.arms)}"
    emit(_as_dict(changed), as_json=as_json, show=lambda console: console.print(text, highlight=False, markup=False))


def _as_dict(endpoint: "Endpoint") -> dict[str, Any]:
    return asdict(endpoint)


def _arms(arms: "tuple[Arm, ...]") -> str:
    return ", ".join(f"{arm.name}={arm.policy}:{arm.share:g}" for arm in arms)


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
