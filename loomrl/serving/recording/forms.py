"""The form of steps is one in a session: that of the first."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from loomrl.serving.recording.acts import Form, NewActs, are_acts, check_form, decode_acts, form_of
from loomrl.store.sessions import StoredCall, StoredSession

Read = Callable[[str], Awaitable[tuple[StoredSession | None, Sequence[StoredCall]]]]


class Forms:
    """The forms of the sessions that were used last; `read` gives a session and its calls, if they are on record."""

    def __init__(self, read: Read, *, most: int) -> None:
        self._read = read
        self._most = most
        self._known: OrderedDict[tuple[str, str, str], Form] = OrderedDict()

    async def check(self, new: NewActs) -> None:
        """A Refusal INVALID for acts of another form than the session's first."""
        place = new.session, new.key, new.endpoint
        if place not in self._known:
            stored, rows = await self._read(new.session)
            if stored is not None and (stored.key, stored.endpoint) != place[1:]:
                return  # it is another's: the commit refuses it
            first = next((row.payload for row in rows if are_acts(row.payload)), None)
            self._known.setdefault(place, form_of(new.acts.steps if first is None else decode_acts(first).steps))
        self._known.move_to_end(place)
        check_form(new.session, self._known[place], new.acts.steps)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
