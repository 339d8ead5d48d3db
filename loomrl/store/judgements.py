"""Questions for people's judgement, and their answers; the first answer counts."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, select, update

from loomrl.canonical import content_hash
from loomrl.errors import StoreError, unknown
from loomrl.store.db import LoomDB
from loomrl.store.events import Event, record
from loomrl.store.rows import Row, columns_of, find, insert_once, require, to_json
from loomrl.store.tables import judgements
from loomrl.types import Message

MOST = 1000
"""Ids in one question to the database."""
ABOUT = "about:"
"""How ids of questions about a trajectory on record begin. They are deleted with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A question about a conversation, its possible answers from worst to best, and the answer if there is one."""

    id: str
    question: str
    conversation: tuple[Message, ...]
    """Text only."""
    choices: tuple[str, ...]
    created_at: float
    expires_at: float
    """An attempt waits for the answer until then."""
    choice: str | None = None
    who: str = ""
    comment: str = ""


def ask(db: LoomDB, judgement: Judgement) -> Judgement:
    """Put a question into the queue and return the stored one: answered, if the same id was answered before.

    A question that already waits is extended to the later of both times.
    """
    row = columns_of(judgement) | {
        "conversation": to_json([[role, text] for role, text, _ in judgement.conversation], what="a conversation"),
        "choices": to_json(list(judgement.choices), what="choices"),
    }
    later = ("created_at", "expires_at", "choice", "who", "comment")
    with db.write() as connection:
        if not insert_once(connection, judgements, row, changing=later):
            longer = (judgements.c.id == judgement.id) & (judgements.c.expires_at < judgement.expires_at)
            connection.execute(update(judgements).where(longer).values(expires_at=judgement.expires_at))
        return _judgement_of(require(connection, judgements, judgement.id))


def read_judgement(db: LoomDB, id: str) -> Judgement | None:
    """The current judgement of this id."""
    with db.read() as connection:
        row = find(connection, judgements, id)
    return None if row is None else _judgement_of(row)


def waiting(db: LoomDB, *, now: float, limit: int = 50) -> list[Judgement]:
    """Open questions for which an attempt still waits, oldest first."""
    is_open = judgements.c.choice.is_(None) & (judgements.c.expires_at > now)
    query = select(judgements).where(is_open).order_by(judgements.c.position).limit(limit)
    with db.read() as connection:
        return [_judgement_of(row) for row in connection.execute(query).mappings()]


def id_about(trajectory: str, question: str) -> str:
    """The id of a question about a trajectory on record: the same one is asked once."""
    return f"{ABOUT}{content_hash(question)[:16]}:{trajectory}"


def trajectory_of(id: str) -> str:
    """The trajectory that an id of `id_about` is about."""
    return id.split(":", 2)[2]


def answered_about(db: LoomDB, questions: Collection[str]) -> list[Judgement]:
    """The answered ones of these questions, about whatever trajectories, oldest first."""
    mine = judgements.c.id.startswith(ABOUT) & judgements.c.question.in_(questions) & judgements.c.choice.is_not(None)
    with db.read() as connection:
        rows = connection.execute(select(judgements).where(mine).order_by(judgements.c.position)).mappings()
        return [_judgement_of(row) for row in rows]


def delete_about(connection: Connection, trajectories: Collection[str]) -> int:
    """Delete all questions about these trajectories, which have their text; how many."""
    found = connection.scalars(select(judgements.c.id).where(judgements.c.id.startswith(ABOUT)))
    gone = set(trajectories)
    ids = [id for id in found if trajectory_of(id) in gone]
    for first in range(0, len(ids), MOST):
        connection.execute(delete(judgements).where(judgements.c.id.in_(ids[first : first + MOST])))
    return len(ids)


def answer(db: LoomDB, id: str, choice: str, *, who: str, comment: str = "", at: float) -> Judgement:
    """Store the final answer. A late one counts if the same is asked again; a second one is a StoreError."""
    with db.write() as connection:
        asked = _judgement_of(require(connection, judgements, id))
        _check(asked, choice, who=who, texts=(who, comment))
        given = {"choice": choice, "who": who, "comment": comment}
        connection.execute(update(judgements).where(judgements.c.id == id).values(**given))
        record(connection, Event(kind="judgement.given", subject=id, data=given, created_at=at))
        return replace(asked, choice=choice, who=who, comment=comment)


def _check(asked: Judgement, choice: str, *, who: str, texts: Sequence[str]) -> None:
    if asked.choice is not None:
        raise StoreError(f"judgement {asked.id!r} was answered by {asked.who!r} with {asked.choice!r} already.")
    if choice not in asked.choices:
        raise StoreError(f"judgement {asked.id!r}: " + unknown("choice", choice, asked.choices))
    if not who:
        raise StoreError(f"judgement {asked.id!r}: say who answers.")
    if any("\0" in text for text in texts):
        raise StoreError(f"judgement {asked.id!r}: who and comment must not have NUL characters.")


def _judgement_of(row: Row) -> Judgement:
    columns = dict(row)
    del columns["position"]
    columns["conversation"] = tuple(Message(*message) for message in json.loads(row["conversation"]))
    columns["choices"] = tuple(json.loads(row["choices"]))
    return Judgement(**columns)
