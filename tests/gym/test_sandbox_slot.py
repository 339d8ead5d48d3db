"""Slots: one user id, one sandbox, on the whole host."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loomrl.errors import ConfigError, SandboxError
from loomrl.gym.sandbox import Slots
from loomrl.gym.sandbox.process import processes_of

BASE = 61_080
"""Beyond those that sandboxes get by default, so that other tests take none of these."""


async def test_slots_that_are_out_are_different_and_come_back() -> None:
    slots = Slots(base=BASE, count=2, wait_s=0.05)
    first, second = await slots.lease(), await slots.lease()
    assert {first.number, second.number} == {BASE, BASE + 1}
    with pytest.raises(SandboxError, match=r"no free slot in 0\.05 s: 2 sandboxes"):
        await slots.lease()
    first.release(clean=True)
    third = await slots.lease()
    assert third.number == first.number
    for slot in (second, third):
        slot.release(clean=True)


async def test_who_waits_gets_the_slot_that_comes_back() -> None:
    slots = Slots(base=BASE + 2, count=1)
    first = await slots.lease()
    waiting = asyncio.ensure_future(slots.lease())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    first.release(clean=True)
    (await waiting).release(clean=True)


async def test_no_two_processes_have_the_same_slot() -> None:
    script = f"""
import asyncio, sys
from loomrl.gym.sandbox import Slots
slot = asyncio.run(Slots(base={BASE + 3}, count=2).lease())
print(slot.number, flush=True)
sys.stdin.read()
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    theirs = int(await process.stdout.readline())
    slots = Slots(base=BASE + 3, count=2, wait_s=0.05)
    ours = await slots.lease()
    assert ours.number != theirs
    with pytest.raises(SandboxError):
        await slots.lease()
    process.kill()
    await process.wait()
    again = await slots.lease()
    assert again.number == theirs
    for slot in (ours, again):
        slot.release(clean=True)


def wait_for_processes(uid: int) -> None:
    while not processes_of(uid):
        time.sleep(0.01)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root has other user ids")
@pytest.mark.parametrize("clean", [True, False])
async def test_processes_left_in_a_slot_are_killed_before_it_is_given_out_again(clean: bool) -> None:
    slots = Slots(base=BASE + 5 + clean, count=1)
    slot = await slots.lease()
    assert slot.uid is not None
    drop = ("setpriv", f"--reuid={slot.uid}", f"--regid={slot.uid}", "--clear-groups")
    left = await asyncio.create_subprocess_exec(*drop, "sleep", "60")
    await asyncio.to_thread(wait_for_processes, slot.uid)
    slot.release(clean=clean)
    again = await slots.lease()
    await asyncio.sleep(0.05)
    assert bool(processes_of(slot.uid)) == clean  # who says that it is clean has seen its last process end
    again.release(clean=True)
    if clean:
        left.kill()
    await left.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other user ids")
def test_a_zombie_that_nobody_reaps_does_not_spoil_its_slot() -> None:
    slots = Slots(base=BASE + 7, count=1)
    slot = asyncio.run(slots.lease())
    zombie = subprocess.Popen(["true"], user=slot.uid)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped
    slot.release(clean=False)
    assert processes_of(slot.number) == [zombie.pid]
    asyncio.run(slots.lease()).release(clean=True)
    zombie.wait()


def test_user_ids_of_somebody_are_refused() -> None:
    Slots().check()
    with pytest.raises(ConfigError, match=r"slots.base=0: user id 0 is 'root'"):
        Slots(base=0).check()


async def test_a_folder_of_locks_that_others_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"loomrl-sandbox-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SandboxError, match="can be changed by another user"):
        await Slots(base=BASE).lease()
