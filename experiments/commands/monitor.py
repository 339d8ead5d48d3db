"""`loomrl monitor`: what a gateway's monitor found, and the sessions that it holds."""

import getpass
import time
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import Limit, StoreUrl

app = typer.Typer(help="Hits of the monitor's rules, and sessions in quarantine.", no_args_is_help=True)
Endpoint = Annotated[str, typer.Option(help="Show this endpoint only.")]


@app.command()
def hits(
    endpoint: Endpoint = "", store: StoreUrl = "sqlite:///loom.db", limit: Limit = 1000, as_json: AsJson = False
) -> None:
    """Count the hits on record by rule, arm and version."""
    from loomrl.serving.monitor.ledger import hits_on_record
    from loomrl.store import open_store

    with open_store(store) as db:
        found = hits_on_record(db, endpoint=endpoint)
    rows = [{**asdict(hit), "count": count} for hit, count in found.most_common(limit)]

    def render(console: Console) -> None:
        columns = ("endpoint", "arm", "version", "rule", "what", "then", "count>")
        console.print(table("", columns, [tuple(str(value) for value in row.values()) for row in rows]))

    emit({"hits": rows}, as_json=as_json, show=render)


@app.command()
def quarantine(endpoint: Endpoint = "", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """List the sessions whose calls are refused, oldest first."""
    from loomrl.store import open_store
    from loomrl.store.sessions import quarantined

    with open_store(store) as db:
        found = [asdict(each) for each in quarantined(db, endpoint=endpoint)]

    def render(console: Console) -> None:
        rows = [(each["session"], each["endpoint"], each["rule"]) for each in found]
        console.print(table("", ("session", "endpoint", "rule"), rows))

    emit({"quarantined": found}, as_json=as_json, show=render)


@app.command()
def free(
    session: Annotated[str, typer.Argument(help="Id of the session, from `loomrl monitor quarantine`.")],
    who: Annotated[str, typer.Option(help="The person who decides.")] = "",
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Free a session: its calls are answered again within a second."""
    from loomrl.errors import StoreError
    from loomrl.store import open_store
    from loomrl.store.sessions import Quarantine, quarantined, record_quarantine

    with open_store(store) as db:
        held = [each for each in quarantined(db) if each.session == session]
        if not held:
            raise StoreError(
                f"session {session!r} is not in quarantine. `loomrl monitor quarantine` lists those that are."
            )
        for each in held:
            record_quarantine(
                db,
                Quarantine(
                    endpoint=each.endpoint, session=session, held=False, who=who or getpass.getuser(), at=time.time()
                ),
            )
    emit(
        {"freed": session},
        as_json=as_json,
        show=lambda console: console.print(f"{session} is free.", highlight=False),
    )
