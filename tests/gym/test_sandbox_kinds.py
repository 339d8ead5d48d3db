"""Kinds of sandbox: what each needs and is made of, its slots, and the filter of system calls."""

import asyncio
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loomrl.gym.sandbox as package
from loomrl.errors import ConfigError, SandboxError
from loomrl.gym.sandbox import Ending, Limits, Slots, open_sandbox
from loomrl.gym.sandbox.contract import find_interpreter
from loomrl.gym.sandbox.gvisor import Gvisor, find_gvisor
from loomrl.gym.sandbox.process import processes_of
from loomrl.gym.sandbox.seccomp import (
    ALLOW,
    ENOSYS,
    EPERM,
    FILE_CALLS,
    KILL_PROCESS,
    MACHINES,
    MAP_ANONYMOUS,
    MAP_SHARED,
    NEW_NAMESPACES,
    ONLY,
    SIGCHLD,
    filter_program,
    numbers,
)
from loomrl.gym.sandbox.session import Sandbox
from tests.needs import needs

needs_gvisor = needs("gVisor")


@pytest.fixture(autouse=True)
def fresh_proofs():
    package._open_boxes.cache_clear()


def test_an_unknown_kind_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'bubblewarp' is unknown.*Did you mean 'bubblewrap'"):
        open_sandbox("bubblewarp")


@pytest.mark.parametrize("kind", ["auto", "bubblewrap", "gvisor"])
def test_without_a_sandbox_nothing_runs_and_the_message_says_what_to_install(kind, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"apt-get install (bubblewrap|runsc)"):
        open_sandbox(kind)


