"""Group commit: whatever waits to be written is committed together, in the order it came, with one fsync."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loomrl.errors import HubError, StoreError
from loomrl.hub.ledger import Ledger
from loomrl.store.db import LoomDB

T = TypeVar("T")
MOST_JOBS = 64
"""Jobs of one transaction; readers of the same database and other processes get a turn in between."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do under the write lock, and who waits for its result."""

    run: Callable[[Ledger], Any]
    result: Future[Any] = field(default_factory=Future)


class Committer:
    """The one writing thread of a hub."""

    def __init__(self, db: LoomDB, clock: Callable[[], float]) -> None:
        self._db = db
        self._clock = clock
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="hub-committer", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[Ledger], T]) -> T:
        """The result of `work`, once it is durable. An exception of it undoes all it wrote, and nothing else."""
        job = Job(work)
        with self._gate:
            if self._closed:
                raise HubError("This hub is closed. Open it again: open_hub(url, settings).")
            self._jobs.put(job)
        result: T = job.result.result()
        return result

    def close(self) -> None:
        """Finish the jobs that were given, then end."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch = [first]
            while len(batch) < MOST_JOBS and not self._jobs.empty():
                job = self._jobs.get()
                if job is None:
                    self._commit(batch)
                    return
                batch.append(job)
            self._commit(batch)

    def _commit(self, batch: list[Job]) -> None:
        try:
            with self._db.write() as connection:
                ledger = Ledger(connection, self._clock())
                results = [job.run(ledger) for job in batch]
                ledger.close()
        except Exception as error:  # noqa: BLE001 - the boundary of jobs: a failure belongs to who gave the job
            self._fail(batch, error)
            return
        for job, result in zip(batch, results, strict=True):
            job.result.set_result(result)

    def _fail(self, batch: list[Job], error: Exception) -> None:
        """A job that is refused spoils no other: they are tried one by one. A database that fails, fails them all."""
        if len(batch) == 1 or isinstance(error, StoreError):
            for job in batch:
                job.result.set_exception(error)
            return
        for job in batch:
            self._commit([job])
