"""Runs inside the sandbox: loads a submission, calls it once, and writes what it returned between two nonces.

Only the text of this module goes there, so it imports nothing of ours. The expected value never does: a submission that
takes over the whole process can still do no more than name a value, which is what it was asked for. The nonce keeps
prints, background processes and second answers from being mistaken for the result.
"""

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from _typeshed import TraceFunction

MAX_DEPTH = 16


class Malformed(Exception):
    """Data that encodes no value."""


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
        body = {"error": f"{type(error).__name__}: {error!s:.100}"}
    answer(sink, request["nonce"], body)


def call(request: dict[str, object], counter: "LineCounter") -> dict[str, object]:
    """What the submission's function returns for the request's arguments, and how many lines that took."""
    arguments = [decode(item) for item in list_of(request["arguments"])]
    code = compile(str(request["source"]), "<submission>", "exec")
    names: dict[str, object] = {"__name__": "submission"}
    counter.start()
    exec(code, names)
    function = names.get(str(request["name"]))
    if not callable(function):
        raise NameError(f"no function {request['name']} was defined")
    value = function(*arguments)
    lines = counter.stop()
    return {"value": encode(value), "lines": lines}


def answer(sink: int, nonce: object, body: dict[str, object]) -> None:
    """Write the one result, and end the process before anything else of the submission can run."""
    data = f"{nonce}{json.dumps(body)}{nonce}".encode()
    while data:
        data = data[os.write(sink, data) :]
    os._exit(0)


class LineCounter:
    """Counts the lines that a submission executes, where the request sets a budget; more than that ends the process."""

    def __init__(self, request: dict[str, object], sink: int) -> None:
        self.budget = int(str(request["budget"]))
        self.lines = 0
        self._sink, self._nonce = sink, request["nonce"]

    def start(self) -> None:
        """Count from here on; only where there is a budget, for it makes everything slower."""
        if self.budget:
            self._hook = self.trace
            sys.settrace(self._hook)

    def stop(self) -> "int | None":
        """The lines so far; None where counting was cut off, as by exhausting the stack inside the trace function."""
        intact = bool(self.budget) and sys.gettrace() is self._hook
        sys.settrace(None)
        return self.lines if intact else None

    def trace(self, frame: "FrameType", event: str, argument: object) -> "TraceFunction":
        """The trace function."""
        if event == "line":
            self.lines += 1
            if self.lines > self.budget:
                answer(self._sink, self._nonce, {"error": "Budget: too many lines were executed"})
        return self._hook


def encode(value: object) -> object:
    """JSON that keeps types apart: what JSON has no word for is an object whose key is its type's first letter."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [encode(item) for item in value]
    if type(value) is tuple:
        return {"t": [encode(item) for item in value]}
    if type(value) is dict:
        return {"d": [[encode(key), encode(item)] for key, item in value.items()]}
    raise TypeError(f"a {type(value).__name__} was returned")


def decode(data: object, depth: int = 0) -> object:
    """The value that `encode` made `data` from; Malformed for anything else."""
    if depth > MAX_DEPTH:
        raise Malformed("nested too deeply")
    if type(data) is list:
        return [decode(item, depth + 1) for item in data]
    if type(data) is not dict:
        return data
    if data.keys() == {"t"}:
        return tuple(decode(item, depth + 1) for item in list_of(data["t"]))
    if data.keys() != {"d"}:
        raise Malformed("no encoded value")
    pairs = [list_of(pair) for pair in list_of(data["d"])]
    if any(len(pair) != 2 for pair in pairs):
        raise Malformed("not a key and a value")
    try:
        return {decode(key, depth + 1): decode(item, depth + 1) for key, item in pairs}
    except TypeError as error:
        raise Malformed("a key that can be changed") from error


def list_of(data: object) -> "list[object]":
    """`data`, if it is a list."""
    if type(data) is not list:
        raise Malformed("not a list")
    return data