@pytest.fixture
def programs():
    """A folder that every user can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def fake(folder, name, script):
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_bubblewrap_that_is_too_old_is_refused(monkeypatch, tmp_path):
    fake(tmp_path, "bwrap", "echo bubblewrap 0.6.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"bubblewrap 0.6.1, which is too old.*0\.8\.0"):
        open_sandbox("bubblewrap")


def test_one_that_may_make_no_namespaces_is_refused_with_what_it_said(monkeypatch, programs):
    fake(programs, "bwrap", '[ "$1" = --version ] && echo bubblewrap 0.9.0 && exit\necho no permission >&2; exit 1')
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(ConfigError, match=r"no safe sandbox here: bubblewrap did not start. It said: no permission"):
        open_sandbox("bubblewrap")


def test_the_interpreter_comes_with_what_it_needs_and_no_packages():
    found = find_interpreter(for_others=True)
    assert found.executable.exists()
    assert any(file.name.startswith("libc.") for file in found.libraries)
    assert all((folder / "os.py").exists() for folder in found.standard)
    assert not any("site-packages" in file.parts for file in found.files)


def test_gvisors_bundle_says_what_it_should(tmp_path):
    gvisor = Gvisor("/usr/bin/runsc", find_interpreter(for_others=False), Slots())
    gvisor.write_bundle(tmp_path, Limits(scratch_mb=5))
    said = json.loads((tmp_path / "config.json").read_text())
    assert said["process"]["noNewPrivileges"]
    assert set(said["process"]["capabilities"]["bounding"]) == {"CAP_KILL", "CAP_SETGID", "CAP_SETUID"}
    assert said["root"] == {"path": "rootfs", "readonly": True}
    assert all("ro" in mount["options"] for mount in said["mounts"] if mount["destination"] != "/tmp")
    assert f"size={5 << 20}" in next(mount["options"] for mount in said["mounts"] if mount["destination"] == "/tmp")
    assert all(
        (tmp_path / "rootfs" / mount["destination"][1:]).exists() for mount in said["mounts"] if mount["type"] == "bind"
    )
    command = gvisor.command(tmp_path)
    assert command[command.index("--network") + 1] == "none"


@needs_gvisor
@pytest.mark.system
async def test_gvisor_runs_programs_one_at_a_time_and_warm():
    sandbox = Sandbox(find_gvisor(Slots()))
    execution = await sandbox.run("print(input()); import sys; sys.exit(4)", stdin=b"hi")
    assert (execution.ending, execution.status, execution.output) == (Ending.EXITED, 4, b"hi\n")
    async with sandbox.session(preload="import math", limits=Limits(wall_s=0.7)) as session:
        assert (await session.run("while True: pass")).ending is Ending.TIMEOUT
        assert (await session.run("import os; os.kill(os.getppid(), 9)")).status == 1
        assert (await session.run("print(2)")).output == b"2\n"


@needs_gvisor
@pytest.mark.system
async def test_gvisor_leaves_no_process_and_no_file():
    boxes = find_gvisor(Slots())
    box = await boxes.open(Limits())
    assert box.bundle.exists()
    await box.end()
    assert not box.bundle.exists()
    assert box.process.poll() is not None


@needs_gvisor
@pytest.mark.system
async def test_a_broken_runsc_is_trouble_and_no_outcome():
    with pytest.raises(SandboxError):
        await Sandbox(Gvisor("/bin/false", find_interpreter(for_others=False), Slots())).run("print(1)")


BASE = 61_080
"""Beyond those that sandboxes get by default, so that other tests take none of these."""


async def test_slots_that_are_out_are_different_and_come_back():
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


async def test_who_waits_gets_the_slot_that_comes_back():
    slots = Slots(base=BASE + 2, count=1)
    first = await slots.lease()
    waiting = asyncio.ensure_future(slots.lease())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    first.release(clean=True)
    (await waiting).release(clean=True)


async def test_no_two_processes_have_the_same_slot():
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


def wait_for_processes(uid):
    while not processes_of(uid):
        time.sleep(0.01)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root has other user ids")
@pytest.mark.parametrize("clean", [True, False])
async def test_processes_left_in_a_slot_are_killed_before_it_is_given_out_again(clean):
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
def test_a_zombie_that_nobody_reaps_does_not_spoil_its_slot():
    slots = Slots(base=BASE + 7, count=1)
    slot = asyncio.run(slots.lease())
    zombie = subprocess.Popen(["true"], user=slot.uid)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped
    slot.release(clean=False)
    assert processes_of(slot.number) == [zombie.pid]
    asyncio.run(slots.lease()).release(clean=True)
    zombie.wait()


def test_user_ids_of_somebody_are_refused():
    Slots().check()
    with pytest.raises(ConfigError, match=r"slots.base=0: user id 0 is 'root'"):
        Slots(base=0).check()


async def test_a_folder_of_locks_that_others_can_write_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"loomrl-sandbox-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SandboxError, match="can be changed by another user"):
        await Slots(base=BASE).lease()


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NEVER = (
    *("ptrace", "process_vm_writev", "pidfd_open", "pidfd_getfd", "kcmp", "bpf", "perf_event_open", "userfaultfd"),
    *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "clone3", "open_by_handle_at", "mknod"),
    *("keyctl", "io_uring_setup", "personality", "socket", "connect", "sendmsg", "memfd_create", "shmget"),
    *("flock", "mincore", "fadvise64", "utimensat", "timer_create", "rt_sigqueueinfo"),
    *("setuid", "setresuid", "setgroups", "setpriority", "sched_setaffinity", "seccomp"),
)
machines = pytest.mark.parametrize("machine", MACHINES)


def judge_calls(machine, number, *arguments, architecture=None, more=""):
    """The kernel's verdict: the program run on a call as it lies in memory."""
    architecture = MACHINES[machine][1] if architecture is None else architecture
    data = struct.pack("<IIQ6Q", number, architecture, 0, *(*arguments, *[0] * (6 - len(arguments))))
    code = list(struct.iter_unpack("<HBBI", filter_program(machine, more)))
    held, at = 0, 0
    while True:
        operation, on_true, on_false, value = code[at]
        at += 1
        if operation == 0x20:
            held = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x06:
            return value
        else:
            at += on_true if (held == value if operation == 0x15 else held & value) else on_false


