"""A program's limits, all that it sees in its box, and how it ended: one description for every kind of sandbox."""

import os
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from loomrl.errors import ConfigError


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


GUEST = Path(__file__).with_name("guest.py")
OLDEST = (3, 9)
SURVEY = """
import ctypes, importlib, os, sys, sysconfig
paths = sysconfig.get_paths()
dynamic = os.path.join(paths["platstdlib"], "lib-dynload")
skip = ("_test", "_tkinter", "_curses", "_dbm", "_gdbm", "nis", "readline", "_xx", "xx", "_ctypes_test")
for file in sorted(os.listdir(dynamic) if os.path.isdir(dynamic) else ()):
    name = file.split(".")[0]
    if not name.startswith(skip):
        try:
            importlib.import_module(name)
        except ImportError:
            pass
try:
    ctypes.CDLL("libgcc_s.so.1")
except OSError:
    pass
print(*sys.version_info[:2])
print(os.path.realpath(sys.executable))
print(*{paths["stdlib"], paths["platstdlib"]}, sep=os.pathsep)
for line in open("/proc/self/maps"):
    fields = line.split(maxsplit=5)
    if len(fields) == 6 and ".so" in fields[5]:
        print(fields[5].strip())
"""
"""Prints the files that an interpreter has open after loading all it can. Threads need libgcc to end."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The inside of a box: an interpreter and its files at the same paths as on this host, and tools in `/tools`."""

    executable: Path
    libraries: tuple[Path, ...]
    standard: tuple[Path, ...]
    links: tuple[tuple[str, Path], ...]
    tools: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Its own files; the directories hold only the standard library."""
        return (self.executable, *self.standard, *self.libraries)

    @property
    def mounts(self) -> tuple[tuple[Path, Path], ...]:
        """All files visible inside, read-only, each with its path there."""
        return (*((file, file) for file in self.files), *((tool, inside(tool)) for tool in self.tools))

    @property
    def environment(self) -> dict[str, str]:
        """A program's whole environment. The hash seed is fixed, so that equal programs behave equally."""
        return {
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "LD_LIBRARY_PATH": os.pathsep.join(sorted({str(file.parent) for file in self.libraries})),  # has no cache
            "PATH": "/usr/bin",
            "PYTHONHASHSEED": "0",
            "PYTHONSAFEPATH": "1",
            "TMPDIR": "/tmp",
        }

    def command(self, limits: Limits) -> list[str]:
        """The command that runs the guest: no site, no user packages, UTF-8, no bytecode, and the guest's source."""
        numbers = (
            limits.cpu_s,
            limits.memory_mb,
            limits.processes,
            limits.output_bytes,
            limits.scratch_mb,
            int(limits.keeps_files),
        )
        return [str(self.executable), "-s", "-S", "-B", "-X", "utf8", "-c", GUEST.read_text(), *map(str, numbers)]

    @property
    def hidden(self) -> tuple[Path, ...]:
        """Directories within them that hold third-party packages."""
        places = [folder / name for folder in self.standard for name in ("site-packages", "dist-packages")]
        return tuple(place for place in places if place.is_dir())


def inside(tool: Path) -> Path:
    """The path of a tool in the box."""
    return Path("/tools") / tool.name


@cache
def find_interpreter(*, for_others: bool) -> Interpreter:
    """Our own Python, or the nearest readable one: readable by anyone if `for_others`, else by us."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    own = Path(sys.base_prefix) / "bin" / f"python{version}"
    tried = []
    for candidate in dict.fromkeys((own, Path(f"/usr/bin/python{version}"), Path("/usr/bin/python3"))):
        found = _survey(candidate)
        if found and all(readable(file, for_others=for_others) for file in found.files):
            return found
        tried.append(str(candidate))
    raise ConfigError(
        f"no Python >= {OLDEST[0]}.{OLDEST[1]} that the sandbox's own users can read; tried {', '.join(tried)}. "
        "Install one for all users: apt-get install python3"
    )


@cache
def _survey(executable: Path) -> Interpreter | None:
    if not executable.exists():
        return None
    done = subprocess.run([executable, "-I", "-S", "-c", SURVEY], capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    version, real, standard, *mapped = done.stdout.splitlines()
    if tuple(map(int, version.split())) < OLDEST:
        return None
    folders = tuple(Path(folder).resolve() for folder in sorted(standard.split(os.pathsep)))
    outside = sorted({Path(file) for file in mapped if not any(Path(file).is_relative_to(own) for own in folders)})
    return Interpreter(Path(real), tuple(outside), folders, tuple(_links(outside)))


def _links(libraries: list[Path]) -> list[tuple[str, Path]]:
    """Symbolic links through which the loader finds these: beside them, and the merged directories of the root."""
    links = [(str(top.readlink()), top) for top in map(Path, ("/lib", "/lib64")) if top.is_symlink()]
    folders = {*(file.parent for file in libraries), Path("/lib").resolve(), Path("/lib64").resolve()}
    for folder in sorted(folder for folder in folders if folder.is_dir()):
        for name in sorted(folder.glob("*.so.*")):
            if name.is_symlink() and name.resolve() in libraries:
                links.append((str(name.resolve()), name))
    return links


def readable(path: Path, *, for_others: bool) -> bool:
    """True if we can read it or, `for_others`, anyone can."""
    if not for_others:
        return os.access(path, os.R_OK)
    wanted = 0o005 if path.is_dir() else 0o004
    return path.stat().st_mode & wanted == wanted and all(parent.stat().st_mode & 0o001 for parent in path.parents)
