"""Scoring code that may hang, crash or exhaust memory, run in processes that can be killed.

A `Scorer` keeps a few worker processes. Each call has a deadline in processor time, so that a busy machine spoils no
answer, and `PATIENCE` times as long by the clock; then its worker is killed. A repetition decides whether a failure is
the answer's fault or the machine's: the call runs again on a fresh worker, and if it fails again, a known good call,
the control, must pass on another fresh worker. If the control passes, the answer scores 0; if even the control fails,
the caller gets a ScorerError.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from queue import SimpleQueue

from loomrl.errors import ScorerError
from loomrl.process import is_readable

START_TIMEOUT_S = 60.0
WARM_UP = 10
"""Deadlines allowed for a worker's first call."""
PATIENCE = 10
"""Deadlines by the clock after which a call without computation is abandoned."""
READY = b"ready"


class Scorer:
    """A function `(str, …) -> float` named by entry point, with a deadline and a memory limit, in its own process.

    Safe from any thread and any event loop; calls beyond `workers` wait, without using up their deadline.
    """

    def __init__(
        self,
        entry_point: str,
        *,
        control: Sequence[str],
        workers: int = 1,
        deadline_s: float = 2.0,
        memory_mb: int = 2048,
    ) -> None:
        self.entry_point = entry_point
        self.control = tuple(control)
        self.deadline_s = deadline_s
        self.memory_mb = memory_mb
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="scorer")
        self._idle: SimpleQueue[_Worker | None] = SimpleQueue()
        for _ in range(workers):
            self._idle.put(None)

    async def score(self, *arguments: str) -> float:
        """The function's result; 0 if these arguments break it on any worker; ScorerError if no worker works."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._score, arguments)

    def close(self) -> None:
        """Stop the workers. Calls in progress are answered first."""
        self._threads.shutdown()
        while not self._idle.empty():
            worker = self._idle.get()
            if worker is not None:
                worker.kill()

    def _score(self, arguments: Sequence[str]) -> float:
        worker = self._idle.get()
        try:
            for _ in range(2):
                worker = worker or self._start()
                try:
                    return worker.call(arguments, self.deadline_s)
                except _CallFailed:
                    worker.kill()
                    worker = None
            # Only a known good call tells whether the answer or the machine is at fault.
            fresh = self._start()
            self._control(fresh, self.deadline_s)
            worker = fresh
            return 0.0
        finally:
            self._idle.put(worker)

    def _start(self) -> "_Worker":
        """A worker that has done the control call, so that imports do not count against an answer."""
        worker = _Worker(self.entry_point, self.memory_mb)
        self._control(worker, WARM_UP * self.deadline_s)
        return worker

    def _control(self, worker: "_Worker", deadline_s: float) -> None:
        """The control call; a worker that fails it is killed, and no answer is blamed."""
        try:
            worker.call(self.control, deadline_s)
        except _CallFailed as error:
            worker.kill()
            raise ScorerError(f"{self.entry_point} fails its control call {self.control}: {error}.") from None


class _CallFailed(Exception):
    """A call that was not answered in time, or whose worker died."""


class _Worker:
    """One process: a line of JSON in, a line of JSON out."""

    def __init__(self, entry_point: str, memory_mb: int) -> None:
        command = [sys.executable, "-m", "loomrl.gym.scorer", entry_point, str(memory_mb)]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            bufsize=0,
        )
        try:
            ready = self._read_line(START_TIMEOUT_S)
        except _CallFailed as error:
            self.kill()
            raise ScorerError(f"{entry_point}: the scorer process did not start: {error}.") from None
        if ready != READY:
            self.kill()
            raise ScorerError(f"{entry_point}: the scorer process did not start: {ready.decode(errors='replace')}")

    def call(self, arguments: Sequence[str], deadline_s: float) -> float:
        """The function's result, or _Broken."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([deadline_s, *arguments]).encode() + b"\n")
        except OSError as error:
            raise _CallFailed(f"its process is gone ({error})") from None
        answer = json.loads(self._read_line(PATIENCE * deadline_s))
        if answer is None:
            raise _CallFailed("out of memory or out of stack")
        return float(answer)

    def kill(self) -> None:
        """End the process at once and reap it."""
        self._process.kill()
        self._process.communicate()

    def _read_line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        line = b""
        deadline = time.monotonic() + timeout_s
        while not line.endswith(b"\n"):
            if not is_readable(descriptor, max(0.0, deadline - time.monotonic())):
                raise _CallFailed(f"no answer within {timeout_s:g} s")
            chunk = os.read(descriptor, 65536)
            if not chunk:
                raise _CallFailed(f"its process ended with status {self._process.wait()}")
            line += chunk
        return line.strip()


def _serve(entry_point: str, memory_mb: int) -> None:
    """The worker's main loop: limits, import, then one answer per line until stdin ends. An exception scores 0.

    A computation beyond the line's deadline is ended by SIGPROF, also inside C code.
    """
    import resource

    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    module, _, name = entry_point.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        answers.write(f"{type(error).__name__}: {error}\n".encode())
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    answers.write(READY + b"\n")
    for line in sys.stdin.buffer:
        deadline_s, *arguments = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, deadline_s)
        try:
            result = json.dumps(float(function(*arguments)))
        except (MemoryError, RecursionError):
            result = "null"
        except Exception:  # noqa: BLE001 – the boundary: scoring code that raises has judged the answer unfit
            result = "0.0"
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(result.encode() + b"\n")


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
