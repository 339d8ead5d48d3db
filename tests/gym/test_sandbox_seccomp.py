"""The filter of system calls, run here as the kernel runs it, for machines we do not have as well."""

import platform
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.errors import ConfigError
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


def judged(machine: str, number: int, *arguments: int, architecture: int | None = None, more: str = "") -> int:
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
def test_every_named_call_is_allowed_and_every_other_does_not_exist(machine: str) -> None:
    named = numbers(machine)
    for number in range(600):
        expected = {ALLOW} if number in named.values() else {ENOSYS}
        if number in {named[name] for name in ONLY}:
            expected = {ALLOW, EPERM}
        assert judged(machine, number) in expected


@machines
def test_further_calls_are_those_of_files_and_change_no_rule(machine: str) -> None:
    named = numbers(machine, FILE_CALLS)
    added = named.keys() - numbers(machine).keys()
    assert all(name.endswith(("xattr", "chown", "chownat", "getpeername")) or "utime" in name for name in added)
    assert {"utimensat", "fchownat", "lgetxattr"} <= added
    for number in range(600):
        ours = number in {named[name] for name in added}
        assert judged(machine, number, more=FILE_CALLS) == (ALLOW if ours else judged(machine, number))


@machines
@given(number=st.integers(0, 2**32 - 1))
def test_no_number_beyond_the_table_is_allowed(machine: str, number: int) -> None:
    if number not in numbers(machine).values():
        assert judged(machine, number) == ENOSYS


@machines
@given(name=st.sampled_from(sorted(ONLY)), value=st.integers(0, 2**32 - 1), high=st.integers(0, 2**32 - 1))
def test_arguments_outside_their_list_are_refused(machine: str, name: str, value: int, high: int) -> None:
    position, permitted = ONLY[name]
    arguments = [0] * 6
    arguments[position] = value | high << 32
    assert judged(machine, numbers(machine)[name], *arguments) == (ALLOW if value in permitted else EPERM)


@machines
@given(flags=st.integers(0, 2**64 - 1))
def test_clone_makes_processes_and_threads_and_no_namespaces(machine: str, flags: int) -> None:
    expected = EPERM if flags & NEW_NAMESPACES else ALLOW
    assert judged(machine, numbers(machine)["clone"], flags) == expected


@machines
@given(flags=st.integers(0, 2**32 - 1))
def test_memory_of_nobody_is_not_shared(machine: str, flags: int) -> None:
    expected = EPERM if flags & MAP_SHARED and flags & MAP_ANONYMOUS else ALLOW
    assert judged(machine, numbers(machine)["mmap"], 0, 4096, 3, flags) == expected


@machines
@given(number=st.integers(1, 64), action=st.integers(0, 2**64 - 1))
def test_what_becomes_of_dead_children_may_be_asked_and_not_changed(machine: str, number: int, action: int) -> None:
    call = numbers(machine)["rt_sigaction"]
    assert judged(machine, call, number, action) == (EPERM if number == SIGCHLD and action else ALLOW)
    assert judged(machine, call, SIGCHLD, action << 32 & (2**64 - 1)) == (EPERM if action % 2**32 else ALLOW)
    assert judged(machine, call, SIGCHLD, 0) == ALLOW


@machines
def test_calls_of_another_architecture_kill(machine: str) -> None:
    assert judged(machine, numbers(machine)["read"], architecture=0x40000003) == KILL_PROCESS


@machines
def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
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
@pytest.mark.parametrize("name", NEVER)
def test_what_must_never_be_allowed_is_not_named(machine: str, name: str) -> None:
    assert name not in numbers(machine)


def test_a_machine_without_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"riscv64.*x86_64, aarch64"):
        filter_program("riscv64")
    assert filter_program() == filter_program(platform.machine())
