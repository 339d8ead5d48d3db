"""Group commit: waiting writes are committed together, in the order in which they came, with one fsync."""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, TypeVar

from loomrl.errors import HubError, StoreError
from loomrl.hub.ledger import LeaseLedger
from loomrl.store.db import LoomDB

Item = TypeVar("Item")
T = TypeVar("T")
MOST_JOBS = 64
MOST_ITEMS = 10_000
"""A transaction that holds this much takes nothing more in, so that others get a turn in between."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do with items under the write lock, and who waits for the results, one per item."""

    work: Callable[[LeaseLedger, list[Any]], list[Any]]
    items: Sequence[Any]
    results: Future[list[Any]] = field(default_factory=Future)


class Committer:
    """The one writing thread of a hub."""

    def __init__(self, db: LoomDB, clock: Callable[[], float]) -> None:
        self._db = db
        self._clock = clock
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="hub-committer", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[LeaseLedger], T]) -> T:
        """The result of `work`, once it is durable. An exception of it undoes all it wrote, and nothing else."""
        results: list[T] = self._results(Job(lambda ledger, _: [work(ledger)], [None]))
        return results[0]

    def run_together(self, work: Callable[[LeaseLedger, list[Item]], list[T]], items: Sequence[Item]) -> list[T]:
        """`run` for one result per item; jobs with equal `work` that wait next to each other become one."""
        return self._results(Job(work, items))

    def _results(self, job: Job) -> list[Any]:
        with self._lock:
            if self._closed:
                raise HubError("This hub is closed. Open it again: open_hub(url, settings).")
            self._jobs.put(job)
        return job.results.result()

    def close(self) -> None:
        """Finish the jobs that were given, then end."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch = [first]
            while len(batch) < MOST_JOBS and sum(map(_size, batch)) < MOST_ITEMS and not self._jobs.empty():
                job = self._jobs.get()
                if job is None:
                    self._commit(batch)
                    return
                batch.append(job)
            self._commit(batch)

    def _commit(self, batch: list[Job]) -> None:
        try:
            results = self._db.again(lambda: self._write(batch))
        except Exception as error:  # noqa: BLE001 - the boundary of jobs: a failure belongs to who gave the job
            self._fail(batch, error)
            return
        for job, result in zip(batch, results, strict=True):
            job.results.set_result(result)

    def _write(self, batch: list[Job]) -> list[list[Any]]:
        with self._db.write() as connection:
            ledger = LeaseLedger(connection, self._clock())
            results = [result for work, jobs in groupby(batch, _work) for result in _perform(ledger, work, jobs)]
            ledger.close()
        return results

    def _fail(self, batch: list[Job], error: Exception) -> None:
        """A job that is refused spoils no other: they are tried one by one. A database that fails, fails them all."""
        if len(batch) == 1 or isinstance(error, StoreError):
            for job in batch:
                job.results.set_exception(error)
            return
        for job in batch:
            self._commit([job])


_work = attrgetter("work")


def _size(job: Job) -> int:
    return len(job.items)


def _perform(
    ledger: LeaseLedger, work: Callable[[LeaseLedger, list[Any]], list[Any]], jobs: Iterable[Job]
) -> list[list[Any]]:
    """The results of jobs that are the same work, job by job."""
    counts: list[int] = []
    items: list[Any] = []
    for job in jobs:
        counts.append(len(job.items))
        items += job.items
    results = iter(work(ledger, items))
    return [list(islice(results, count)) for count in counts]
