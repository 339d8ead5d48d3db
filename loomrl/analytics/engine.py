"""The ClickHouse of folders (chdb) in a process beside a long-lived one, which is replaced from time to time.

Whenever chdb closes a folder, it leaves some five threads and fifteen descriptors behind until its process ends.

As a program, it is that process: a pickled call in, a pickled answer out, until its standard input is closed.
"""

import gc
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from loomrl.analytics.connection import ClickHouse, Connection, Names, Rows, connected
from loomrl.analytics.place import AnalyticsPlace
from loomrl.analytics.schema import Table
from loomrl.errors import AnalyticsError

OPENINGS = 20
"""Of a process: it ends with some hundred threads and three hundred descriptors."""


class Engine:
    """Opens folders, one at a time. Its process starts with the first one, and ends with this process however that
    ends, also in the middle of a question.
    """

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._openings = 0
        self._is_open = False

    @contextmanager
    def connected(self, place: AnalyticsPlace, settings: Mapping[str, Any], *, wait_s: float) -> Iterator[Connection]:
        """As `connection.connected`, with the same errors."""
        assert not self._is_open, "an engine has one folder open at a time"
        process = self._next()
        process.open(place, settings, wait_s)
        self._is_open = True
        try:
            yield process
        finally:
            self._is_open = False
            process.close()

    @property
    def pid(self) -> int | None:
        """Of its process, while it has one."""
        return None if self._process is None or self._process.has_ended else self._process.pid

    def close(self) -> None:
        """End its process; another one starts with the next opening."""
        if self._process is not None:
            self._process.end()
        self._process = None

    def _next(self) -> "_Process":
        """The process, or its successor if it has opened enough or was killed meanwhile."""
        if self._process is None or self._process.has_ended or self._openings >= OPENINGS:
            self.close()
            self._process = _Process()
            self._openings = 0
        self._openings += 1
        return self._process


class _Process:
    """One process and, between `open` and `close`, the connection that it has."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "loomrl.analytics.engine", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )
        self._turn = threading.Lock()
        self._place = ""
        self.end = weakref.finalize(self, _end, self._child)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def has_ended(self) -> bool:
        return self._child.poll() is not None

    def open(self, place: AnalyticsPlace, settings: Mapping[str, Any], wait_s: float) -> None:
        self._place = place.name
        self._call("open", place, settings, wait_s)

    def close(self) -> None:
        if not self.has_ended:
            self._call("close")

    def query(self, sql: str, parameters: Mapping[str, Any]) -> tuple[Names, Rows]:
        found: tuple[Names, Rows] = self._call("query", sql, parameters)
        return found

    def raw(self, sql: str, form: str) -> bytes:
        return bytes(self._call("raw", sql, form))

    def do(self, sql: str, parameters: Mapping[str, Any]) -> None:
        self._call("do", sql, parameters)

    def insert(self, table: Table, columns: Rows) -> None:
        self._call("insert", table, columns)

    def _call(self, name: str, *arguments: Any) -> Any:
        with self._turn:
            try:
                answer, error = self._exchange((name, arguments))
            except (EOFError, BrokenPipeError):
                self.end()
                status = self._child.returncode
                said = f"{self._place}: the process of ClickHouse ended with status {status} before it answered."
                raise AnalyticsError(said) from None
            except BaseException:  # interrupted: what it answers later is no answer to the next call
                self.end()
                raise
        if error is not None:
            raise error
        return answer

    def _exchange(self, call: tuple[str, tuple[Any, ...]]) -> tuple[Any, Exception | None]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickle.dump(call, self._child.stdin)
        self._child.stdin.flush()
        answer: tuple[Any, Exception | None] = pickle.load(self._child.stdout)
        return answer


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    child.communicate()


def _serve(user: int) -> None:
    """Answer calls. The cyclic collector would look through a page's rows again and again: it waits for the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: whoever started us decides
    calls = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_input, daemon=True).start()
    gc.disable()
    stack = ExitStack()
    connection = None
    while True:
        name, arguments = pickle.load(calls)
        answer = None
        error = None
        try:
            if name == "open":
                place, settings, wait_s = arguments
                connection = stack.enter_context(connected(place, settings, wait_s=wait_s, user=user))
            elif name == "close":
                stack.close()
                gc.collect()
            else:
                assert isinstance(connection, ClickHouse)
                answer = getattr(connection, name)(*arguments)
        except Exception as failure:  # noqa: BLE001 - the boundary: it is raised there
            error = failure
        pickle.dump((answer, error), answers)
        answers.flush()


def _end_with_input() -> None:
    """End at once when nobody can call any more, whatever is under way: what was inserted is there."""
    poll = select.poll()
    poll.register(0, 0)  # a closed pipe is told of unasked
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
