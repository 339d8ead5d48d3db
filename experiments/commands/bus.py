"""`loomrl bus …` and `loomrl nats`: events for other systems, and from other people's agents."""

import gc
import json
import os
import sys
import threading
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import Limit, Scraped, StoreUrl
from loomrl.observability.log import teller

if TYPE_CHECKING:
    from loomrl.bus.dead import Letter
    from loomrl.store import LoomDB

app = typer.Typer(help="Publish what is on record, and take in what other people's agents do.", no_args_is_help=True)
dead = typer.Typer(help="Look after messages that could not be taken in.", no_args_is_help=True)
app.add_typer(dead, name="dead")
BusUrl = Annotated[
    str | None,
    typer.Option("--bus", envvar="NATS_URL", help="nats://USER:PASSWORD@HOST:4222; without it the bus is in LoomDB."),
]


@app.command()
def run(
    store: StoreUrl = "sqlite:///loom.db",
    bus: BusUrl = None,
    agents: Annotated[int, typer.Option(min=1, help="Agents whose trajectories are taken in, at most.")] = 1000,
    metrics: Scraped = None,
) -> None:
    """Publish what is on record and take in other people's trajectories, until interrupted.

    Several may run at once. While the broker is away they wait for it, and nothing is lost.
    """
    from loomrl.bus.open import open_bus
    from loomrl.bus.service import Meter, serve_bus
    from loomrl.bus.sink import Terms
    from loomrl.observability.exposition import door_at, exposed, metrics_route, process_registry
    from loomrl.observability.presence import present
    from loomrl.store import open_store
    from loomrl.store.replicas import ReplicaRole

    registry = process_registry()
    address = ""
    with open_store(store) as db, open_bus(bus or store) as opened, ExitStack() as stack:
        if metrics is not None:
            door = door_at(metrics)
            address = f"{door.host}:{door.port}"
            _say(f"metrics on {stack.enter_context(exposed(door, [metrics_route(registry)]))}/metrics")
        stack.enter_context(present(db, ReplicaRole.BUS, address=address))
        _say(f"from {db.location} to {opened.place} and back; Ctrl-C ends it")
        meter = Meter(registry)
        gc.freeze()  # what is here stays: looking through it again and again would cost a tenth of the time
        serve_bus(db, store, opened, stop=threading.Event(), say=_say, terms=Terms(agents=agents), meter=meter)


@app.command()
def status(store: StoreUrl = "sqlite:///loom.db", bus: BusUrl = None, as_json: AsJson = False) -> None:
    """Show the bus: its streams, who has yet to read them, how far ours are published, what was put aside."""
    from loomrl.bus.agent import known_agents
    from loomrl.bus.open import open_bus
    from loomrl.bus.outbox import Outbox
    from loomrl.store import open_store
    from loomrl.store.events import EVENTS

    with open_store(store) as db, open_bus(bus or store) as opened:
        streams = opened.stats()
        agents = known_agents(db)
        rejected = _rejected(db)
        outbox = Outbox(db, store, opened)
        cursors = outbox.cursors()
        last = EVENTS.last(db)
        outbox.close()
        place = opened.place

    def render(console: Console) -> None:
        console.print(f"bus at {place}", highlight=False)
        rows = [
            (one.name, one.messages, one.bytes, *((each.name, each.waiting, each.unacked) if each else ("", "", "")))
            for one in streams
            for each in one.consumers or (None,)
        ]
        console.print(table("", ("stream", "messages>", "bytes>", "group", "waiting>", "open>"), rows))
        published = [(name, cursor, last - cursor if name == "events" else "") for name, cursor in cursors.items()]
        console.print(table("", ("published", "up to>", "behind>"), published))
        console.print(table("", ("agent", "hub"), agents.items()))
        console.print(table("", ("put aside because", "messages>"), rejected.items()))

    result = {
        "bus": place,
        "streams": [asdict(one) for one in streams],
        "published": cursors,
        "behind": last - cursors["events"],
        "agents": agents,
        "rejected": rejected,
    }
    emit(result, as_json=as_json, show=render)


@app.command()
def schema(subject: Annotated[str, typer.Argument(help="Such as agent.rl.trajectory.v1.")]) -> None:
    """Print the JSON Schema of a subject."""
    from loomrl.bus.event import contract_of

    print(json.dumps(contract_of(subject).schema(), indent=2))


@dead.command("list")
def list_letters(
    store: StoreUrl = "sqlite:///loom.db",
    bus: BusUrl = None,
    cause: Annotated[str | None, typer.Option(help="contract, reused, refused, agents, or tries.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the messages that were put aside, with the reason; the oldest first."""
    from itertools import islice

    from loomrl.bus.dead import letters
    from loomrl.bus.open import open_bus

    with open_bus(bus or store) as opened:
        found = list(islice(letters(opened, cause=cause), limit))
    rows = [(one.id[:12], _when(one.at), one.cause, one.reason[:200]) for one in found]
    columns = ("letter", "at", "cause", "reason")
    emit(
        {"letters": [asdict(one) for one in found]},
        as_json=as_json,
        show=lambda console: console.print(table("", columns, rows) if rows else "No dead letters."),
    )


@dead.command("replay")
def replay_letters(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[LETTER]...", help="Ids, or their beginnings.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    cause: Annotated[str | None, typer.Option(help="With --all: only those with this cause.")] = None,
    store: StoreUrl = "sqlite:///loom.db",
    bus: BusUrl = None,
    as_json: AsJson = False,
) -> None:
    """Put messages on the bus again. What is still wrong with one comes back as another letter."""
    from loomrl.bus.dead import letters, replay
    from loomrl.bus.open import open_bus
    from loomrl.errors import BusError

    if bool(ids) == every:
        raise BusError("replay: name letters, as `loomrl bus dead list` shows them, or say --all.")
    with open_bus(bus or store) as opened:
        chosen = [letter for letter in letters(opened, cause=cause) if every or _is_named(letter, ids or [])]
        for letter in chosen:
            replay(opened, letter)
    replayed = [letter.id for letter in chosen]
    emit(
        {"replayed": replayed},
        as_json=as_json,
        show=lambda console: console.print(f"{len(replayed)} on the bus again", highlight=False),
    )


def nats(
    folder: Annotated[Path, typer.Option(help="Where its streams and passwords are kept.")] = Path("nats"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 4222,
) -> None:
    """Run a NATS server with the accounts agent, coordinator and trainer, until interrupted.

    Its passwords are made at the first start; the URLs with them are printed on stderr.
    """
    from loomrl.cluster.nats import broker

    made = broker(folder, host=host, port=port)
    for name, url in made.urls.items():
        print(f"{name}: {url}", file=sys.stderr)
    sys.stderr.flush()
    os.execve(made.command[0], list(made.command), os.environ | made.environment)


def _rejected(db: "LoomDB") -> dict[str, int]:
    """The dead letters on record, by cause."""
    from loomrl.bus.sink import REJECTED
    from loomrl.store.events import EVENTS

    counts: dict[str, int] = {}
    after = 0
    while page := EVENTS.read(db, after=after, kind=REJECTED):
        after = page[-1][0]
        for _, event in page:
            for cause, number in event.data.items():
                counts[cause] = counts.get(cause, 0) + number
    return counts


def _is_named(letter: "Letter", ids: list[str]) -> bool:
    return any(letter.id.startswith(id) for id in ids)


def _say(text: str) -> None:
    teller("bus", "bus: ")(text)


def _when(seconds: float) -> Any:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
