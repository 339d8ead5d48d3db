"""`loomrl release …`: versions on their way to an endpoint's traffic, and back."""

import getpass
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.face import RUN, NoGate, Who, Why, face, open_face_store, verb, without
from loomrl.experiments.commands.listing import add_list
from loomrl.experiments.commands.output import emit, print_json
from loomrl.record.catalogue import RELEASE_RECORDS, release_as_json

if TYPE_CHECKING:
    from loomrl.release.ledger import Release
    from loomrl.store import LoomDB

app = verb("Release a version to an endpoint, step by step: `loomrl release VERSION --to ENDPOINT`.")
WATCH_S = 0.5
RECENT = 1000
"""Rows of observations that tell which metrics an endpoint has."""
Endpoint = Annotated[str, typer.Argument(metavar="ENDPOINT", help="The name that callers give as model.")]
Watch = Annotated[bool, typer.Option("--watch", help="Show it until it ends; exit status 1 if it was rolled back.")]


@app.command(RUN)
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
    no_gate: NoGate = None,
    who: Who = "",
    why: Why = "",
    watch: Watch = False,
) -> None:
    """Begin the release of a version. The endpoint's service moves it on, or back, by itself."""
    from loomrl.errors import ConfigError
    from loomrl.experiments.release import ReleaseRequest, begin, resolve_plan

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
    with open_face_store() as db:
        begun = begin(request, db)
        if not watch:
            _print_release(begun)
            _warn(begun, db)
            return
        _watch(db, to)


def _show(
    endpoint: Endpoint,
    *,
    watch: Watch = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw its shares and its evidence over time.")
    ] = None,
) -> None:
    """Show the endpoint's latest release: its step, the evidence, and why it waits."""
    from loomrl.experiments.release_picture import draw
    from loomrl.experiments.release_view import look_as_json, render
    from loomrl.release.controller import ReleaseObserver
    from loomrl.store.releases import show_release

    with open_face_store() as db:
        if watch:
            _watch(db, endpoint)
            return
        rows = show_release(db, endpoint)
        look = ReleaseObserver(db, endpoint).look(is_ended_too=True)
        assert look is not None
        if picture is not None:
            draw(picture, look, rows, db)
    emit(look_as_json(look, rows), show=lambda console: console.print(render(look, rows)))


add_list(app, RELEASE_RECORDS, show=_show)


WORDS = {
    "approve": "Approve the next step that needs it; only the people whom the plan names may.",
    "pause": "Hold the release in its step. A version that is proved worse is rolled back all the same.",
    "resume": "Let a paused release move on.",
    "abort": "End an open release: all traffic returns to the stable version, and the new one stays a candidate.",
    "rollback": "Take back the latest release, even a finished one: the former version becomes stable again.",
}
"""Word → what it does to the endpoint's latest release."""


def _command(word: str) -> None:
    def say(endpoint: Endpoint, who: Who = "", why: Why = "") -> None:
        from loomrl.release.ledger import command_release
        from loomrl.release.passage import parse_command

        with open_face_store() as db:
            release = command_release(
                db, endpoint, parse_command(word), who=who or getpass.getuser(), why=why, at=time.time()
            )
        _print_release(release)

    app.command(word, help=WORDS[word])(say)


for _word in WORDS:
    _command(_word)


@app.command()
@without("--json")
def control(
    endpoint: Endpoint,
) -> None:
    """Control the endpoint's releases until interrupted. `loomrl serve` does so by itself; any number may."""
    from loomrl.errors import StoreError
    from loomrl.release.controller import PACE_S, Controller
    from loomrl.store.endpoints import show_endpoint

    with open_face_store() as db:
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


def _print_release(release: "Release") -> None:
    row = release.row
    text = f"{row.release} {row.state}: {row.reason}"
    emit(release_as_json(row), text)


def _warn(release: "Release", db: "LoomDB") -> None:
    """Name the guards that this endpoint has had no observations of lately, on the error output."""
    from loomrl.release.guard import unobserved
    from loomrl.release.passage import guards_of
    from loomrl.store.observations import latest_observations

    heard = {each.metric for each in latest_observations(db, release.row.endpoint, rows=RECENT)}
    for silence in unobserved(guards_of(release.plan), heard):
        print(f"not seen yet: {silence}", file=sys.stderr)


def _watch(db: "LoomDB", endpoint: str) -> None:
    """Show the latest release until it ends."""
    from rich.live import Live

    from loomrl.experiments.release_view import look_as_json, render
    from loomrl.release.controller import ReleaseObserver
    from loomrl.store.releases import show_release

    observer = ReleaseObserver(db, endpoint)
    console = Console(stderr=face().as_json)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            rows = show_release(db, endpoint)
            look = observer.look(is_ended_too=True)
            assert look is not None
            live.update(render(look, rows), refresh=True)
            if not look.release.passage.is_open:
                break
            time.sleep(WATCH_S)
    if face().as_json:
        print_json(look_as_json(look, rows))
    if look.release.row.state != "done":
        raise typer.Exit(1)
