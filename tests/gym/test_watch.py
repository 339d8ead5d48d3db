"""The watchdog: it kills the process of a loop that is kept too long, and the dead process names the one to blame."""

import subprocess
import sys
from pathlib import Path

import pytest

from loomrl.gym.host.watch import Autopsy, examine

pytestmark = pytest.mark.system

SCRIPT = """
import asyncio, re, sys, time
from pathlib import Path
from loomrl.gym.host.watch import Watchdog

async def slow_start_then(act):
    await asyncio.wait_for(asyncio.sleep(0.05), 5)
    act()
    await asyncio.sleep(0.3)

def backtrack():
    re.match(r"(a+)+$", "a" * 60 + "!")

async def culprit():
    async def child():
        await asyncio.sleep(0.1)
        {blame}
    await asyncio.gather(child())

async def main():
    watchdog = Watchdog(Path(sys.argv[1]), limit_s=0.4)
    siblings = [watchdog.run(f"innocent {{n}}", slow_start_then(lambda: time.sleep(0.15))) for n in range(6)]
    await asyncio.gather(watchdog.run("culprit", culprit()), *siblings)
    await asyncio.sleep(1)
    watchdog.close()

asyncio.run(main())
"""


def run(folder, blame):
    script = SCRIPT.format(blame=blame)
    return subprocess.run([sys.executable, "-c", script, str(folder)], timeout=30, capture_output=True, text=True)


@pytest.mark.parametrize("blame", ["backtrack()", "time.sleep(60)"])
def test_the_task_that_kept_the_loop_is_named_although_others_started_later(tmp_path, blame):
    folder = tmp_path / "actor"
    folder.mkdir()
    died = run(folder, blame)
    assert died.returncode == 1, died.stderr
    autopsy = examine(folder)
    assert autopsy.running == "culprit"
    assert "in child" in autopsy.trace or "in backtrack" in autopsy.trace
    assert not folder.exists()


def test_many_short_stretches_in_a_row_are_no_hang(tmp_path):
    done = run(tmp_path, "await asyncio.sleep(0.01)")
    assert done.returncode == 0, done.stderr
    assert examine(tmp_path) == Autopsy("", "")


def test_a_node_that_is_gone_blames_nobody():
    assert examine(Path("/nowhere/at/all")) == Autopsy()
