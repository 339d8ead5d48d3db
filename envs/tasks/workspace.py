"""The box of one attempt: this machine's programs, read-only, and folders whose files last from command to command."""

import base64
import json
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, PackagePath, distribution
from pathlib import Path
from typing import NamedTuple

from loomrl.errors import ConfigError, SandboxError
from loomrl.files import scratch
from loomrl.gym.sandbox import Ending, Execution, Limits, open_sandbox
from loomrl.gym.sandbox.bubblewrap import Bubblewrap
from loomrl.gym.sandbox.contract import Interpreter
from loomrl.gym.sandbox.seccomp import FILE_CALLS, filter_program
from loomrl.gym.sandbox.session import SandboxSession

PATH = "/tools/python:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM = {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "tools", "usr"}
"""Folders of the root that are the machine's own, or not there."""
ALWAYS_WRITABLE = ("/home", "/logs", "/opt", "/oracle", "/root", "/solution", "/srv", "/tests", "/tmp")
HOST = (Path("/usr"), Path("/etc/alternatives"))
PYTEST = ("iniconfig", "packaging", "pluggy", "pygments", "pytest")
"""Distributions that verifiers find."""
RUN_PYTEST = Path(__file__).with_name("run_pytest.py")
PYTHON = """#!/bin/sh
# `python -m pytest` would look for pytest in the current folder first, which is the policy's.
if [ "$1" = -m ] && [ "$2" = pytest ]; then
    shift 2
    exec pytest "$@"
fi
exec /tools/python/python3 "$@"
"""
LONG_S = 20.0
"""Time limit of our own programs in the box."""
ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": PATH, "PYTHONNOUSERSITE": "1", "USER": "root"}
"""Variables of every command. Without PYTHONNOUSERSITE a verifier would import user packages that the policy wrote."""

SHELL = """
import json, os, signal, sys
asked = json.load(sys.stdin)
for number in signal.SIGPIPE, signal.SIGXFSZ:
    signal.signal(number, signal.SIG_DFL)
os.umask(0o022)
os.dup2(1, 2)
os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
try:
    os.chdir(asked["folder"])
except OSError:
    os.chdir("/")
os.execve("/bin/bash", ["bash", "-c", asked["command"]], asked["environment"])
"""
LAY = """
import base64, json, os, subprocess, sys
asked = json.load(sys.stdin)
for folder in asked["emptied"]:
    os.chmod(folder, 0o700)
    subprocess.run(["/bin/chmod", "-R", "u+rwx", folder], stderr=subprocess.DEVNULL)
    subprocess.run(["/usr/bin/find", folder, "-mindepth", "1", "-delete"], stderr=subprocess.DEVNULL)
    if os.listdir(folder):
        sys.exit(3)
for path, mode, content in asked["files"]:
    if content is None:
        os.makedirs(path, exist_ok=True)
        continue
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(base64.b64decode(content))
    os.chmod(path, mode)
"""
READ = """
import base64, json, os, stat, sys
found = {}
for path in json.load(sys.stdin):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        continue
    if stat.S_ISREG(os.fstat(fd).st_mode):
        found[path] = base64.b64encode(os.read(fd, 1 << 18)).decode()
json.dump(found, sys.stdout)
"""


