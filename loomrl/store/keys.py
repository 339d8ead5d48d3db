"""Keys of callers. The key itself is shown once; LoomDB holds its SHA-256, which suffices as keys are random."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import func, select, update

from loomrl.errors import StoreError, unknown
from loomrl.store.db import LoomDB
from loomrl.store.events import EVENTS, record
from loomrl.store.log import Log

SCOPES = ("act", "feedback", "record", "metrics", "train", "view", "rate", "operate", "admin")
"""`act`: call policies. `feedback`: judge answers. `record`: end sessions and read what was recorded. `metrics`: read a
gateway's. `train`: train by remote hand. `admin`: all.

Of people at the console: `view` looks, `rate` judges too, `operate` decides on releases too.
"""
PREFIX = "loom"
SECRET_BYTES = 24
"""192 random bits cannot be guessed, so a fast hash protects them."""
CHANGES = ("key.created", "key.revoked")
FORM = re.compile(rf"{PREFIX}-([0-9a-f]{{12}})-([0-9a-f]{{{2 * SECRET_BYTES}}})")
"""The public id, and the secret."""
NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as it is stored."""

    id: str
    name: str
    """The owner's name, for people."""
    sha256: str
    scopes: tuple[str, ...]
    rate: float | None = None
    """Requests per second; None is unlimited."""
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None

    def holds(self, now: float) -> bool:
        """True if it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


KEYS = Log("keys", Key)


def create_key(
    db: LoomDB,
    name: str,
    *,
    scopes: Iterable[str] = ("act",),
    rate: float | None = None,
    expires_at: float | None = None,
    at: float,
) -> tuple[str, Key]:
    """Store a new key; returns the plain key, which cannot be had again, and its record."""
    wanted = tuple(dict.fromkeys(scopes))
    _check(name, wanted, rate)
    if expires_at is not None and expires_at <= at:
        raise StoreError(f"key {name!r}: it would have expired before it begins. Choose a later time.")
    id = secrets.token_hex(6)
    secret = secrets.token_hex(SECRET_BYTES)
    key = Key(
        id=id,
        name=name,
        sha256=digest(secret),
        scopes=wanted,
        rate=rate,
        created_at=at,
        expires_at=expires_at,
    )
    with db.write() as connection:
        KEYS.insert_once(connection, key)
        data = {"name": name, "scopes": list(wanted), "rate": rate, "expires_at": expires_at}
        record(connection, "key.created", id, data, at=at)
    return f"{PREFIX}-{id}-{secret}", key


def revoke_key(db: LoomDB, id: str, *, at: float, reason: str = "") -> Key:
    """Revoke a key by its id, or by the key itself. A second time changes nothing."""
    found = FORM.fullmatch(id)
    id = found[1] if found else id
    with db.write() as connection:
        key = KEYS.require(connection, id)
        if key.revoked_at is not None:
            return key
        connection.execute(update(KEYS.table).where(KEYS.c.id == id).values(revoked_at=at))
        record(connection, "key.revoked", id, {"reason": reason}, at=at)
    return replace(key, revoked_at=at)


def any_key(db: LoomDB, scopes: Iterable[str], *, at: float) -> bool:
    """True if a key with one of these scopes holds."""
    wanted = set(scopes)
    return any(key.holds(at) and wanted & set(key.scopes) for key in KEYS.latest(db, limit=100_000))


def read_keys(db: LoomDB, *, after: int = 0) -> tuple[int, list[Key]]:
    """The keys that were created or revoked past a position of the event log, and the position to continue from."""
    changes = EVENTS.c.kind.in_(CHANGES) & (EVENTS.c.position > after)
    changed = select(EVENTS.c.subject).where(changes)
    with db.read() as connection:
        newest = connection.scalar(select(func.max(EVENTS.c.position)).where(changes))
        if newest is None:
            return after, []
        return newest, KEYS.fetch(connection, KEYS.select().where(KEYS.c.id.in_(changed)))


def record_refusals(db: LoomDB, counts: Mapping[str, int], *, at: float) -> None:
    """Put on record how many calls were refused, by cause and key: `{"key": 10000, "budget 3f9a1c2b7d4e": 7}`."""
    with db.write() as connection:
        record(connection, "key.refused", "keys", counts, at=at)


def is_secret_of(key: Key | None, secret: str) -> bool:
    """True if this is the secret of a key. It takes as long if there is no such key."""
    return hmac.compare_digest(digest(secret), NO_DIGEST if key is None else key.sha256)


def digest(secret: str) -> str:
    """The hash of a key's secret part, as it is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _check(name: str, scopes: tuple[str, ...], rate: float | None) -> None:
    if not name or len(name) > 100:
        raise StoreError(f"key name={name!r:.120}: say in 1 to 100 characters whose it is.")
    if not scopes:
        raise StoreError(f"key {name!r}: without a scope it would open nothing. Known: {', '.join(SCOPES)}.")
    for scope in scopes:
        if scope not in SCOPES:
            raise StoreError(f"key {name!r}: " + unknown("scope", scope, SCOPES))
    if rate is not None and not rate > 0:
        raise StoreError(f"key {name!r}: rate={rate} must be above 0; without one it is unlimited.")
