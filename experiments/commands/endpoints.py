"""`loomrl endpoints …`: the names that callers use, the processes that answer, and what the monitor found."""

import getpass
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.face import Who, nouns, open_face_store
from loomrl.experiments.commands.listing import add_list, read_list, render_list
from loomrl.experiments.commands.output import emit
from loomrl.record.catalogue import HIT_RECORDS, QUARANTINE_RECORDS, arms_text
from loomrl.record.detail import ENDPOINT

if TYPE_CHECKING:
    from loomrl.store.endpoints import Endpoint

endpoints = nouns("List, show, change and delete endpoints: the names that callers use.")
Name = Annotated[str, typer.Argument(metavar="ENDPOINT", help="The name that callers give as model.")]
Revision = Annotated[int | None, typer.Option(help="Refuse the change if the endpoint is at another revision.")]
Reason = Annotated[str, typer.Option(help="Reason, kept on record.")]


add_list(endpoints, ENDPOINT)


@endpoints.command("set")
def set_arms(
    name: Name,
    arms: Annotated[
        list[str], typer.Argument(metavar="ARM=WHAT[:SHARE[:ROLE]]...", help="Such as stable=math-1/40:0.9.")
    ],
    revision: Revision = None,
    reason: Reason = "",
) -> None:
    """Give an endpoint other arms or shares. Its service starts policies that are not running yet.

    The role is the arm's name, if that is one, else canary. A run is followed with WHAT=RUN@newest or RUN@best.
    """
    from loomrl.experiments.arms import parse_arms
    from loomrl.store.endpoints import set_endpoint

    with open_face_store() as db:
        changed = set_endpoint(db, name, parse_arms(arms, db), at=time.time(), revision=revision, reason=reason)
    _print_change(changed)


@endpoints.command()
def drain(
    name: Name,
    revision: Revision = None,
    reason: Reason = "",
) -> None:
    """Refuse new conversations; open ones go on. `loomrl endpoints set` opens it again."""
    from loomrl.store.endpoints import drain_endpoint

    with open_face_store() as db:
        changed = drain_endpoint(db, name, at=time.time(), revision=revision, reason=reason)
    _print_change(changed)


@endpoints.command()
def delete(
    name: Name,
    revision: Revision = None,
    reason: Reason = "",
) -> None:
    """Delete an endpoint: callers get 404. Its history and what was recorded stay."""
    from loomrl.store.endpoints import delete_endpoint

    with open_face_store() as db:
        changed = delete_endpoint(db, name, at=time.time(), revision=revision, reason=reason)
    _print_change(changed)


@endpoints.command()
def export(
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="The name that callers give as model.")],
    file: Annotated[Path, typer.Option("--to", help="The file to write.")] = Path("tensorzero.toml"),
    url: Annotated[str | None, typer.Option(help="The gateway's; by default that of the service that is up.")] = None,
    key_variable: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the key, if callers need one.")
    ] = None,
) -> None:
    """Write a tensorzero.toml whose function is an endpoint, and whose variants are its arms."""
    from loomrl.errors import ConfigError
    from loomrl.experiments.tensorzero import configuration
    from loomrl.store.endpoints import show_endpoint
    from loomrl.store.replicas import front_of

    with open_face_store() as db:
        present = show_endpoint(db, endpoint)
        url = url or front_of(db, endpoint)
    if url is None:
        raise ConfigError(f"endpoint {endpoint!r} is not served now: say where it will be, --url http://HOST:8000.")
    file.write_text(configuration(present, url=url, key_variable=key_variable), encoding="utf-8")
    result = {"endpoint": endpoint, "revision": present.revision, "url": url, "file": str(file)}
    emit(result, f"{endpoint} is in {file}")


def _print_change(changed: "Endpoint") -> None:
    text = f"{changed.name}: revision {changed.revision}, {changed.state}, {arms_text(changed.arms)}"
    emit(asdict(changed), text)


@endpoints.command()
def monitor(
    endpoint: Annotated[str, typer.Argument(metavar="[ENDPOINT]", help="Only this endpoint.")] = "",
) -> None:
    """Count the hits of the monitor's rules by arm and version, and list the sessions in quarantine."""
    filters = {"endpoint": endpoint}
    hits = read_list(HIT_RECORDS, filters, limit=HIT_RECORDS.limit)
    held = read_list(QUARANTINE_RECORDS, filters, limit=QUARANTINE_RECORDS.limit)

    def render(console: Console) -> None:
        render_list(HIT_RECORDS, hits, console)
        render_list(QUARANTINE_RECORDS, held, console)

    emit({**hits.as_json, **held.as_json}, show=render)


@endpoints.command()
def free(
    session: Annotated[str, typer.Argument(help="Id of the session, from `loomrl endpoints monitor`.")],
    who: Who = "",
) -> None:
    """Free a session: its calls are answered again within a second."""
    from loomrl.errors import StoreError
    from loomrl.store.sessions import Quarantine, list_quarantined, record_quarantine

    with open_face_store() as db:
        held = [each for each in list_quarantined(db) if each.session == session]
        if not held:
            raise StoreError(
                f"session {session!r} is not in quarantine. `loomrl endpoints monitor` lists those that are."
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
        f"{session} is free.",
    )