class File(NamedTuple):
    """A file, or a folder where it has no content, as it is to lie in the box."""

    path: str
    mode: int = 0o755
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output of a command, standard error included, and how it ended."""

    output: str
    ending: Ending
    status: int
    wall_s: float


class Workspace:
    """A box with an attempt's files. Once a program ended it, it `is_lost`."""

    def __init__(self, writable: Iterable[str], limits: Limits) -> None:
        self._session = SandboxSession(_boxes(tuple(writable)), preload="", limits=limits)

    @property
    def is_lost(self) -> bool:
        """True if what ran in it brought it down; its files are gone."""
        return self._session.is_lost

    async def run(self, command: str, *, folder: str, environment: Mapping[str, str], wall_s: float) -> CommandOutput:
        """Run a command in its own bash; processes that it leaves running are ended with it."""
        asked = {"command": command, "folder": folder, "environment": {**ENVIRONMENT, **environment}}
        done = await self._session.run(SHELL, json.dumps(asked).encode(), wall_s=wall_s)
        return CommandOutput(done.output.decode("utf-8", "replace"), done.ending, done.status, done.wall_s)

    async def lay(self, files: Iterable[File], *, emptied: Iterable[str] = ()) -> bool:
        """Write files, after these folders were emptied; False if one cannot be emptied."""
        rows = [(path, mode, content and base64.b64encode(content).decode()) for path, mode, content in files]
        rows = [(path, mode, "" if content == b"" else content) for path, mode, content in rows]
        done = await self._session.run(LAY, json.dumps({"files": rows, "emptied": [*emptied]}).encode(), wall_s=LONG_S)
        if done.ending is Ending.EXITED and done.status == 3:
            return False
        _check(done, "files could not be laid into the box")
        return True

    async def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The beginnings of those that are ordinary files."""
        done = await self._session.run(READ, json.dumps([*paths]).encode(), wall_s=LONG_S)
        _check(done, "files could not be read out of the box")
        return {path: base64.b64decode(content) for path, content in json.loads(done.output).items()}

    async def close(self) -> None:
        """End the box."""
        await self._session.close()


def files_of(source: Path, target: str, mode: int | None = None) -> list[File]:
    """A file, or all that a folder holds, to lie at or below the target."""
    if source.is_file():
        return [File(target, mode or stat.S_IMODE(source.stat().st_mode), source.read_bytes())]
    found = [File(target)]
    for path in sorted(source.rglob("*")):
        inside = f"{target}/{path.relative_to(source).as_posix()}"
        content = None if path.is_dir() else path.read_bytes()
        found.append(File(inside, mode or stat.S_IMODE(path.stat().st_mode), content))
    return found


def python_version() -> tuple[int, int]:
    """Version of the Python in the box."""
    found = re.search(r"(\d+)\.(\d+)", _bubblewrap().interpreter.executable.name)
    if found is None:
        raise ConfigError(f"{_bubblewrap().interpreter.executable} does not name its version, such as python3.12.")
    return int(found[1]), int(found[2])


def _check(done: Execution, what: str) -> None:
    if done.ending is not Ending.EXITED or done.status:
        raise SandboxError(f"{what}: {done.ending} {done.status}. {done.errors.decode(errors='replace')[-500:]}")


@cache
def _bubblewrap() -> Bubblewrap:
    boxes = open_sandbox("bubblewrap").boxes
    assert isinstance(boxes, Bubblewrap), "it was asked for"
    return boxes


@cache
def _boxes(writable: tuple[str, ...]) -> Bubblewrap:
    """The proved box with the machine's programs, in which these folders can be written to."""
    boxes = _bubblewrap()
    own = boxes.interpreter
    tops = [Path("/bin"), Path("/lib"), Path("/lib64"), Path("/sbin")]
    apart = [str(top) for top in tops if top.exists() and not top.is_symlink()]
    if apart:
        raise ConfigError(f"{', '.join(apart)}: a machine is needed whose programs all lie in /usr.")
    local = sorted(Path("/usr/local/lib").glob("python3*"))
    root = replace(
        own,
        libraries=tuple(library for library in own.libraries if not library.is_relative_to("/usr")),
        standard=tuple(dict.fromkeys((*own.standard, *(each for each in HOST if each.is_dir()), *local))),
        links=tuple((str(top.readlink()), top) for top in tops if top.is_symlink()),
        tools=_tools(own),
    )
    taken = {inside.parts[1] for _, inside in root.mounts}  # an interpreter may lie in /opt or /home
    free = tuple(folder for folder in writable if Path(folder).parts[1] not in taken)
    return replace(boxes, interpreter=root, writable=free, filter=filter_program(more=FILE_CALLS))


@cache
def _tools(own: Interpreter) -> tuple[Path, ...]:
    """Folders that lie in /tools: `python` for everyone; `verifier` and `lib`, the pytest of verifiers."""
    folder = scratch("tasks")
    folder.chmod(0o711)
    python = folder / "python"
    verifier = folder / "verifier"
    library = folder / "lib"
    for made in (python, verifier, library):
        made.mkdir()
    for name in ("python", "python3"):
        (python / name).symlink_to(own.executable)
        (verifier / name).write_text(PYTHON)
    (verifier / "pytest").write_text(f"#!/tools/python/python3 -s\n{RUN_PYTEST.read_text()}")
    for name in PYTEST:
        for file in _list_files(name):
            target = library / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755)
    return python, verifier, library


def _list_files(name: str) -> list[PackagePath]:
    """The files of a distribution below its own folder; none where it is not installed."""
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        return []
    return [file for file in files if ".." not in file.parts and file.suffix != ".pyc"]
