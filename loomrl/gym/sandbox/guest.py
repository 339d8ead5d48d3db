"""The guest inside the sandbox: it forks a process per program, feeds and watches it, and reports how it ended.

Never imported: its source is passed to the sandbox's own Python, which may be older than ours. It answers on standard
input and output, which no program inherits: `R` once it is ready, then for every request `S` once the program's process
exists and `F` with its outcome, or `N` if no process could be made.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` takes as long to import as all the others
import atexit
import gc
import os
import resource
import select
import struct
import sys
import time

SIZES = struct.Struct("<IId")
EXECUTION = struct.Struct("<cB?dII")
EXITED = b"E"
SIGNALLED = b"S"
TIMEOUT = b"T"
OVERFLOW = b"O"
CHUNK = 1 << 16
TAIL = 1 << 14
ALONE_S = 1.0
HIGHEST_FD = 256
LOOK_S = 0.0002
LOOKS_S = 0.01
"""First and longest interval between two checks whether a program has ended."""
CLOSED = -1
NOBODY = 65534
SCRATCH = "/tmp"

CPU_S, MEMORY_MB, PROCESSES, OUTPUT_BYTES, SCRATCH_MB, KEEPS_FILES = (float(text) for text in sys.argv[1:7])


def take(count: int) -> bytes:
    """Exactly `count` bytes from the host, which hangs up when it is done."""
    parts = []
    while count:
        try:
            part = os.read(0, min(count, 1 << 20))
        except BlockingIOError:  # gVisor's sockets to the host never wait
            wait_for(0, select.POLLIN)
            continue
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def give(*parts: bytes) -> None:
    """Send all of it to the host."""
    for part in parts:
        view = memoryview(part)
        while view:
            try:
                view = view[os.write(1, view) :]
            except BlockingIOError:
                wait_for(1, select.POLLOUT)


def wait_for(fd: int, event: int) -> None:
    """Wait for an event on a descriptor."""
    poller = select.poll()
    poller.register(fd, event)
    poller.poll()


def scratch_state() -> tuple[int, list[str]]:
    """A value that changes with any change in the scratch directory: its change time cannot be set back."""
    return os.stat(SCRATCH).st_ctime_ns, os.listdir(SCRATCH)  # noqa: PTH116, PTH208 – pathlib takes long to import


class Run:
    """One program's process and the three pipes to it."""

    def __init__(self, child: int, stdin: bytes, wall_s: float, ours: tuple[int, int, int]) -> None:
        feed, output, errors = ours
        self.child = child
        self.stdin = memoryview(stdin)
        self.wall_s = wall_s
        self.feed = feed
        self.sinks = {output: bytearray(), errors: bytearray()}
        self.output = self.sinks[output]
        self.errors = self.sinks[errors]
        self.reaped = False
        self.status = 0
        for fd in (feed, output, errors):
            os.set_blocking(fd, False)
        self.poller = select.poll()
        for fd in (output, errors):
            self.poller.register(fd, select.POLLIN)
        self.poller.register(feed, select.POLLOUT)

    def watch(self) -> tuple[bytes, int, float]:
        """Run until the program has ended or must be killed."""
        start = time.monotonic()
        ending: bytes | None = None
        nap = LOOK_S
        while ending is None and not self.reaped:
            left = self.wall_s - (time.monotonic() - start)
            if left <= 0:
                ending = TIMEOUT
            elif self.sinks:
                self.pump(min(LOOKS_S, left))
            else:  # its outputs are closed: most likely it has ended
                self.pump(0)
                time.sleep(min(nap, left))
                nap = min(2 * nap, LOOKS_S)
            if len(self.output) > OUTPUT_BYTES:
                ending = OVERFLOW
            self.reap(os.WNOHANG)
        wall_s = time.monotonic() - start
        kill_all()
        if not self.reaped:
            self.reap(0)
        return (*self.verdict(ending), wall_s)

    def pump(self, timeout_s: float) -> None:
        """Move available data, waiting at most this long."""
        for fd, _ in self.poller.poll(timeout_s * 1000):
            if fd == self.feed:
                self.push()
            else:
                self.pull(fd)

    def push(self) -> None:
        """Give the program more of its input, as much as it accepts."""
        try:
            self.stdin = self.stdin[os.write(self.feed, self.stdin[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # its input is closed
            self.stdin = self.stdin[:0]
        if not self.stdin:
            self.poller.unregister(self.feed)
            os.close(self.feed)
            self.feed = CLOSED

    def pull(self, fd: int) -> None:
        """Keep the program's output from this descriptor."""
        try:
            part = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        sink = self.sinks[fd]
        sink += part
        if sink is self.errors:
            del sink[:-TAIL]
        if not part:
            self.poller.unregister(fd)
            os.close(fd)
            del self.sinks[fd]

    def reap(self, flags: int) -> None:
        """Record how the program ended, if it has."""
        pid, status = os.waitpid(self.child, flags)
        if pid:
            self.reaped = True
            self.status = status

    def drain(self) -> None:
        """Read the rest of the pipes after all processes are dead, and close them."""
        while self.sinks and len(self.output) <= OUTPUT_BYTES:
            self.pump(ALONE_S)
        for fd in [*self.sinks, self.feed]:
            if fd != CLOSED:
                os.close(fd)

    def verdict(self, ending: bytes | None) -> tuple[bytes, int]:
        """The ending, with the exit code or signal."""
        if ending is not None:
            return ending, signal.SIGKILL
        if os.WIFEXITED(self.status):
            return EXITED, os.WEXITSTATUS(self.status)
        number = os.WTERMSIG(self.status)
        return (TIMEOUT if number == signal.SIGXCPU else SIGNALLED), number


def kill_all() -> bool:
    """Kill every process but this one and the first; one pass reaches all, as a dying process cannot fork."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def alone() -> bool:
    """True if all other processes are dead and reaped within a moment."""
    deadline = time.monotonic() + ALONE_S
    while kill_all():
        if os.getpid() == 1:
            bury()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


def bury() -> None:
    """Reap orphans, which the first process inherits."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def make_process(streams: tuple[int, int, int]) -> int | None:
    """Fork: the child's id, 0 in the child, or None if the child could not be set up. The host knows before it runs."""
    (made, making), (go, going) = os.pipe(), os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        print(f"no process: {error}", file=sys.stderr)
        child = CLOSED
    if child == 0:
        become_program(streams, making, go)
        return 0
    os.close(making)
    os.close(go)
    done = child != CLOSED and bool(os.read(made, 1))
    give(b"S" if done else b"N")
    if done:
        os.write(going, b"1")
    elif child != CLOSED:
        os.waitpid(child, 0)
    os.close(made)
    os.close(going)
    return child if done else None


def become_program(streams: tuple[int, int, int], making: int, go: int) -> None:
    """In the child: close the host's descriptors, apply the limits, and make the streams the program's own."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        limit_itself()
        for fd, own in enumerate(streams):
            os.dup2(own, fd)
        low, high = sorted((making, go))
        for first, last in ((3, low), (low + 1, high), (high + 1, HIGHEST_FD)):
            os.closerange(first, last)
        open_streams()
        os.write(making, b"1")
        if not os.read(go, 1):
            os._exit(1)
        os.close(making)
        os.close(go)
    except BaseException as error:  # noqa: BLE001 – this process must on no account go on as the guest
        print(f"no process: {error!r}", file=sys.__stderr__, flush=True)
        os._exit(1)


def limit_itself() -> None:
    """Apply the kernel's limits, unless stricter ones hold already; as root, also switch to another user."""
    for name, soft, hard in rlimits():
        kind = getattr(resource, "RLIMIT_" + name)
        wanted = int(soft), int(hard)
        now = tuple(sys.maxsize if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(kind))
        strictest = min(wanted[0], now[0]), min(wanted[1], now[1])
        if strictest != now:
            resource.setrlimit(kind, strictest)
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def open_streams() -> None:
    """The program's standard streams, opened as Python does in UTF-8 mode."""
    streams = (("stdin", "r", -1, "surrogateescape"), ("stdout", "w", -1, "surrogateescape"))
    for fd, (name, mode, buffering, errors) in enumerate((*streams, ("stderr", "w", 1, "backslashreplace"))):
        stream = os.fdopen(fd, mode, buffering, errors=errors)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def rlimits() -> list[tuple[str, float, float]]:
    """The limits enforced by the kernel, as name, soft, hard."""
    memory = MEMORY_MB * 2**20
    scratch = SCRATCH_MB * 2**20
    watchers = 3  # this process, the first, and the one outside count too
    return [
        ("AS", memory, memory),
        ("CPU", CPU_S, CPU_S + 1),
        ("FSIZE", scratch, scratch),
        ("NPROC", PROCESSES + watchers, PROCESSES + watchers),
        ("NOFILE", 64, 64),
        ("STACK", 8 << 20, 8 << 20),
        ("CORE", 0, 0),
        ("MEMLOCK", 0, 0),
        ("MSGQUEUE", 0, 0),
    ]


def serve() -> bytes:
    """Answer requests until the host hangs up. In a forked program process, returns the program to run."""
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, "SIGCHLD is ignored by the process that started this"
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    exec(take(SIZES.unpack(take(SIZES.size))[0]), {"__name__": "preload"})
    gc.freeze()
    clean = scratch_state()
    give(b"R")
    while True:
        program_size, stdin_size, wall_s = SIZES.unpack(take(SIZES.size))
        program = take(program_size)
        stdin = take(stdin_size)
        (stdin_r, stdin_w), (stdout_r, stdout_w), (stderr_r, stderr_w) = os.pipe(), os.pipe(), os.pipe()
        theirs = (stdin_r, stdout_w, stderr_w)
        ours = (stdin_w, stdout_r, stderr_r)
        child = make_process(theirs)
        if child == 0:
            return program
        for fd in theirs:
            os.close(fd)
        if child is None:
            for fd in ours:
                os.close(fd)
            continue
        run = Run(child, stdin, wall_s, ours)
        ending, status, wall_s = run.watch()
        run.drain()
        if ending == EXITED and len(run.output) > OUTPUT_BYTES:
            ending = OVERFLOW
            status = signal.SIGKILL
        reusable = alone() and (bool(KEEPS_FILES) or scratch_state() == clean)
        output = bytes(run.output[: int(OUTPUT_BYTES)])
        errors = bytes(run.errors)
        give(b"F", EXECUTION.pack(ending, status, reusable, wall_s, len(output), len(errors)), output, errors)


def play(program: bytes) -> None:
    """Run the program as Python runs a script. Its errors are shown without our own frame."""
    main = sys.modules["__main__"] = type(sys)("__main__")
    sys.argv = ["program.py"]
    status = 0
    try:
        exec(compile(program, "program.py", "exec"), main.__dict__)
    except SystemExit as stop:
        status = exit_status(stop.code)
    except BaseException as error:  # noqa: BLE001 – as Python itself does
        shown = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        sys.excepthook(type(shown), shown, shown.__traceback__)
        status = 1
    leave(main.__dict__, status)


def exit_status(code: object) -> int:
    """The exit status of `sys.exit(code)`."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def leave(names: dict[str, object], status: int) -> None:
    """End as Python does – join threads, call exit functions, flush files – but without tearing the interpreter down.

    Tearing it down touches every page shared with the warm interpreter, and costs more than all the rest.
    """
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    names.clear()
    for stream in (sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (AttributeError, OSError, ValueError):
            status = status or 120
    os._exit(status)


play(serve())
