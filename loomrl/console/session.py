"""Who looks: sign-in by a key of the gateway, sessions on the server, and the rate of attempts."""

import getpass
import hashlib
import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from threading import Lock

from loomrl.http.site import Refused
from loomrl.store import LoomDB
from loomrl.store.keys import FORM, KEYS, Key, any_key, is_secret_of

COOKIE = "loomrl_console"
IDLE_S = 2 * 3600.0
LONGEST_S = 12 * 3600.0
"""A session ends after this long without a request, and after this long in any case."""
MOST_SESSIONS = 10_000
TRIES = 10
TRIES_S = 60.0
"""Failed attempts to sign in from one address within a time."""
KEYS_S = 1.0
"""How long it is believed that there are keys, or none."""


class ConsoleRole(IntEnum):
    """Permissions of a session: each role includes those before it."""

    NONE = 0
    VIEWER = 1
    RATER = 2
    OPERATOR = 3
    ADMIN = 4

    @property
    def word(self) -> str:
        """Its name in a sentence."""
        return self.name.lower()


ROLES = {
    "view": ConsoleRole.VIEWER,
    "rate": ConsoleRole.RATER,
    "operate": ConsoleRole.OPERATOR,
    "admin": ConsoleRole.ADMIN,
}
"""Scope of a key → role at the console."""


def role_of(key: Key) -> ConsoleRole:
    """The highest role that the key's scopes give."""
    return max((ROLES[scope] for scope in key.scopes if scope in ROLES), default=ConsoleRole.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """A browser that is known. One that has not signed in has a session too, for its form."""

    csrf: str
    role: ConsoleRole = ConsoleRole.NONE
    who: str = ""
    """The key's owner, under whose name decisions go on record."""
    key: str = ""
    """Id of the key; empty where none is needed."""
    begun: float
    seen: float

    def lasts(self, now: float) -> bool:
        """True until its time is up."""
        return now - self.seen < IDLE_S and now - self.begun < LONGEST_S


@dataclass(frozen=True, slots=True)
class SessionLookup:
    """The session of a request, and the cookie to be set if it is new."""

    session: ConsoleSession
    cookie: str | None = None
    reason: str = ""
    """Why an earlier session is over."""


@dataclass(slots=True)
class Sessions:
    """All sessions of one console. A restart ends them. Safe to call from several threads."""

    db: LoomDB
    is_local: bool
    """Only this machine reaches the console: without any key for people it is open."""
    clock: Callable[[], float] = time.time
    _sessions: OrderedDict[str, ConsoleSession] = field(default_factory=OrderedDict)
    _failed: dict[str, deque[float]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _keys: tuple[float, bool] = (-math.inf, False)

    @property
    def is_open(self) -> bool:
        """True where everybody on this machine is an administrator, because no key for people is on record."""
        return self.is_local and not self._has_keys()

    def known(self, cookie: str | None) -> SessionLookup:
        """The session behind a cookie, or a new one."""
        now = self.clock()
        reason = ""
        found = self._sessions.get(_hash(cookie)) if cookie else None
        if found is not None:
            reason = self._why_over(found, now)
            if not reason:
                found = replace(found, seen=now)
                with self._lock:
                    self._sessions[_hash(cookie or "")] = found
                return SessionLookup(found)
            self.end(cookie)
        elif cookie:
            reason = "Your session has ended. Sign in again."
        if self.is_open:
            begun = ConsoleSession(
                csrf=secrets.token_hex(16), role=ConsoleRole.ADMIN, who=getpass.getuser(), begun=now, seen=now
            )
            return SessionLookup(begun, self._keep(begun))
        begun = ConsoleSession(csrf=secrets.token_hex(16), begun=now, seen=now)
        return SessionLookup(begun, self._keep(begun), reason)

    def sign_in(self, plain: str, *, before: str | None, address: str) -> str:
        """The cookie of a new session in place of the former; Refused 401 or 429."""
        now = self.clock()
        key = self._key(plain.strip(), now)
        if key is None:
            raise self._failure(address, now)
        role = role_of(key)
        if role is ConsoleRole.NONE:
            raise Refused(403, f"This key may {', '.join(key.scopes)}, but not look: it needs the scope view or more.")
        self.end(before)
        return self._keep(
            ConsoleSession(csrf=secrets.token_hex(16), role=role, who=key.name, key=key.id, begun=now, seen=now)
        )

    def end(self, cookie: str | None) -> None:
        """End the session behind a cookie."""
        if cookie:
            with self._lock:
                self._sessions.pop(_hash(cookie), None)

    def forget(self) -> None:
        """Look again whether there are keys."""
        self._keys = (-math.inf, False)

    def _failure(self, address: str, now: float) -> Refused:
        """The answer to a wrong key. A right one is let in after any number of them: many people share the address of a
        proxy, and a key of 192 random bits is not found by trying.
        """
        if len(self._failed) > MOST_SESSIONS:
            self._failed.clear()
        failed = self._failed.setdefault(address, deque(maxlen=TRIES + 1))
        failed.append(now)
        while failed[0] <= now - TRIES_S:
            failed.popleft()
        if len(failed) > TRIES:
            wait = failed[0] + TRIES_S - now
            return Refused(
                429, f"Too many wrong keys from {address}. Wait {wait:.0f} s, or sign in with the right one."
            )
        return Refused(401, "This is no key that holds. `loomrl keys create NAME --scope view` makes one.")

    def _key(self, plain: str, now: float) -> Key | None:
        match = FORM.fullmatch(plain)
        if match is None:
            return None
        key = KEYS.find(self.db, match[1])
        return key if is_secret_of(key, match[2]) and key is not None and key.holds(now) else None

    def _why_over(self, session: ConsoleSession, now: float) -> str:
        """The reason why a session ends now; empty if it goes on."""
        if not session.lasts(now):
            return "Your session has ended. Sign in again."
        if session.key:
            key = KEYS.find(self.db, session.key)
            if key is None or not key.holds(now):
                return "Your key was revoked or has expired. Sign in with another."
            return "" if role_of(key) == session.role else "Your key's scopes have changed. Sign in again."
        if session.role is not ConsoleRole.NONE and not self.is_open:
            return "There are keys now. Sign in."
        return "" if session.role is not ConsoleRole.NONE or not self.is_open else "No key is needed any more."

    def _keep(self, session: ConsoleSession) -> str:
        cookie = secrets.token_hex(32)
        with self._lock:
            self._sessions[_hash(cookie)] = session
            while len(self._sessions) > MOST_SESSIONS:
                anonymous = (name for name, each in self._sessions.items() if each.role is ConsoleRole.NONE)
                self._sessions.pop(next(anonymous, next(iter(self._sessions))))
        return cookie

    def _has_keys(self) -> bool:
        now = self.clock()
        if now - self._keys[0] > KEYS_S:
            self._keys = (now, any_key(self.db, ROLES, at=now))
        return self._keys[1]


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
