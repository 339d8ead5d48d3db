"""An event loop on a thread of its own, for callers that wait: plain code, and notebooks, which run inside a loop."""

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class PrivateLoop:
    """Runs coroutines for a caller that waits. Ends with `close`, or when nobody holds it any more."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(self._loop,), daemon=True, name="loomrl-loop")
        thread.start()
        self._end = weakref.finalize(self, _stop, self._loop, thread)

    @property
    def running(self) -> bool:
        """Whether it has not been closed, by hand or at the end of the program."""
        return self._end.alive

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; it is cancelled when the caller is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """End the thread. May be called again."""
        self._end()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()
