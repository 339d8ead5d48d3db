"""The interface of a sandbox: limits, outcomes, sessions."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one program. It is killed beyond `cpu_s`, `wall_s` or `output_bytes`.

    `cpu_s` and `memory_mb` apply to each process and to all of them together: the time of ended processes counts, and
    memory includes scratch files beyond `scratch_mb`.

    `output_bytes` limits standard output; of standard error only the tail is kept. With `keeps_files` the programs of a
    session find the files of those before them; otherwise each finds none.
    """

    wall_s: float = 3.0
    cpu_s: int = 2
    memory_mb: int = 512
    processes: int = 32
    output_bytes: int = 1 << 20
    scratch_mb: int = 64
    keeps_files: bool = False

    @property
    def memory_bytes(self) -> int:
        """For all processes and their scratch files."""
        return (self.memory_mb + self.scratch_mb) << 20

    @property
    def scratch_files(self) -> int:
        """One file per page: an empty file takes kernel memory too."""
        return self.scratch_mb << 8


DEFAULT_LIMITS = Limits()


class Ending(StrEnum):
    """The way a program ended. None of them is a failure of the sandbox, which is a `SandboxError`."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMEOUT = "timeout"
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class Execution:
    """The result of one program. `status` is the exit code, or the signal that ended it."""

    ending: Ending
    status: int
    output: bytes
    errors: bytes
    wall_s: float


class Session(Protocol):
    """A warm interpreter for the programs of one episode: each runs in a fork, isolated from the others."""

    async def run(self, program: str, stdin: bytes = b"", *, wall_s: float | None = None) -> Execution:
        """Run the text of a Python program to its end or to its limits; `wall_s` replaces that of the limits."""
        ...


class Sandbox(Protocol):
    """Runs untrusted Python. Only its own failures are a `SandboxError`, never anything the program did."""

    async def run(self, program: str, *, stdin: bytes = b"", limits: Limits = DEFAULT_LIMITS) -> Execution:
        """Run the text of a Python program in its own sandbox."""
        ...

    def session(self, *, preload: str = "", limits: Limits = DEFAULT_LIMITS) -> AbstractAsyncContextManager[Session]:
        """A warm sandbox for one episode; `preload` is trusted text that it runs once, such as imports."""
        ...

    async def close(self) -> None:
        """Release everything. Runs in progress end as a `SandboxError`."""
        ...
