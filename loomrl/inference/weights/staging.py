"""Folders in which weights are staged for the processes of one machine."""

import os
import shutil
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


def staging_folder() -> Path:
    """Shared memory if available, else the temporary folder."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def own_staging_folder(name: str) -> Path:
    """A new folder of this process."""
    sweep_staging()
    folder = staging_folder() / f"{name}-of-{os.getpid()}"
    folder.mkdir()
    return folder


def sweep_staging() -> None:
    """Remove the folders of killed processes."""
    for folder in staging_folder().glob("loomrl-*-of-*"):
        owner = folder.name.rpartition("-of-")[2]
        if owner.isdigit() and not _lives(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # not ours, or a system without /proc
        return True
