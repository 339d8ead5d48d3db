"""`loomrl keys …` and `loomrl people …`: who may call, whose calls are not recorded, and whose record is deleted."""

import time
from typing import Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.face import face, nouns, open_face_store
from loomrl.experiments.commands.listing import add_list
from loomrl.experiments.commands.output import emit
from loomrl.record.catalogue import KEY_RECORDS, PEOPLE_RECORDS

keys = nouns("Create, list and revoke the keys of callers and of people.")
people = nouns("Keep people's calls off the record, or delete what is on record of a person.")
add_list(keys, KEY_RECORDS)
add_list(people, PEOPLE_RECORDS)
DAY_S = 86_400.0
OfEndpoint = Annotated[str, typer.Option("--endpoint", help="The endpoint's name.")]


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="The key's owner.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="act, feedback, record, metrics; of people view, rate, operate; or admin. Repeatable."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Calls per second in each gateway; unlimited by default.")] = None,
    days: Annotated[float | None, typer.Option(help="Days until it expires; never by default.")] = None,
) -> None:
    """Create a key and print it. It cannot be shown again: LoomDB has its hash only."""
    from loomrl.store.keys import create_key

    now = time.time()
    expires_at = None if days is None else now + DAY_S * days
    with open_face_store() as db:
        plain, key = create_key(db, name, scopes=scope or ("act",), rate=rate, expires_at=expires_at, at=now)
    result = {"key": plain, "id": key.id, "scopes": list(key.scopes), "rate": key.rate, "expires_at": key.expires_at}
    emit(result, plain)


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Its id, or the key itself.")],
    reason: Annotated[str, typer.Option(help="Reason, kept on record.")] = "",
) -> None:
    """Revoke a key: within a second it opens nothing."""
    from loomrl.store.keys import revoke_key

    with open_face_store() as db:
        revoked = revoke_key(db, key, at=time.time(), reason=reason)
    result = {"id": revoked.id, "name": revoked.name, "revoked_at": revoked.revoked_at}
    emit(result, show=lambda console: console.print(f"{revoked.id} ({revoked.name}) is revoked"))


@people.command()
def opt_out(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="As callers give them in `user`.")],
    endpoint: OfEndpoint = "policy",
    undo: Annotated[bool, typer.Option("--undo", help="Record these people again.")] = False,
) -> None:
    """Record no further calls of these people. Every gateway knows within five seconds."""
    from loomrl.store import sessions

    with open_face_store() as db:
        if undo:
            sessions.opt_in(db, endpoint, names)
        else:
            sessions.opt_out(db, endpoint, names, at=time.time())
    count = len(set(names))
    result = {"endpoint": endpoint, "people": count, "recorded": undo}
    text = f"{count} are recorded by {endpoint!r}" if undo else f"{count} opted out of {endpoint!r}"
    emit(result, text)


@people.command()
def forget(
    user: Annotated[str, typer.Argument(help="The person's name, as callers give it in `user`.")],
    endpoint: OfEndpoint = "policy",
    leave: Annotated[bool, typer.Option("--opt-out", help="Record nothing of this person from now on.")] = False,
) -> None:
    """Delete everything of a person: sessions, calls, trajectories, feedback, rewards, observations, archived files.

    What was deleted stays on record as an event, with a hash of the name. A deletion that is cut off is finished by the
    service, or by the same command.
    """
    from loomrl.config import HubConfig
    from loomrl.errors import ConfigError, unknown
    from loomrl.hub.open import open_endpoint_hub
    from loomrl.serving.retention import erasure
    from loomrl.store.endpoints import list_endpoints
    from loomrl.store.sessions import opt_out

    now = time.time()
    with open_face_store() as db:
        known = [each.name for each in list_endpoints(db)]
        if endpoint not in known:
            raise ConfigError(unknown("endpoint", endpoint, known))
        if leave:
            opt_out(db, endpoint, [user], at=now)
        with open_endpoint_hub(face().store, endpoint, HubConfig()) as hub:
            erasure.finish(db, hub, endpoint, at=now)
            done = erasure.forget(db, hub, endpoint, user, at=now)
    result = {"endpoint": endpoint, "person": done.person, **done.counts}

    def render(console: Console) -> None:
        counts = ", ".join(f"{count} {name}" for name, count in done.counts.items() if count) or "nothing"
        console.print(f"Deleted of {done.person[:16]} at {endpoint!r}: {counts}", highlight=False)

    emit(result, show=render)
