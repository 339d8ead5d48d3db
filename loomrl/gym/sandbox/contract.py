"""What a sandbox is asked for, and what it answers."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use. Beyond `cpu_s` and `wall_s` it is killed, beyond `output_bytes` too.

    `cpu_s` and `memory_mb` hold for each process, and for all processes that it starts together: the time of those that
    have ended counts, and memory includes scratch files beyond `scratch_mb`.
    `output_bytes` is for standard output; of standard error only the tail is kept.
    """

    wall_s: float = 3.0
    cpu_s: int = 2
    memory_mb: int = 512
    processes: int = 32
    output_bytes: int = 1 << 20
    scratch_mb: int = 64

    @property
    def memory_bytes(self) -> int:
        """For all processes and their scratch files."""
        return (self.memory_mb + self.scratch_mb) << 20

    @property
    def scratch_files(self) -> int:
        """One for every page: an empty file takes the kernel's memory too."""
        return self.scratch_mb << 8


DEFAULT_LIMITS = Limits()


class Ending(StrEnum):
    """How a program ended. None of them is a failure of the sandbox: that is a `SandboxError`."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMEOUT = "timeout"
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one program. `status` is the exit code, or the signal that ended it."""

    ending: Ending
    status: int
    output: bytes
    errors: bytes
    wall_s: float


class Session(Protocol):
    """A warm interpreter for the programs of one episode: each runs in a fork of it, and none sees another."""

    async def run(self, program: str, stdin: bytes = b"") -> Outcome:
        """Run the text of a Python program to its end or to its limits."""
        ...


class Sandbox(Protocol):
    """Runs untrusted Python. Trouble of its own is a `SandboxError`, and never anything the program did."""

    async def run(self, program: str, *, stdin: bytes = b"", limits: Limits = DEFAULT_LIMITS) -> Outcome:
        """Run the text of a Python program in a sandbox of its own."""
        ...

    def session(self, *, preload: str = "", limits: Limits = DEFAULT_LIMITS) -> AbstractAsyncContextManager[Session]:
        """A warm sandbox for one episode; `preload` is your own text that it runs once, such as imports."""
        ...

    async def close(self) -> None:
        """Let go of everything. Runs under way end as a `SandboxError`."""
        ...
