"""`loomrl release …`: versions on their way to an endpoint's traffic, and back."""

import getpass
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.group import DEFAULT, DefaultGroup
from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import Limit, StoreUrl

if TYPE_CHECKING:
    from loomrl.release.ledger import Release
    from loomrl.release.passage import Word
    from loomrl.store import LoomDB

app = typer.Typer(
    cls=DefaultGroup,
    help="Release a version to an endpoint, step by step: `loomrl release VERSION --to ENDPOINT`.",
    no_args_is_help=True,
)
WATCH_S = 0.5
RECENT = 1000
"""Rows of observations that tell which metrics an endpoint has."""
Endpoint = Annotated[str, typer.Argument(metavar="ENDPOINT", help="The name that callers give as model.")]
Who = Annotated[str, typer.Option(help="Your name; by default your account's.")]
Why = Annotated[str, typer.Option(help="Reason, kept on record.")]
Watch = Annotated[bool, typer.Option("--watch", help="Show it until it ends; exit status 1 if it was rolled back.")]


@app.command(DEFAULT)
def run(  # noqa: PLR0913 - a command with its options
    version: Annotated[str, typer.Argument(help="RUN, RUN/12, a model's folder, an exported control policy.")],
    settings: Annotated[list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Plan settings.")] = None,
    to: Annotated[str, typer.Option(help="The endpoint.")] = "policy",
    strategy: Annotated[
        str | None, typer.Option(help="canary, blue_green, immediate or shadow; by default as the gate advises.")
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="A plan file.")] = None,
    suite: Annotated[
        str | None, typer.Option(help="Suite of the gate; control policies need one, others have a default.")
    ] = None,
    no_gate: Annotated[
        str | None, typer.Option(metavar="REASON", help="Skip the gate; the reason is kept on record.")
    ] = None,
    who: Who = "",
    why: Why = "",
    watch: Watch = False,
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Begin the release of a version. Whoever serves the endpoint moves it on, or back, by itself."""
    from loomrl.errors import ConfigError
    from loomrl.experiments.release import ReleaseRequest, begin, resolve_plan
    from loomrl.store import open_store

    if no_gate is not None and suite is not None:
        raise ConfigError("--suite has no effect with --no-gate: leave one out.")
    request = ReleaseRequest(
        version=version,
        endpoint=to,
        plan=resolve_plan(plan, settings or [], strategy),
        suite=suite,
        no_gate=no_gate,
        who=who or getpass.getuser(),
        why=why,
    )
    with open_store(store) as db:
        begun = begin(request, db)
        if not watch:
            _tell(begun, as_json=as_json)
            _warn(begun, db)
            return
        _watch(db, to, as_json=as_json)


@app.command()
def status(
    endpoint: Endpoint,
    watch: Watch = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw its shares and its evidence over time.")
    ] = None,
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Show the endpoint's latest release: its step, the evidence, and why it waits."""
    from loomrl.experiments.release_picture import draw
    from loomrl.experiments.release_view import look_as_json, render
    from loomrl.release.controller import Observer
    from loomrl.store import open_store
    from loomrl.store.releases import show_release

    with open_store(store) as db:
        if watch:
            _watch(db, endpoint, as_json=as_json)
            return
        rows = show_release(db, endpoint)
        look = Observer(db, endpoint).look(is_ended_too=True)
        assert look is not None
        if picture is not None:
            draw(picture, look, rows, db)
    emit(look_as_json(look, rows), as_json=as_json, show=lambda console: console.print(render(look, rows)))


@app.command("list")
def list_all(
    endpoint: Annotated[str | None, typer.Option(help="Only those of this endpoint.")] = None,
    store: StoreUrl = "sqlite:///loom.db",
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest releases."""
    from loomrl.experiments.release_view import row_as_json
    from loomrl.store import open_store
    from loomrl.store.releases import list_releases

    with open_store(store) as db:
        found = list_releases(db, limit=limit, endpoint=endpoint)
    rows = [(row.release, row.state, row.content["challenger"], row.content["baseline"], row.reason) for row in found]
    emit(
        {"releases": [row_as_json(row) for row in found]},
        as_json=as_json,
        show=lambda console: console.print(
            table("", ("release", "state", "version", "against", "reason"), rows)
            if rows
            else f"No releases in {store}."
        ),
    )


@app.command()
def approve(
    endpoint: Endpoint, who: Who = "", why: Why = "", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False
) -> None:
    """Approve the next step that needs it; only those whom the plan names may."""
    from loomrl.release.passage import Word

    _say(endpoint, Word.APPROVE, who=who, why=why, store=store, as_json=as_json)


@app.command()
def pause(
    endpoint: Endpoint, who: Who = "", why: Why = "", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False
) -> None:
    """Hold the release in its step. A version that is proved worse goes back all the same."""
    from loomrl.release.passage import Word

    _say(endpoint, Word.PAUSE, who=who, why=why, store=store, as_json=as_json)


@app.command()
def resume(
    endpoint: Endpoint, who: Who = "", why: Why = "", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False
) -> None:
    """Let a paused release move on."""
    from loomrl.release.passage import Word

    _say(endpoint, Word.RESUME, who=who, why=why, store=store, as_json=as_json)


@app.command()
def abort(
    endpoint: Endpoint, who: Who = "", why: Why = "", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False
) -> None:
    """End an open release: all traffic returns to the stable version, and the new one stays a candidate."""
    from loomrl.release.passage import Word

    _say(endpoint, Word.ABORT, who=who, why=why, store=store, as_json=as_json)


@app.command()
def rollback(
    endpoint: Endpoint, who: Who = "", why: Why = "", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False
) -> None:
    """Take the latest release back, also a finished one: the former version is stable again, the new one retired."""
    from loomrl.release.passage import Word

    _say(endpoint, Word.ROLLBACK, who=who, why=why, store=store, as_json=as_json)


@app.command()
def control(endpoint: Endpoint, store: StoreUrl = "sqlite:///loom.db") -> None:
    """Control the endpoint's releases until interrupted. `loomrl serve` does so by itself; any number may."""
    from loomrl.errors import StoreError
    from loomrl.release.controller import PACE_S, Controller
    from loomrl.store import open_store
    from loomrl.store.endpoints import show_endpoint

    with open_store(store) as db:
        show_endpoint(db, endpoint)
        controller = Controller(db, endpoint)
        while True:
            try:
                moved = controller.tick()
            except StoreError as error:  # the database may be away for a while
                print(f"loomrl: {error}", file=sys.stderr)
            else:
                if moved is not None:
                    print(f"{moved.row.release} {moved.row.state}: {moved.row.reason}", flush=True)
            time.sleep(PACE_S)


def _say(endpoint: str, word: "Word", *, who: str, why: str, store: str, as_json: bool) -> None:
    from loomrl.release.ledger import tell
    from loomrl.store import open_store

    with open_store(store) as db:
        told = tell(db, endpoint, word, who=who or getpass.getuser(), why=why, at=time.time())
    _tell(told, as_json=as_json)


def _tell(release: "Release", *, as_json: bool) -> None:
    from loomrl.experiments.release_view import row_as_json

    row = release.row
    text = f"{row.release} {row.state}: {row.reason}"
    emit(row_as_json(row), as_json=as_json, show=lambda console: console.print(text, highlight=False, markup=False))


def _warn(release: "Release", db: "LoomDB") -> None:
    """Name the guards that this endpoint has had no observations of lately, on the error output."""
    from loomrl.release.guard import unheard
    from loomrl.release.passage import guards_of
    from loomrl.store.observations import latest_observations

    heard = {each.metric for each in latest_observations(db, release.row.endpoint, rows=RECENT)}
    for silence in unheard(guards_of(release.plan), heard):
        print(f"not seen yet: {silence}", file=sys.stderr)


def _watch(db: "LoomDB", endpoint: str, *, as_json: bool) -> None:
    """Show the latest release until it ends."""
    from rich.live import Live

    from loomrl.experiments.release_view import look_as_json, render
    from loomrl.release.controller import Observer
    from loomrl.store.releases import show_release

    observer = Observer(db, endpoint)
    console = Console(stderr=as_json)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            rows = show_release(db, endpoint)
            look = observer.look(is_ended_too=True)
            assert look is not None
            live.update(render(look, rows), refresh=True)
            if not look.release.passage.is_open:
                break
            time.sleep(WATCH_S)
    if as_json:
        emit(look_as_json(look, rows), as_json=True, show=lambda _: None)
    if look.release.row.state != "done":
        raise typer.Exit(1)
