"""`loomrl metrics`: the record for Prometheus, and the files of a monitoring stack."""

import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from loomrl.experiments.commands.group import DEFAULT, DefaultGroup
from loomrl.experiments.commands.output import AsJson, emit
from loomrl.experiments.commands.records import StoreUrl

app = typer.Typer(
    cls=DefaultGroup,
    help="Let Prometheus scrape what is on record: `loomrl metrics --store URL`.",
)


@app.command(DEFAULT)
def run(
    store: StoreUrl = "sqlite:///loom.db",
    address: Annotated[
        str, typer.Option(help="HOST:PORT; beyond this machine LOOMRL_METRICS_TOKEN is needed.")
    ] = "127.0.0.1:9464",
) -> None:
    """Serve /metrics of the record, and /targets, what else there is to scrape, until interrupted.

    Any number of these may run: they say the same. Scrape one.
    """
    from loomrl.observability.exposition import door_at, exposed
    from loomrl.store import open_store
    from loomrl.telemetry.record import record_routes

    door = door_at(address)
    with open_store(store) as db, record_routes(db, store) as routes, exposed(door, routes) as url:
        print(f"metrics of {db.location} on {url}/metrics; Ctrl-C ends it", file=sys.stderr, flush=True)
        threading.Event().wait()


@app.command()
def files(
    folder: Annotated[Path, typer.Argument(help="Where they are written.")] = Path("monitoring"),
    as_json: AsJson = False,
) -> None:
    """Write Prometheus' configuration and rules, and Grafana's dashboards, as shipped."""
    from loomrl.cluster.monitoring.folder import write

    written = [str(path) for path in write(folder)]
    emit({"files": written}, as_json=as_json, show=lambda console: console.print("\n".join(written), highlight=False))
