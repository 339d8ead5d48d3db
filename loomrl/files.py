"""Atomic file writes, path checks, files for this user alone, and folders that last as long as their process.

Weights, answers and feedback are private. So what is made for them gets its mode here, where it is made: the umask is
the process's, and what a user exports to a place of their own choice follows it.
"""

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
from pathlib import Path

SCRATCH = "loomrl-scratch-"
_held: dict[Path, int] = {}
"""The locks on this process's scratch folders."""


def is_file(text: str) -> bool:
    """True if this is the path of a file; False for text that cannot be a path."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def write_whole(file: Path, content: bytes) -> None:
    """Replace a file atomically; if killed in the middle, the old content remains."""
    draft = file.with_name(f".{file.name}.draft")
    file.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(content)
    draft.replace(file)


def file_hash(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def make_private(folder: Path) -> None:
    """Create a folder, and those above it that are missing, for this user alone. One that exists stays as it is."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def private(file: str, flags: int) -> int:
    """An opener: `open(file, "w", opener=private)` creates it for this user alone."""
    return os.open(file, flags, 0o600)


class HeldFile:
    """A file that others keep open, such as a database: created for this user alone, and known again by its inode."""

    _creating = threading.Lock()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[int, int] | None = None

    def create(self) -> None:
        """Create it, empty, unless it is there or was: what was deleted since is not replaced by an empty file."""
        if self._known is not None:
            return
        # Closing any descriptor of a file drops the locks that this process has on it. So only the thread that creates
        # it has one, and the file is opened by others only after that is closed.
        with self._creating, contextlib.suppress(FileExistsError):
            os.close(os.open(os.path.realpath(self.path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def is_there(self) -> bool:
        """True while the path names the file that it named when this was first asked for."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        self._known = self._known or (found.st_dev, found.st_ino)
        return self._known == (found.st_dev, found.st_ino)


def scratch(purpose: str, name: str = "") -> Path:
    """A new folder for this process. It is removed when the process exits or, if it was killed, by the next that asks.

    A lock on the folder tells whether its process lives; a fork shares it. With a name its path is `scratch_path`; a
    FileExistsError says that another process has it.
    """
    _forget_removed()
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        if folder not in _held:
            _remove_abandoned(folder)
    made = Path(tempfile.mkdtemp(prefix="loomrl-new-"))  # under a name that no sweep takes until it is locked
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = scratch_path(purpose, name or made.name.removeprefix("loomrl-new-"))
    try:
        made.rename(folder)
    except OSError:
        os.close(lock)
        made.rmdir()
        raise FileExistsError(f"{folder} is another process's.") from None
    if not _held:
        atexit.register(_remove_held, os.getpid())
    _held[folder] = lock
    return folder


def scratch_path(purpose: str, name: str) -> Path:
    """The path of a scratch folder of this name."""
    return Path(tempfile.gettempdir()) / f"{SCRATCH}{purpose}-{name}"


def hand_over(folder: Path) -> int:
    """The lock on a scratch folder of this process, to be closed once the process that gets the folder inherited it."""
    return _held.pop(folder)


def _remove_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError):  # another user's, another process's, or just gone
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _forget_removed() -> None:
    for folder in [folder for folder in _held if not folder.exists()]:
        os.close(_held.pop(folder))


def _remove_held(owner: int) -> None:
    if os.getpid() == owner:
        for folder in _held:
            shutil.rmtree(folder, ignore_errors=True)


def absolute_places(store_url: str, artifact_url: str) -> dict[str, str]:
    """Absolute forms of those of the two that are paths, by their settings: other processes have other folders."""
    places = {}
    file = "sqlite:///"
    path = store_url.removeprefix(file)
    if store_url.startswith(file) and not Path(path).expanduser().is_absolute():
        places["store_url"] = f"{file}{Path.cwd() / path}"
    if "://" not in artifact_url:
        places["artifact_url"] = str(Path(artifact_url).expanduser().absolute())
    return places
