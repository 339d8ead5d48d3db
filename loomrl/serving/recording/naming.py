"""Placeholders of sessions: a value has the same one in all of a session, whichever gateway meets it, and when.

The number of a value is on record under a hash. Its key comes from the service's own secret, which no database holds:
gateways that are started again have it, and who has the database alone can try no values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from loomrl.safety.placeholder import MARK, mark, normalise
from loomrl.safety.redaction import Redaction, Redactor
from loomrl.store import LoomDB
from loomrl.store.sessions import Wanted, number_values

T = TypeVar("T")
Work = Callable[[Redaction], T]
"""Redacts something. It is called several times: the last time with the names, and with all values known."""


@dataclass(slots=True)
class _SeenValues:
    """Names nothing yet, and remembers what wants a name."""

    values: dict[str, str] = field(default_factory=dict)
    """Value → kind."""
    taken: dict[str, int] = field(default_factory=dict)

    def see(self, text: str) -> None:
        """Note the placeholders in a text."""
        for found in MARK.findall(text):
            kind, _, number = found[1:-1].partition("-")
            self.taken[kind] = max(self.taken.get(kind, 0), int(number))

    def name(self, kind: str, value: str) -> str:
        """The placeholder of a value."""
        self.values.setdefault(normalise(kind, value), kind)
        return mark(kind, 1)


@dataclass(frozen=True, slots=True)
class _StoredNames:
    """Names that are on record."""

    marks: Mapping[str, str]

    def see(self, text: str) -> None:
        """Note the placeholders in a text."""

    def name(self, kind: str, value: str) -> str:
        """The placeholder of a value."""
        return self.marks[normalise(kind, value)]


@dataclass(frozen=True, slots=True, eq=False)
class Draft(Generic[T]):
    """Something that was looked at, and is without names yet."""

    session: str
    work: Work[T]
    redaction: Redaction
    seen: _SeenValues
    result: T


class Naming:
    """Redacts what belongs to sessions. `secret` is the same in all processes of a service, and stored nowhere."""

    def __init__(self, db: LoomDB, redactor: Redactor, *, secret: bytes) -> None:
        self._db = db
        self._redactor = redactor
        self._secret = blake2b(secret).digest()

    def draft(self, session: str, work: Work[T]) -> Draft[T]:
        """The work, done but for the names."""
        seen = _SeenValues()
        redaction = Redaction(self._redactor, seen)
        return Draft(session, work, redaction, seen, redaction.whole(work))

    def name_drafts(self, drafts: Sequence[Draft[Any]]) -> list[Any]:
        """The results of drafts with their names, which are on record by then. A StoreError if they cannot be."""
        wanted: dict[str, Wanted] = {}
        for draft in drafts:
            if draft.seen.values:
                before = wanted.get(draft.session, Wanted())
                hashes = {self._hash(draft.session, value): kind for value, kind in draft.seen.values.items()}
                taken = {kind: max(number, before.taken.get(kind, 0)) for kind, number in draft.seen.taken.items()}
                wanted[draft.session] = Wanted({**before.values, **hashes}, {**before.taken, **taken})
        numbers = number_values(self._db, wanted) if wanted else {}
        return [self._done(draft, numbers) for draft in drafts]

    def redact_for(self, session: str, work: Work[T]) -> T:
        """The result of one work."""
        (result,) = self.name_drafts([self.draft(session, work)])
        return result  # type: ignore[no-any-return]

    def _done(self, draft: Draft[T], numbers: Mapping[tuple[str, bytes], tuple[str, int]]) -> T:
        if not draft.seen.values:
            return draft.result
        marks = {value: mark(*numbers[draft.session, self._hash(draft.session, value)]) for value in draft.seen.values}
        draft.redaction.begin(_StoredNames(marks))
        return draft.work(draft.redaction)

    def _hash(self, session: str, value: str) -> bytes:
        text = f"{session}\0{value}".encode("utf-8", "surrogatepass")
        return blake2b(text, key=self._secret, digest_size=16).digest()
