"""Processes that outlive whoever started them: started once, found again, ended when nobody wants them."""

import sys
import time
from pathlib import Path

from loomrl.coordinator.decision import WorkState
from loomrl.experiments.coordinate.work import LocalWork, WorkFound


def ended(work: LocalWork, name: str, *, seconds: float = 60) -> WorkFound:
    deadline = time.monotonic() + seconds
    while (found := work.look(name)).work is WorkState.RUNNING:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_work_is_started_once_and_its_end_is_known_to_everybody(tmp_path: Path) -> None:
    one, other = LocalWork(tmp_path), LocalWork(tmp_path)
    assert one.look("job/train") == WorkFound(work=WorkState.ABSENT)
    folder = one.place("job/train")
    command = ["/bin/sh", "-c", f"echo said; cat {folder}/e.yaml >> {folder}/count; sleep 0.3; exit 3"]
    assert one.start("job/train", command, {"e.yaml": b"x"})
    assert not other.start("job/train", command, {})
    assert other.look("job/train").work is WorkState.RUNNING
    assert ended(other, "job/train") == WorkFound(work=WorkState.ENDED, exit_code=3, log="said\n")
    assert not other.start("job/train", command, {})
    assert (folder / "count").read_text() == "x"


def test_work_is_ended_with_its_children_and_killed_if_it_takes_too_long(tmp_path: Path) -> None:
    work = LocalWork(tmp_path)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    work.start("a", [sys.executable, "-c", deaf], {})
    work.start("b", ["/bin/sh", "-c", "sleep 99 & sleep 99"], {})
    while "up" not in (tmp_path / "a" / "log").read_text():
        time.sleep(0.01)
    work.stop("a")
    work.stop("b")
    assert ended(work, "b").exit_code is None
    time.sleep(0.1)
    assert work.look("a").work is WorkState.RUNNING
    work._stopped["a"] -= 60
    work.stop("a")
    assert ended(work, "a").exit_code is None
    work.stop("a")
    work.stop("nobody")


def test_work_that_died_before_it_began_is_not_started_again(tmp_path: Path) -> None:
    work = LocalWork(tmp_path)
    (work.place("a") / "started").write_text("its coordinator was killed here")
    assert work.look("a") == WorkFound(work=WorkState.ENDED)
    assert not work.start("a", ["/bin/true"], {})
