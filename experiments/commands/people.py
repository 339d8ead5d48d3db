"""`loomrl keys …` and `loomrl people …`: who may call, whose calls are not recorded, and whose record is deleted."""

import getpass
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.face import NoGate, Who, face, nouns, open_face_store
from loomrl.experiments.commands.listing import add_list
from loomrl.experiments.commands.output import beginning, emit
from loomrl.record.catalogue import KEY_RECORDS, PEOPLE_RECORDS

if TYPE_CHECKING:
    from loomrl.store import LoomDB

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
def forget(  # noqa: PLR0913 - a command with its options
    users: Annotated[list[str], typer.Argument(metavar="USER...", help="Names, as callers give them in `user`.")],
    endpoint: OfEndpoint = "policy",
    leave: Annotated[bool, typer.Option("--opt-out", help="Record nothing of them from now on.")] = False,
    weights: Annotated[bool, typer.Option("--weights", help="Take them out of trained weights too.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what --weights would take, and delete nothing.")
    ] = False,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ed25519 key (PEM) that signs the certificate of --weights.")
    ] = None,
    suite: Annotated[str | None, typer.Option(help="Suite of the gate for what takes their place.")] = None,
    no_gate: NoGate = None,
    strategy: Annotated[str | None, typer.Option(help="Of the release; by default as the gate advises.")] = None,
    who: Who = "",
) -> None:
    """Delete everything of people: sessions, calls, trajectories, feedback, rewards, observations, archived files.

    What was deleted stays on record as an event, with a hash of the name. A deletion that is cut off is finished by the
    service, or by the same command. With --weights the versions that learnt from them are replaced by ones that are
    trained again without them, and deleted; docs/forget.md.
    """
    from loomrl.errors import ConfigError, unknown
    from loomrl.store.endpoints import list_endpoints
    from loomrl.store.sessions import opt_out

    for name, given in {
        "--plan": plan,
        "--key": key,
        "--suite": suite,
        "--no-gate": no_gate,
        "--strategy": strategy,
    }.items():
        if given and not weights:
            raise ConfigError(f"{name} has no effect without --weights: leave it out.")
    with open_face_store() as db:
        known = [each.name for each in list_endpoints(db)]
        if endpoint not in known:
            raise ConfigError(unknown("endpoint", endpoint, known))
        if plan:
            _plan_weights(db, endpoint, users)
            return
        if leave:
            opt_out(db, endpoint, users, at=time.time())
        if not weights:
            _forget_record(db, endpoint, users)
            return
        if key is None:
            raise ConfigError(
                "--weights needs --key FILE to sign its certificate: `openssl genpkey -algorithm ed25519 -out FILE`."
            )
        from loomrl.experiments.forget.certificate import load_key, write_certificate
        from loomrl.experiments.forget.work import Wish, forget_weights
        from loomrl.experiments.release import resolve_plan

        wish = Wish(
            endpoint=endpoint,
            names=tuple(users),
            key=load_key(key),
            plan=resolve_plan(None, [], strategy),
            suite=suite,
            no_gate=no_gate,
            who=who or getpass.getuser(),
            say=beginning,
        )
        done = forget_weights(db, face().store, wish)
    file = Path(f"forgetting-{done.id[:8]}.json")
    write_certificate(done.certificate, file)
    told = done.certificate["certificate"]
    retired = ", ".join(told["retired"]) or "none"
    text = f"versions that learnt from them, retired: {retired}\ncertificate: {file}, signature: {file}.sig"
    emit(dict(done.certificate), text)


def _plan_weights(db: "LoomDB", endpoint: str, users: Sequence[str]) -> None:
    from loomrl.experiments.forget.plan import plan_forgetting

    plan = plan_forgetting(db, face().store, endpoint, users)

    def render(console: Console) -> None:
        rows = sum(map(len, plan.rows.values()))
        console.print(f"{len(plan.trajectories)} sessions, {rows} rows of training data in {len(plan.rows)} data sets")
        console.print(f"versions that learnt from them: {', '.join(plan.versions) or 'none'}", highlight=False)
        for one in plan.replays:
            since = f"{one.run}/{one.start}" if one.start else one.parent
            took = "" if one.seconds is None else f"; the original ones took {one.seconds:,.0f} s"
            console.print(
                f"{one.run}: {one.updates} updates again from {since}, {one.rows} rows, {one.tokens} tokens{took}",
                highlight=False,
            )
        for name, version in plan.endpoints.items():
            console.print(f"endpoint {name} gets another version in the place of {version}", highlight=False)

    emit(plan.as_dict(), show=render)


def _forget_record(db: "LoomDB", endpoint: str, users: Sequence[str]) -> None:
    """Delete the record of these people."""
    from loomrl.config import HubConfig
    from loomrl.hub.open import open_endpoint_hub
    from loomrl.serving.retention import erasure

    now = time.time()
    with open_endpoint_hub(face().store, endpoint, HubConfig()) as hub:
        erasure.finish(db, hub, endpoint, at=now)
        done = [erasure.forget(db, hub, endpoint, user, at=now) for user in users]
    people = [{"endpoint": endpoint, "person": one.person, **one.counts} for one in done]

    def render(console: Console) -> None:
        for one in done:
            counts = ", ".join(f"{count} {name}" for name, count in one.counts.items() if count) or "nothing"
            console.print(f"Deleted of {one.person[:16]} at {endpoint!r}: {counts}", highlight=False)

    emit(people[0] if len(people) == 1 else {"people": people}, show=render)
