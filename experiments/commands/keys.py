"""`loomrl keys …`: who may call."""

import time
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import StoreUrl

app = typer.Typer(help="Create, list and revoke the keys of callers.", no_args_is_help=True)
DAY_S = 86_400.0


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The key's owner.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="act, feedback, record, metrics; of people view, rate, operate; or admin. Repeatable."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Calls per second in each gateway; unlimited by default.")] = None,
    days: Annotated[float | None, typer.Option(help="Days until it expires; never by default.")] = None,
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Create a key and print it. It cannot be shown again: LoomDB has its hash only."""
    from loomrl.store import open_store
    from loomrl.store.keys import create_key

    now = time.time()
    expires_at = None if days is None else now + DAY_S * days
    with open_store(store) as db:
        plain, key = create_key(db, name, scopes=scope or ("act",), rate=rate, expires_at=expires_at, at=now)
    result = {"key": plain, "id": key.id, "scopes": list(key.scopes), "rate": key.rate, "expires_at": key.expires_at}
    emit(result, as_json=as_json, show=lambda console: console.print(plain, highlight=False, markup=False))


@app.command("list")
def list_all(store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """List the keys, newest first, without what opens."""
    from loomrl.store import open_store
    from loomrl.store.keys import KEYS

    with open_store(store) as db:
        found = KEYS.latest(db, limit=1000)
    now = time.time()

    def state(revoked_at: float | None, holds: bool) -> str:
        return "holds" if holds else "expired" if revoked_at is None else "revoked"

    rows = [
        (key.id, key.name, ", ".join(key.scopes), key.rate, _when(key.created_at), _when(key.expires_at),
         state(key.revoked_at, key.holds(now)))
        for key in found
    ]  # fmt: skip
    columns = ("key", "name", "scopes", "rate>", "created", "expires", "state")

    def render(console: Console) -> None:
        console.print(table("", columns, rows) if rows else f"No keys in {store}.")

    shown = [{name: value for name, value in asdict(key).items() if name != "sha256"} for key in found]
    emit({"keys": shown}, as_json=as_json, show=render)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Its id, or the key itself.")],
    reason: Annotated[str, typer.Option(help="Reason, kept on record.")] = "",
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Revoke a key: within a second it opens nothing."""
    from loomrl.store import open_store
    from loomrl.store.keys import revoke_key

    with open_store(store) as db:
        revoked = revoke_key(db, key, at=time.time(), reason=reason)
    result = {"id": revoked.id, "name": revoked.name, "revoked_at": revoked.revoked_at}
    emit(result, as_json=as_json, show=lambda console: console.print(f"{revoked.id} ({revoked.name}) is revoked"))


def _when(seconds: float | None) -> str:
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
