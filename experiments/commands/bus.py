"""`loomrl bus …`: events for other systems, and from external agents."""

import gc
import json
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.face import LIST, Limit, Scraped, face, nouns, open_face_store, without
from loomrl.experiments.commands.listing import read_list, render_list
from loomrl.experiments.commands.output import emit, table
from loomrl.observability.log import teller
from loomrl.record.declaration import Column, Page, Query, Record

if TYPE_CHECKING:
    from loomrl.bus.dead import Letter
    from loomrl.store import LoomDB

app = nouns("Publish what is on record to a bus, and take in what external agents do.")
BusUrl = Annotated[
    str | None,
    typer.Option("--bus", envvar="NATS_URL", help="nats://USER:PASSWORD@HOST:4222; without it the bus is in LoomDB."),
]


def _read_letters(_: object, query: Query) -> "Page[Letter]":
    from loomrl.bus import dead as box
    from loomrl.bus.open import open_bus

    with open_bus(query.get("bus") or face().store) as opened:
        wanted = query.filters["letter"].split()
        letters = (each for each in box.letters(opened, cause=query.get("cause")) if _is_named(each, wanted))
        return Page(list(islice(letters, query.limit)))


LETTER_RECORDS = Record["Letter"](
    name="dead letter",
    plural="letters",
    about="List the messages that were put aside, oldest first, with the reason.",
    columns=(
        Column("letter", "id", "hash"),
        Column("at", form="time"),
        Column("cause"),
        Column("reason", form="words"),
    ),
    read=_read_letters,
    none="No dead letters.",
    reads_store=False,
)


@app.command()
@without("--json")
def run(
    bus: BusUrl = None,
    agents: Annotated[int, typer.Option(min=1, help="Agents whose trajectories are taken in, at most.")] = 1000,
    metrics: Scraped = None,
) -> None:
    """Publish what is on record and take in external agents' trajectories, until interrupted.

    Several may run at once. While the broker is away they wait for it, and nothing is lost.
    """
    from loomrl.bus.open import open_bus
    from loomrl.bus.service import Meter, serve_bus
    from loomrl.bus.sink import Terms
    from loomrl.observability.exposition import door_at, exposed, metrics_route, process_registry
    from loomrl.observability.presence import present
    from loomrl.store.replicas import ReplicaRole

    registry = process_registry()
    address = ""
    with open_face_store() as db, open_bus(bus or face().store) as opened, ExitStack() as stack:
        if metrics is not None:
            door = door_at(metrics)
            address = f"{door.host}:{door.port}"
            _say(f"metrics on {stack.enter_context(exposed(door, [metrics_route(registry)]))}/metrics")
        stack.enter_context(present(db, ReplicaRole.BUS, address=address))
        _say(f"from {db.location} to {opened.place} and back; Ctrl-C ends it")
        meter = Meter(registry)
        gc.freeze()  # what is here stays: looking through it again and again would cost a tenth of the time
        serve_bus(db, face().store, opened, stop=threading.Event(), say=_say, terms=Terms(agents=agents), meter=meter)


@app.command(LIST)
def show_bus(
    subject: Annotated[str | None, typer.Argument(help="Such as agent.rl.trajectory.v1.")] = None,
    bus: BusUrl = None,
) -> None:
    """Show the bus: its streams, their readers, how far the record is published. With a SUBJECT, its JSON Schema."""
    if subject is not None:
        from loomrl.bus.event import contract_of

        print(json.dumps(contract_of(subject).schema(), indent=2))
        return
    from loomrl.bus.agent import list_agents
    from loomrl.bus.open import open_bus
    from loomrl.bus.outbox import Outbox
    from loomrl.store.events import EVENTS

    with open_face_store() as db, open_bus(bus or face().store) as opened:
        streams = opened.stats()
        agents = list_agents(db)
        rejected = _rejected(db)
        outbox = Outbox(db, face().store, opened)
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
    emit(result, show=render)


@app.command()
def dead(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[LETTER]...", help="Ids, or their beginnings.")] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Put these letters on the bus again.")] = False,
    every: Annotated[bool, typer.Option("--all", help="With --replay: all of them.")] = False,
    cause: Annotated[str | None, typer.Option(help="contract, reused, refused, agents, or tries.")] = None,
    limit: Limit = LETTER_RECORDS.limit,
    bus: BusUrl = None,
) -> None:
    """List the messages that were put aside, oldest first, with the reason; or put them on the bus again.

    A message that is still wrong comes back as another letter.
    """
    from loomrl.bus import dead as box
    from loomrl.bus.open import open_bus
    from loomrl.errors import BusError

    if replay and bool(ids) == every:
        raise BusError("--replay: name letters, as `loomrl bus dead` shows them, or say --all.")
    if every and not replay:
        raise BusError("--all: of what? With --replay, all letters are put on the bus again.")
    if not replay:
        filters = {"bus": bus or "", "cause": cause or "", "letter": " ".join(ids or ())}
        listing = read_list(LETTER_RECORDS, filters, limit=limit)
        emit(listing.as_json, show=lambda console: render_list(LETTER_RECORDS, listing, console))
        return
    with open_bus(bus or face().store) as opened:
        found = [letter for letter in box.letters(opened, cause=cause) if _is_named(letter, ids)]
        for letter in found:
            box.replay(opened, letter)
    replayed = {"replayed": [letter.id for letter in found]}
    emit(replayed, f"{len(found)} on the bus again")


@app.command()
@without("--store", "--json")
def broker(
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


def _is_named(letter: "Letter", ids: Sequence[str] | None) -> bool:
    return not ids or any(letter.id.startswith(id) for id in ids)


def _say(text: str) -> None:
    teller("bus", "bus: ")(text)
