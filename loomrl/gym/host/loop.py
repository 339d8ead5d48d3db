"""An event loop on its own thread, for synchronous callers and for notebooks, which run inside a loop."""

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class PrivateLoop:
    """Runs coroutines for a synchronous caller. Ends with `close`, or once it is garbage-collected."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(self._loop,), daemon=True, name="loomrl-loop")
        thread.start()
        self._end = weakref.finalize(self, _stop, self._loop, thread)

    @property
    def running(self) -> bool:
        """False once it is closed, explicitly or by the program's end."""
        return self._end.alive

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; it is cancelled when the caller is interrupted."""
        future = self.start(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin `work`; its result comes later."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

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