@machines
def test_every_named_call_is_allowed_and_every_other_does_not_exist(machine):
    named = numbers(machine)
    for number in range(600):
        expected = {ALLOW} if number in named.values() else {ENOSYS}
        if number in {named[name] for name in ONLY}:
            expected = {ALLOW, EPERM}
        assert judge_calls(machine, number) in expected


@machines
def test_further_calls_are_those_of_files_and_change_no_rule(machine):
    named = numbers(machine, FILE_CALLS)
    added = named.keys() - numbers(machine).keys()
    assert all(name.endswith(("xattr", "chown", "chownat", "getpeername")) or "utime" in name for name in added)
    assert {"utimensat", "fchownat", "lgetxattr"} <= added
    for number in range(0, 600, 3):
        ours = number in {named[name] for name in added}
        assert judge_calls(machine, number, more=FILE_CALLS) == (ALLOW if ours else judge_calls(machine, number))


@machines
@given(number=st.integers(0, 2**32 - 1))
def test_no_number_beyond_the_table_is_allowed(machine, number):
    if number not in numbers(machine).values():
        assert judge_calls(machine, number) == ENOSYS


@machines
@given(name=st.sampled_from(sorted(ONLY)), value=st.integers(0, 2**32 - 1), high=st.integers(0, 2**32 - 1))
def test_arguments_outside_their_list_are_refused(machine, name, value, high):
    position, permitted = ONLY[name]
    arguments = [0] * 6
    arguments[position] = value | high << 32
    assert judge_calls(machine, numbers(machine)[name], *arguments) == (ALLOW if value in permitted else EPERM)


@machines
@given(flags=st.integers(0, 2**64 - 1))
def test_clone_makes_processes_and_threads_and_no_namespaces(machine, flags):
    expected = EPERM if flags & NEW_NAMESPACES else ALLOW
    assert judge_calls(machine, numbers(machine)["clone"], flags) == expected


@machines
@given(flags=st.integers(0, 2**32 - 1))
def test_memory_of_nobody_is_not_shared(machine, flags):
    expected = EPERM if flags & MAP_SHARED and flags & MAP_ANONYMOUS else ALLOW
    assert judge_calls(machine, numbers(machine)["mmap"], 0, 4096, 3, flags) == expected


@machines
@given(number=st.integers(1, 64), action=st.integers(0, 2**64 - 1))
def test_what_becomes_of_dead_children_may_be_asked_and_not_changed(machine, number, action):
    call = numbers(machine)["rt_sigaction"]
    assert judge_calls(machine, call, number, action) == (EPERM if number == SIGCHLD and action else ALLOW)
    assert judge_calls(machine, call, SIGCHLD, action << 32 & (2**64 - 1)) == (EPERM if action % 2**32 else ALLOW)
    assert judge_calls(machine, call, SIGCHLD, 0) == ALLOW


@machines
def test_calls_of_another_architecture_kill(machine):
    assert judge_calls(machine, numbers(machine)["read"], architecture=0x40000003) == KILL_PROCESS


@machines
def test_the_numbers_are_those_of_the_kernels_headers(machine):
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip("needs the kernel's headers: apt-get install linux-libc-dev")
    known = {
        name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\n", header.read_text())
    }
    known.setdefault("newfstatat", known.get("fstatat", -1))
    ours = numbers(machine, FILE_CALLS)
    assert {name: known.get(name) for name in ours} == ours


@machines
def test_what_must_never_be_allowed_is_not_named(machine):
    assert not set(NEVER) & numbers(machine).keys()


def test_a_machine_without_a_table_is_refused():
    with pytest.raises(ConfigError, match=r"riscv64.*x86_64, aarch64"):
        filter_program("riscv64")
    assert filter_program() == filter_program(platform.machine())
