"""Atomic file writes, path checks, and folders that last as long as their process."""

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
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


def scratch(purpose: str) -> Path:
    """A new folder for this process. It is removed when the process exits or, if it was killed, by the next that asks.

    A lock on the folder tells whether its process lives; a fork shares it.
    """
    _forget_removed()
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        if folder not in _held:
            _remove_abandoned(folder)
    made = Path(tempfile.mkdtemp(prefix="loomrl-new-"))  # under a name that nobody sweeps until it is locked
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = made.rename(made.with_name(f"{SCRATCH}{purpose}-{made.name.removeprefix('loomrl-new-')}"))
    if not _held:
        atexit.register(_remove_held, os.getpid())
    _held[folder] = lock
    return folder


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
