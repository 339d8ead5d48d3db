"""`loomrl console`: runs, trajectories, releases and feedback in a browser."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from loomrl.experiments.commands.analytics import Where
from loomrl.experiments.commands.records import StoreUrl
from loomrl.experiments.commands.tls import Tls


def console(  # noqa: PLR0913 - a command with its options
    store: StoreUrl = "sqlite:///loom.db",
    host: Annotated[
        str, typer.Option(help="Address to serve on; beyond this machine everybody needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one.")] = 8010,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name of the console, as behind a proxy; repeatable.")
    ] = None,
    tls: Tls = None,
    analytics: Where = None,
    launch: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Let operators start and resume runs, as processes of this machine with logs in this folder.",
        ),
    ] = None,
) -> None:
    """Serve the console over a store until interrupted.

    People sign in with keys (`loomrl keys create NAME --scope view`, or rate, operate, admin). On this machine alone it
    is open to everybody as long as no such key is on record.
    """
    from loomrl.console.serve import open_console, serve_console
    from loomrl.console.source import open_source
    from loomrl.experiments.launch import LocalLauncher
    from loomrl.http.tls import Certificate

    source = open_source(store)
    try:
        names = tuple(allow_host or ())
        shown = tls and Certificate(*tls)
        door = open_console(source, host, port, allowed_hosts=names, certificate=shown, now=time.time())
        print(f"console of {source.db.location} on {door.url}", file=sys.stderr, flush=True)
        launcher = None if launch is None else LocalLauncher(store, launch)
        serve_console(source, door, launcher=launcher, analytics=analytics)
    finally:
        source.close()
