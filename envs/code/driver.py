"""Runs inside the sandbox: loads a submission, calls it once, and writes its value between two nonces.

Only this module's source is sent there, so it imports nothing of ours. The expected value is never sent: a submission
that takes over the whole process can still only name a value, which is its task anyway. The nonce keeps prints,
background processes and second answers from being mistaken for the result.
"""

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from _typeshed import TraceFunction

MAX_SHOWN = 160


def serve() -> None:
    """Answer the one request on stdin, and end the process."""
    request = json.loads(sys.stdin.buffer.read())
    sys.setrecursionlimit(5000)
    sink = os.dup(1)
    silence = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silence, number)
    counter = LineCounter(request, sink)
    try:
        body = call(request, counter)
    except BaseException as error:  # noqa: BLE001 - the submission's code
        sys.settrace(None)
        body = f"error {type(error).__name__}: {error!s:.100}"
    answer(sink, request["nonce"], body)


def call(request: dict[str, object], counter: "LineCounter") -> str:
    """The number of lines executed by the submission's function, and its values."""
    calls = eval(str(request["calls"]), {})  # noqa: S307 – the host's own text
    code = compile(str(request["source"]), "<submission>", "exec")
    names: dict[str, object] = {"__name__": "submission"}
    counter.start()
    exec(code, names)
    function = names.get(str(request["name"]))
    if not callable(function):
        raise NameError(f"no function {request['name']} was defined")
    values = []
    for arguments in calls:
        value = function(*arguments)
        lines = counter.stop()
        values.append(write_value(value))  # before a later call can change it
    return "\n".join([f"value {lines}", show_value(value), *values])


def answer(sink: int, nonce: object, body: str) -> None:
    """Write the one result, and end the process before anything else of the submission can run."""
    data = f"{nonce}{body}{nonce}".encode(errors="backslashreplace")
    while data:
        data = data[os.write(sink, data) :]
    os._exit(0)


class LineCounter:
    """Counts the executed lines of a submission if the request sets a budget; exceeding it ends the process."""

    def __init__(self, request: dict[str, object], sink: int) -> None:
        self.budget = int(str(request["budget"]))
        self.lines = 0
        self._sink = sink
        self._nonce = request["nonce"]

    def start(self) -> None:
        """Start counting, if there is a budget; counting makes everything slower."""
        if self.budget:
            self._hook = self.trace
            sys.settrace(self._hook)

    def stop(self) -> "int | None":
        """The lines so far; None if counting was interrupted, as by exhausting the stack inside the trace function."""
        intact = bool(self.budget) and sys.gettrace() is self._hook
        sys.settrace(None)
        return self.lines if intact else None

    def trace(self, frame: "FrameType", event: str, argument: object) -> "TraceFunction":
        """The trace function."""
        if event == "line":
            self.lines += 1
            if self.lines > self.budget:
                answer(self._sink, self._nonce, "error Budget: too many lines were executed")
        return self._hook


def write_value(value: object) -> str:
    """A line for each value, before those of its contents: its type's first letter, then itself or its size.

    Equal values of equal types, and no others, have equal text: a dict's entries are in the order of their keys' lines.
    So the expected value is compared as text, and nothing is built from a submission's output.
    """
    return "\n".join(lines_of(value))


def lines_of(value: object) -> "Iterator[str]":
    """The lines of `written`."""
    if value is None or type(value) in (bool, int, float):
        yield f"{type(value).__name__[0]}{value!r}"
    elif type(value) is str:
        yield f"s{value!a}"
    elif type(value) is list or type(value) is tuple:
        yield f"{type(value).__name__[0]}{len(value)}"
        for item in value:
            yield from lines_of(item)
    elif type(value) is dict:
        yield f"d{len(value)}"
        for key, item in sorted((write_value(key), item) for key, item in value.items()):
            yield key
            yield from lines_of(item)
    else:
        raise TypeError(f"a {type(value).__name__} was returned")


def show_value(value: object) -> str:
    """A value for a message: ASCII, one line, and cut where it is long."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):
        return "(a value too large to show)"
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
