"""`loomrl people …`: who is not recorded; and `loomrl forget`: whose record is deleted."""

import time
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import StoreUrl

app = typer.Typer(help="Keep people's calls off the record.", no_args_is_help=True)
Names = Annotated[list[str], typer.Argument(help="Their names, as callers give them in `user`.")]
OfEndpoint = Annotated[str, typer.Option("--endpoint", help="The endpoint's name.")]


@app.command("opt-out")
def leave(
    people: Names, endpoint: OfEndpoint = "policy", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False
) -> None:
    """Record no further calls of these people. Within five seconds every gateway knows."""
    from loomrl.store import open_store
    from loomrl.store.sessions import opt_out

    with open_store(store) as db:
        opt_out(db, endpoint, people, at=time.time())
    result = {"endpoint": endpoint, "people": len(set(people)), "recorded": False}
    emit(result, as_json=as_json, show=lambda console: console.print(f"{len(set(people))} opted out of {endpoint!r}"))


@app.command("opt-in")
def come_back(
    people: Names, endpoint: OfEndpoint = "policy", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False
) -> None:
    """Record these people again."""
    from loomrl.store import open_store
    from loomrl.store.sessions import opt_in

    with open_store(store) as db:
        opt_in(db, endpoint, people)
    result = {"endpoint": endpoint, "people": len(set(people)), "recorded": True}
    emit(
        result, as_json=as_json, show=lambda console: console.print(f"{len(set(people))} are recorded by {endpoint!r}")
    )


@app.command("list")
def list_all(endpoint: OfEndpoint = "policy", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """List who opted out, by a hash: LoomDB does not have their names."""
    from loomrl.store import open_store
    from loomrl.store.sessions import list_opt_outs

    with open_store(store) as db:
        found = list_opt_outs(db, endpoint)
    rows = [(each.person[:16], f"{datetime.fromtimestamp(each.created_at):%Y-%m-%d %H:%M:%S}") for each in found]

    def render(console: Console) -> None:
        console.print(table("", ("person", "since"), rows) if rows else f"Nobody opted out of {endpoint!r}.")

    emit({"endpoint": endpoint, "people": [asdict(each) for each in found]}, as_json=as_json, show=render)


def forget(
    user: Annotated[str, typer.Argument(help="The person's name, as callers give it in `user`.")],
    endpoint: OfEndpoint = "policy",
    leave: Annotated[bool, typer.Option("--opt-out", help="And record nothing of this person from now on.")] = False,
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Delete everything of a person: sessions, calls, trajectories, feedback, rewards, observations, archived files.

    What was deleted stays on record as an event, with a hash of the name. A deletion that is cut off is finished by the
    service, or by the same command.
    """
    from loomrl.config import HubConfig
    from loomrl.errors import ConfigError, unknown
    from loomrl.hub.open import open_endpoint_hub
    from loomrl.serving.retention import erasure
    from loomrl.store import open_store
    from loomrl.store.endpoints import list_endpoints
    from loomrl.store.sessions import opt_out

    now = time.time()
    with open_store(store) as db:
        known = [each.name for each in list_endpoints(db)]
        if endpoint not in known:
            raise ConfigError(unknown("endpoint", endpoint, known))
        if leave:
            opt_out(db, endpoint, [user], at=now)
        with open_endpoint_hub(store, endpoint, HubConfig()) as hub:
            erasure.finish(db, hub, endpoint, at=now)
            done = erasure.forget(db, hub, endpoint, user, at=now)
    result = {"endpoint": endpoint, "person": done.person, **done.counts}

    def render(console: Console) -> None:
        counts = ", ".join(f"{count} {name}" for name, count in done.counts.items() if count) or "nothing"
        console.print(f"Deleted of {done.person[:16]} at {endpoint!r}: {counts}", highlight=False)

    emit(result, as_json=as_json, show=render)
