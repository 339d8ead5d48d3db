"""Questions for people's judgement, and their answers; the first answer counts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, select, update

from loomrl.canonical import content_hash
from loomrl.errors import StoreError, unknown
from loomrl.store.db import LoomDB
from loomrl.store.events import record
from loomrl.store.log import Log, scalars, slices
from loomrl.types import Message

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


JUDGEMENTS = Log("judgements", Judgement)


def ask(db: LoomDB, judgement: Judgement) -> Judgement:
    """Put a question into the queue and return the stored one: answered, if the same id was answered before.

    A question that already waits is extended to the later of both times.
    """
    later = ("created_at", "expires_at", "choice", "who", "comment")
    with db.write() as connection:
        if not JUDGEMENTS.insert_once(connection, judgement, changing=later):
            longer = (JUDGEMENTS.c.id == judgement.id) & (JUDGEMENTS.c.expires_at < judgement.expires_at)
            connection.execute(update(JUDGEMENTS.table).where(longer).values(expires_at=judgement.expires_at))
        return JUDGEMENTS.require(connection, judgement.id)


def waiting(db: LoomDB, *, now: float, limit: int = 50) -> list[Judgement]:
    """Open questions for which an attempt still waits, oldest first."""
    is_open = JUDGEMENTS.c.choice.is_(None) & (JUDGEMENTS.c.expires_at > now)
    return JUDGEMENTS.fetch(db, JUDGEMENTS.select().where(is_open).order_by(JUDGEMENTS.c.position).limit(limit))


def id_about(trajectory: str, question: str) -> str:
    """The id of a question about a trajectory on record: the same one is asked once."""
    return f"{ABOUT}{content_hash(question)[:16]}:{trajectory}"


def trajectory_of(id: str) -> str:
    """The trajectory that an id of `id_about` is about."""
    return id.split(":", 2)[2]


def list_answered(db: LoomDB, questions: Collection[str]) -> list[Judgement]:
    """The answered ones of these questions about trajectories, oldest first."""
    mine = JUDGEMENTS.c.id.startswith(ABOUT) & JUDGEMENTS.c.question.in_(questions) & JUDGEMENTS.c.choice.is_not(None)
    return JUDGEMENTS.fetch(db, JUDGEMENTS.select().where(mine).order_by(JUDGEMENTS.c.position))


def delete_about(connection: Connection, trajectories: Collection[str]) -> int:
    """Delete all questions about these trajectories, which have their text; how many."""
    found = scalars(connection, select(JUDGEMENTS.c.id).where(JUDGEMENTS.c.id.startswith(ABOUT)))
    gone = set(trajectories)
    ids = [id for id in found if trajectory_of(id) in gone]
    for some in slices(ids):
        connection.execute(delete(JUDGEMENTS.table).where(JUDGEMENTS.c.id.in_(some)))
    return len(ids)


def answer(db: LoomDB, id: str, choice: str, *, who: str, comment: str = "", at: float) -> Judgement:
    """Store the final answer. A late one counts if the same is asked again; a second one is a StoreError."""
    with db.write() as connection:
        asked = JUDGEMENTS.require(connection, id)
        _check(asked, choice, who=who, texts=(who, comment))
        given = {"choice": choice, "who": who, "comment": comment}
        connection.execute(update(JUDGEMENTS.table).where(JUDGEMENTS.c.id == id).values(**given))
        record(connection, "judgement.given", id, given, at=at)
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
