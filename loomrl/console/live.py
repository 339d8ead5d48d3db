"""Live pages: what is committed to LoomDB goes to every browser that watches, by server-sent events.

One reader per console asks LoomDB for what is past its cursors, only while a page is open, and never a trainer.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.responses import StreamingResponse

from loomrl.errors import LoomError
from loomrl.http.site import Refused
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.view.metrics import last_metrics, newest_metrics

log = logging.getLogger(__name__)
LOOK_S = 0.1
BEAT_S = 15.0
"""A stream that has nothing to tell says so this often, so that both ends know it is there."""
MOST_STREAMS = 1000
MOST_WAITING = 1000
"""Messages for a browser that does not read; then its stream ends, and it comes back by itself."""
STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}


@dataclass(frozen=True, slots=True)
class News:
    """Something that was committed: an event's kind and subject, `metrics` of a run, or new `trajectories`."""

    id: int
    """Position of the event; of others that of the last event before."""
    kind: str
    subject: str
    at: float

    def is_past(self, position: int) -> bool:
        """False of an event up to `position`."""
        return self.id > position or "." not in self.kind

    def line(self) -> str:
        """The event in the form of server-sent events."""
        data = json.dumps({"kind": self.kind, "subject": self.subject, "at": self.at})
        return f"id: {self.id}\nevent: news\ndata: {data}\n\n"


@dataclass(slots=True)
class NewsFeed:
    """The reader and the queues of those who watch. Lives on one event loop."""

    db: LoomDB
    _watchers: set[asyncio.Queue[News | None]] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None
    _started: asyncio.Event = field(default_factory=asyncio.Event)
    _event: int = 0
    _metric: int = 0
    _loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def subscribe(self) -> Iterator[asyncio.Queue[News | None]]:
        """A queue of what comes."""
        queue: asyncio.Queue[News | None] = asyncio.Queue(MOST_WAITING)
        self._watchers.add(queue)
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._started.clear()
            self._task = asyncio.create_task(self._read())
        try:
            yield queue
        finally:
            self._watchers.discard(queue)

    def refuse_crowd(self) -> None:
        """Refused 503 if too many watch already."""
        if len(self._watchers) >= MOST_STREAMS:
            said = f"{MOST_STREAMS} pages are live already: this one shows what was there when it was loaded."
            raise Refused(503, said)

    async def wait_for_start(self) -> None:
        """Wait until whatever is committed from now on reaches the queues."""
        await self._started.wait()

    def read_since(self, after: int) -> list[News]:
        """Events committed between the making of a page and its stream, 200 at most."""
        found = EVENTS.read(self.db, after=after, limit=200)
        return [News(position, event.kind, event.subject, event.created_at) for position, event in found]

    def tell(self, kind: str, subject: str = "") -> None:
        """Publish news that no log has; from any thread."""
        if self._loop is not None and self._watchers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, [News(self._event, kind, subject, time.time())])

    def end(self) -> None:
        """End every stream."""
        for queue in list(self._watchers):
            _enqueue(queue, None)
        self._started.set()
        if self._task is not None:
            self._task.cancel()

    async def _read(self) -> None:
        while self._watchers:
            try:
                if self._started.is_set():
                    self._send(await asyncio.to_thread(self._news))
                else:
                    self._event, self._metric = await asyncio.to_thread(self._cursors)
                    self._started.set()
            except LoomError as error:  # the database may be away for a while
                log.warning("Live pages wait: %s", error)
                await asyncio.sleep(10 * LOOK_S)
                continue
            await asyncio.sleep(LOOK_S)

    def _cursors(self) -> tuple[int, int]:
        return EVENTS.last(self.db), last_metrics(self.db)

    def _news(self) -> list[News]:
        # metrics are read first and told last, so that every event committed before a metric comes before it
        runs: dict[str, None] = {}
        for position, run in newest_metrics(self.db, after=self._metric):
            self._metric = position
            runs[run] = None
        found: list[News] = []
        for position, event in EVENTS.read(self.db, after=self._event, limit=200):
            self._event = position
            found.append(News(position, event.kind, event.subject, event.created_at))
        return [*found, *(News(self._event, "metrics", run, time.time()) for run in runs)]

    def _send(self, news: list[News]) -> None:
        for queue in list(self._watchers):
            for each in news:
                if not _enqueue(queue, each):
                    self._watchers.discard(queue)
                    break


def _enqueue(queue: asyncio.Queue[News | None], news: News | None) -> bool:
    """True if there was room; else the stream ends."""
    try:
        queue.put_nowait(news)
    except asyncio.QueueFull:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)
        return False
    return True


def stream(
    feed: NewsFeed, *, wanted: Callable[[News], bool], after: int | None, goes_on: Callable[[], bool]
) -> StreamingResponse:
    """The stream of what is wanted, first what came past `after`; until the browser goes, the console ends, or the
    session is over.
    """
    feed.refuse_crowd()

    async def lines() -> AsyncIterator[str]:
        checked = time.monotonic()
        with feed.subscribe() as queue:
            yield "retry: 2000\n\n"
            await feed.wait_for_start()
            told = 0
            for news in [] if after is None else await asyncio.to_thread(feed.read_since, after):
                told = news.id
                if wanted(news):
                    yield news.line()
            yield ": live\n\n"
            while True:
                news_or_end = await _next(queue)
                if time.monotonic() - checked >= BEAT_S:
                    checked = time.monotonic()
                    if not await asyncio.to_thread(goes_on):
                        return
                    yield ": here\n\n"
                if news_or_end is None:
                    return
                if isinstance(news_or_end, News) and news_or_end.is_past(told) and wanted(news_or_end):
                    yield news_or_end.line()

    return StreamingResponse(lines(), media_type="text/event-stream", headers=STREAM)


async def _next(queue: asyncio.Queue[News | None]) -> News | bool | None:
    """The next event; True if none has come for a while."""
    try:
        return await asyncio.wait_for(queue.get(), BEAT_S)
    except TimeoutError:
        return True


def filter_news(kinds: list[str], subjects: list[str]) -> Callable[[News], bool]:
    """A test by the beginnings of kinds and by subjects; all are wanted where none are given."""

    def test(news: News) -> bool:
        is_kind = not kinds or any(news.kind == kind or news.kind.startswith(f"{kind}.") for kind in kinds)
        return is_kind and (not subjects or news.subject in subjects)

    return test
