"""The requests and results of a training, durable: a request before it is acknowledged, a result before it is told.

Requests are numbered from 1 in the order in which they take effect. A training is its newest checkpoint and the
requests after it, done again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loomrl.artifacts import Artifacts

KEPT_S = 600.0
"""Time for which a result that was handed out is kept, for a client whose connection broke."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A request: what it asks for, as it came."""

    seq: int
    verb: str
    body: bytes


class Journal:
    """The requests and results of one run among the artifacts."""

    def __init__(self, artifacts: Artifacts, run: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._artifacts = artifacts
        self._folder = f"tinker/{run}"
        self._clock = clock
        self._requests = self._numbers("requests")
        self.answered = self._numbers("results")
        """Requests whose results are kept."""
        self._told = dict.fromkeys(self.answered, clock())
        """Time at which a result was last handed out; of those that an earlier process left, the time of opening."""

    def add(self, entry: JournalEntry) -> None:
        """Keep a request, unless one of this number is there."""
        if entry.seq not in self._requests:
            self._artifacts.put(self._name("requests", entry.seq), entry.verb.encode() + b"\n" + entry.body)
            self._requests.add(entry.seq)

    def after(self, seq: int) -> Iterator[JournalEntry]:
        """The requests beyond this number, in order."""
        for number in sorted(self._requests):
            if number > seq:
                verb, _, body = self._artifacts.get(self._name("requests", number)).partition(b"\n")
                yield JournalEntry(number, verb.decode(), body)

    def answer(self, seq: int, result: bytes) -> None:
        """Keep a result, unless there is one: a request that is done again answers as it did."""
        if seq not in self.answered:
            self._artifacts.put(self._name("results", seq), result)
            self.answered.add(seq)

    def result(self, seq: int) -> bytes:
        """A result that is kept."""
        self._told[seq] = self._clock()
        return self._artifacts.get(self._name("results", seq))

    def forget(self, seq: int) -> None:
        """Delete the requests up to this number, which a checkpoint holds, and those of their results that were handed
        out long ago.
        """
        for number in [number for number in self._requests if number <= seq]:
            self._artifacts.delete(self._name("requests", number), missing_ok=True)
            self._requests.discard(number)
        now = self._clock()
        for number in [number for number, at in self._told.items() if number <= seq and now - at > KEPT_S]:
            self._artifacts.delete(self._name("results", number), missing_ok=True)
            self.answered.discard(number)
            del self._told[number]

    def clear(self) -> None:
        """Delete everything."""
        for name in self._artifacts.list_names(self._folder):
            self._artifacts.delete(name, missing_ok=True)
        self._requests.clear()
        self.answered.clear()
        self._told.clear()

    def _numbers(self, kind: str) -> set[int]:
        return {int(name.rpartition("/")[2]) for name in self._artifacts.list_names(f"{self._folder}/{kind}")}

    def _name(self, kind: str, seq: int) -> str:
        return f"{self._folder}/{kind}/{seq:09d}"
