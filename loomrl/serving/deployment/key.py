"""Callers by their keys, in a gateway: checked in memory, refreshed from LoomDB, with a rate limit per key.

All keys are held, and what changed since is read at most every `PACE_S`. So a flood of wrong keys costs LoomDB no more
than a trickle does, and a key is known as soon as it was created.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from loomrl.errors import StoreError
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import Caller
from loomrl.store import LoomDB
from loomrl.store.keys import FORM, Key, is_secret_of, read_keys, record_refusals

log = redacted_logger(__name__)
PACE_S = 0.05
"""Minimum time between two reads of LoomDB."""
FRESH_S = 0.5
"""Age at which the keys are read again, without delaying calls."""
STALE_S = 1.0
"""Age at which calls wait for that: after this a revoked key no longer works."""
BLIND_S = 60.0
"""Time for which known keys stay valid while LoomDB cannot be read."""
AUDIT_S = 10.0
"""Time between two rows of refused calls in LoomDB."""
NEEDED = "This server needs a key: send the header 'Authorization: Bearer KEY' ('loomrl keys create' makes one)."


@dataclass(slots=True)
class _Bucket:
    """Tokens for calls, refilled with time."""

    level: float
    at: float

    def take(self, rate: float, now: float) -> float:
        """Take one: 0, or the seconds until there is one."""
        most = max(1.0, rate)
        self.level = min(most, self.level + (now - self.at) * rate)
        self.at = now
        if self.level < 1.0:
            return (1.0 - self.level) / rate
        self.level -= 1.0
        return 0.0


class StoredKeys:
    """The keys of a LoomDB. Without `required`, callers without a key of ours may do everything (this machine only)."""

    def __init__(self, db: LoomDB, *, required: bool, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._required = required
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._position = 0
        self._looked_at = self._seen_at = float("-inf")
        self._look: asyncio.Task[None] | None = None
        self._refused: Counter[str] = Counter()
        self._audited_at = time.monotonic()
        self.looks = 0
        """Number of reads of LoomDB."""

    async def caller(self, token: str | None, *, scope: str) -> Caller:
        """The caller; a Refusal KEY, FORBIDDEN or BUDGET."""
        found = None if token is None else FORM.fullmatch(token)
        if found is None:
            if self._required:
                raise self._refusal(RefusalCause.KEY, NEEDED if token is None else "This is no key of this server.")
            return Caller(key="")
        await self._keep_fresh()
        key = self._right(found[1], found[2])
        if key is None:
            await self._look_anew()
            key = self._right(found[1], found[2])
        if key is None:
            raise self._refusal(RefusalCause.KEY, "This is no key of this server.")
        self._check(key, scope)
        return Caller(key=key.id, is_admin="admin" in key.scopes)

    def spent(self, caller: Caller, tokens: int) -> None:
        """Keys of LoomDB have a rate of calls and no budget of tokens."""

    def _check(self, key: Key, scope: str) -> None:
        if not key.holds(self._clock()):
            state = "was revoked" if key.revoked_at is not None else "has expired"
            raise self._refusal(RefusalCause.KEY, f"The key {key.id} {state}.", key)
        if scope not in key.scopes and "admin" not in key.scopes:
            has = ", ".join(key.scopes)
            raise self._refusal(RefusalCause.FORBIDDEN, f"The key {key.id} is for {has}; this needs {scope}.", key)
        if key.rate is not None:
            now = time.monotonic()
            bucket = self._buckets.setdefault(key.id, _Bucket(max(1.0, key.rate), now))
            wait_s = bucket.take(key.rate, now)
            if wait_s:
                message = f"The key {key.id} allows {key.rate:g} calls a second."
                raise self._refusal(RefusalCause.BUDGET, message, key, retry_after_s=wait_s)

    def _refusal(
        self, cause: RefusalCause, message: str, key: Key | None = None, *, retry_after_s: float | None = None
    ) -> Refusal:
        self._refused[cause.value if key is None else f"{cause.value} {key.id}"] += 1
        return Refusal(cause, message, retry_after_s=retry_after_s)

    def _right(self, id: str, secret: str) -> Key | None:
        """The key of this id, if the secret is its own."""
        key = self._keys.get(id)
        return key if is_secret_of(key, secret) else None

    async def _look_anew(self) -> None:
        """Look for keys that were created until now, together with all other calls that wait for that.

        This is done for every wrong key, known id or not: the time of an answer tells no ids.
        """
        arrived = time.monotonic()
        while self._looked_at < arrived:
            await self._look_again()

    async def _keep_fresh(self) -> None:
        age = time.monotonic() - self._looked_at
        if age > STALE_S:
            await self._look_again()
        elif age > FRESH_S:
            self._begin()

    def _begin(self) -> asyncio.Task[None]:
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._refresh())
        return self._look

    async def _look_again(self) -> None:
        await asyncio.shield(self._begin())
        if time.monotonic() - self._seen_at > BLIND_S:
            raise Refusal(RefusalCause.UNAVAILABLE, "Keys cannot be checked at the moment.", retry_after_s=1.0)

    async def _refresh(self) -> None:
        await asyncio.sleep(self._looked_at + PACE_S - time.monotonic())
        began = time.monotonic()
        self.looks += 1
        try:
            self._position, changed = await asyncio.to_thread(read_keys, self._db, after=self._position)
        except StoreError as error:
            log.warning("Keys cannot be read: %s", error)
        else:
            self._keys.update((key.id, key) for key in changed)
            self._seen_at = began
        self._looked_at = began
        await self._audit(began)

    async def _audit(self, now: float) -> None:
        """Record the refused calls."""
        if not self._refused or now - self._audited_at < AUDIT_S:
            return
        counts = self._refused
        self._refused = Counter()
        self._audited_at = now
        try:
            await asyncio.to_thread(record_refusals, self._db, counts, at=self._clock())
        except StoreError as error:
            log.warning("Refused calls are not on record (%s): %s", dict(counts), error)
