import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from loomrl.serving.deployment.front import GUARD
from loomrl.serving.deployment.guard import DOOR, END, LOG, YOURS

PROGRAM = "echo begun; trap 'echo in order; exit' USR1; echo $$ > pid; while :; do sleep 0.02; done"


@dataclass(frozen=True)
class Guarded:
    """A shell that a guard holds, and another that stands for the node."""

    folder: Path
    node: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(20)
        made.connect(str(self.folder / DOOR))
        return made

    def keeper(self) -> socket.socket:
        made = self.connect()
        assert made.recv(len(YOURS)) == YOURS
        return made


def gone(pid: int) -> bool:
    """True soon, if the process ends."""
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


Guarding = Callable[[float], Guarded]


@pytest.fixture
def guarding(tmp_path: Path) -> Iterator[Guarding]:
    """Starts one with this lease."""
    started: list[Guarded] = []

    def start(lease_s: float) -> Guarded:
        node = subprocess.Popen(["sleep", "1000"])
        folder = tmp_path / "held"
        folder.mkdir()
        with socket.socket(socket.AF_UNIX) as door, (folder / LOG).open("wb") as log:
            door.bind(str(folder / DOOR))
            door.listen()
            words = [GUARD, folder, door.fileno(), node.pid, lease_s, 5, "sh", "-c", f"cd {folder}; {PROGRAM}"]
            command = [sys.executable, "-I", "-S", *map(str, words)]
            subprocess.run(command, stdout=log, stderr=log, pass_fds=(door.fileno(),), check=True)
        started.append(Guarded(folder, node))
        deadline = time.monotonic() + 20
        while not (folder / "pid").is_file() or not (folder / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return started[-1]

    yield start
    for each in started:
        each.node.kill()
        each.node.wait()


def test_a_program_outlives_its_keepers_and_ends_in_order_at_the_word_of_one(guarding: Guarding) -> None:
    held = guarding(60.0)
    pid = held.pid
    with held.keeper() as first, held.connect() as second:
        second.settimeout(0.2)
        with pytest.raises(TimeoutError):  # not while there is another
            second.recv(1)
        second.settimeout(20)
        first.close()
        assert second.recv(len(YOURS)) == YOURS
        assert psutil.pid_exists(pid)
        second.sendall(END)
        assert b"".join(iter(lambda: second.recv(4096), b"")) == b"begun\nin order\n"
    assert gone(pid)
    assert not held.folder.exists()


def test_a_program_without_a_keeper_ends_after_the_lease(guarding: Guarding) -> None:
    held = guarding(0.3)
    pid = held.pid
    with held.keeper():
        time.sleep(0.6)
        assert psutil.pid_exists(pid)
    assert gone(pid)


def test_a_program_ends_with_the_node_once_it_has_no_keeper(guarding: Guarding) -> None:
    held = guarding(60.0)
    pid = held.pid
    with held.keeper():
        held.node.kill()
        held.node.wait()
        time.sleep(0.2)
        assert psutil.pid_exists(pid)
    assert gone(pid)


def test_a_keeper_hears_of_a_program_that_was_killed(guarding: Guarding) -> None:
    held = guarding(60.0)
    with held.keeper() as keeper:
        os.kill(held.pid, signal.SIGKILL)
        assert b"".join(iter(lambda: keeper.recv(4096), b"")) == b"begun\n"


def test_a_program_ends_with_a_guard_that_was_killed(guarding: Guarding) -> None:
    held = guarding(60.0)
    pid = held.pid
    psutil.Process(psutil.Process(pid).ppid()).kill()
    assert gone(pid)
