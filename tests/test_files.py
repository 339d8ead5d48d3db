"""Scratch folders: as long as their process, however it ends."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loomrl.files import scratch

HOLDING = """
import sys
from loomrl.files import scratch
folder = scratch("held")
(folder / "weights").write_bytes(b"1")
print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process, and of those it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def holding() -> tuple[subprocess.Popen[str], Path]:
    """A process with a scratch folder, which exits when its input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, Path(process.stdout.readline().strip())


def test_it_goes_with_its_process(below: Path) -> None:
    process, folder = holding()
    assert folder.is_dir()
    assert folder.parent == below
    process.communicate()
    assert process.returncode == 0
    assert not folder.exists()


def test_that_of_a_killed_process_goes_with_the_next_that_asks() -> None:
    living, kept = holding()
    killed, left = holding()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert left.is_dir()
    own = scratch("own")
    assert not left.exists()
    assert (kept / "weights").is_file(), "its process lives"
    living.communicate()
    shutil.rmtree(own)


def test_what_others_keep_beside_it_stays(below: Path) -> None:
    beside = below / "loomrl-gvisor-1"
    beside.mkdir()
    shutil.rmtree(scratch("own"))
    assert beside.is_dir()


def test_the_lock_of_a_removed_folder_is_given_back() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    shutil.rmtree(scratch("own"))
    before = open_files()
    for _ in range(5):
        shutil.rmtree(scratch("own"))
    assert open_files() == before
