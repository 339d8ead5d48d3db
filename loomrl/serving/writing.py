"""The text of one answer as its tokens come."""

import codecs
from collections.abc import Sequence

from loomrl.inference.spelling import Spelling
from loomrl.serving.call import ToolCall
from loomrl.serving.reading import Reader, overlap


class Writing:
    """Turns tokens into text that no later token changes: pieces of characters and of stop strings are held back.

    With a `reader`, calls are taken out of the text. `forced` is the answer's beginning, which was not sampled.
    """

    def __init__(
        self, spelling: Spelling, *, stop: Sequence[str] = (), reader: Reader | None = None, forced: str = ""
    ) -> None:
        self.stopped_by = ""
        """The stop string that came."""
        self._spelling = spelling
        self._stop = stop
        self._reader = reader
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = ""
        """Text with which a stop string may begin."""
        self._parts = [self._read(forced)]

    @property
    def text(self) -> str:
        """All text that is certain."""
        return "".join(self._parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls that are whole."""
        return tuple(self._reader.calls) if self._reader else ()

    def add(self, id: int) -> str:
        """The text that is certain with one more token."""
        return self._take(self._search(self._bytes.decode(self._spelling[id])))

    def end(self) -> str:
        """The rest of the text."""
        rest = "" if self.stopped_by else self._search(self._bytes.decode(b"", final=True))
        rest = self._read(rest) + self._read("" if self.stopped_by else self._tail)
        self._tail = ""
        return self._keep(rest + (self._reader.end() if self._reader else ""))

    def _take(self, text: str) -> str:
        return self._keep(self._read(text))

    def _keep(self, text: str) -> str:
        self._parts.append(text)
        return text

    def _read(self, text: str) -> str:
        return self._reader.add(text) if self._reader and text else text

    def _search(self, text: str) -> str:
        """The text before the stop string that is complete first, or before what may become one."""
        text = self._tail + text
        found = min(((at + len(one), at, one) for one in self._stop if (at := text.find(one)) >= 0), default=None)
        if found is not None:
            self._tail = ""
            self.stopped_by = found[2]
            return text[: found[1]]
        certain = len(text) - overlap(text, self._stop)
        self._tail = text[certain:]
        return text[:certain]
