"""One thread that writes for an event loop: all waiting jobs are written together, in their order."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.refusal import Cause, Refusal

log = redacted_logger(__name__)
MOST_TOGETHER = 512


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    work: Any
    loop: asyncio.AbstractEventLoop
    result: "asyncio.Future[Any]"
    failed: Callable[[BaseException], None] | None


class Writer:
    """Does jobs in batches: `commit` gives a result or an exception for each. At most `most` wait."""

    def __init__(self, commit: Callable[[list[Any]], list[Any]], *, most: int) -> None:
        self._commit = commit
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._room = asyncio.Semaphore(most)
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    async def do(self, work: Any, *, failed: Callable[[BaseException], None] | None = None) -> Any:
        """The result of a job. An accepted job is done even if nobody waits for it any more.

        `failed` is called in the event loop if it could not be done.
        """
        async with self._room:
            loop = asyncio.get_running_loop()
            job = _Job(work, loop, loop.create_future(), failed)
            with self._changed:
                if self._closing:
                    raise Refusal(Cause.UNAVAILABLE, "The recorder is closed.", retry_after_s=1.0)
                self._jobs.append(job)
                self._changed.notify()
            return await job.result

    def close(self) -> None:
        """Finish all accepted jobs."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            try:
                results = self._commit([job.work for job in batch])
            except Exception:  # the boundary of the thread: it must live on
                log.exception("%d jobs of the recorder failed", len(batch))
                results = [Refusal(Cause.INTERNAL, "The call could not be recorded.")] * len(batch)
            for loop in {job.loop for job in batch}:
                mine = [(job, result) for job, result in zip(batch, results, strict=True) if job.loop is loop]
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, mine)

    def _next(self) -> list[_Job]:
        """The next jobs, as soon as there are any; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closing)
            return [self._jobs.popleft() for _ in range(min(len(self._jobs), MOST_TOGETHER))]


def _settle(jobs: Sequence[tuple[_Job, Any]]) -> None:
    for job, result in jobs:
        if isinstance(result, BaseException):
            if job.failed is not None:
                job.failed(result)
            if not job.result.done():
                job.result.set_exception(result)
        elif not job.result.done():
            job.result.set_result(result)
