"""Programs in the sandbox: how they end, what they keep, and how fast it is."""

import asyncio
import dataclasses
import gc
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from loomrl.errors import SandboxError
from loomrl.gym.sandbox import Ending, Limits, Sandbox, Slots, open_sandbox
from loomrl.gym.sandbox.attack import BOMBS, POOR
from loomrl.gym.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from loomrl.gym.sandbox.contract import find_interpreter
from loomrl.gym.sandbox.process import facts, make_cgroup, processes_of
from loomrl.gym.sandbox.proof import survey
from loomrl.gym.sandbox.seccomp import FILE_CALLS, filter_program
from tests.needs import needs

pytestmark = [pytest.mark.system, needs("bubblewrap")]
LATE_S = 0.5
"""Lateness of a deadline that is allowed on a machine that does much else; 0.2 s of it are the host's own grace."""


@pytest.fixture
def sandbox():
    return open_sandbox("bubblewrap")


@pytest.fixture
async def session(sandbox):
    async with sandbox.session(preload="import math") as session:
        yield session


def zombies():
    """Dead children of this process that nobody has reaped yet."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                known = facts(int(entry.name))
            except OSError:
                continue
            if known["PPid"] == str(os.getpid()) and known["State"].startswith("Z"):
                found.add(int(entry.name))
    return found


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    ("program", "ending", "status", "output", "error"),
    [
        ("print(input()[::-1])", Ending.EXITED, 0, b"olleh\n", b""),
        ("import sys; sys.exit(3)", Ending.EXITED, 3, b"", b""),
        ("import sys; sys.exit('no')", Ending.EXITED, 1, b"", b"no\n"),
        ("1/0", Ending.EXITED, 1, b"", b"ZeroDivisionError"),
        ("def f(:", Ending.EXITED, 1, b"", b"SyntaxError"),
        ("import os; os.kill(os.getpid(), 11)", Ending.SIGNALLED, 11, b"", b""),
        ("import os; os._exit(139)", Ending.EXITED, 139, b"", b""),
        ("import threading as t; t.Timer(0.02, print, ['late']).start()", Ending.EXITED, 0, b"late\n", b""),
        ("import atexit; atexit.register(print, 'bye')", Ending.EXITED, 0, b"bye\n", b""),
        ("out = open(1, 'w', closefd=False); out.write('kept')", Ending.EXITED, 0, b"kept", b""),
        ("print(__name__, ascii('é'), 'é')", Ending.EXITED, 0, "__main__ '\\xe9' é\n".encode(), b""),
        ("import dataclasses, json, ssl, sqlite3, decimal, zlib, asyncio; print(1)", Ending.EXITED, 0, b"1\n", b""),
        ("import asyncio; asyncio.run(asyncio.sleep(0)); print(2)", Ending.EXITED, 0, b"2\n", b""),
        ("import os; print(os.fork() and os.wait()[1])", Ending.EXITED, 0, b"0\n0\n", b""),
    ],
)
async def test_a_program_ends_as_it_would_outside(session, sandbox, program, ending, status, output, error):
    for execution in (await sandbox.run(program, stdin=b"hello\n"), await session.run(program, stdin=b"hello\n")):
        assert (execution.ending, execution.status, execution.output) == (ending, status, output)
        assert error in execution.errors


async def test_what_it_raises_is_shown_without_the_guest(session):
    execution = await session.run("def f():\n    1/0\nf()")
    assert b"<string>" not in execution.errors
    assert execution.errors.count(b"program.py") == 2


async def test_a_deadline_ends_a_program_and_is_hardly_late(session, sandbox):
    for stop in ("while True: pass", "import os; os.kill(os.getppid(), 19)\nwhile True: pass"):
        execution = await sandbox.run(stop, limits=Limits(wall_s=0.3))
        assert execution.ending is Ending.TIMEOUT
        assert 0.3 <= execution.wall_s < 0.3 + LATE_S


async def test_time_of_its_own_is_a_limit_too(sandbox):
    program = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    loop = "while True: pass"
    polite, rude = await asyncio.gather(*(sandbox.run(it, limits=Limits(wall_s=60, cpu_s=1)) for it in (loop, program)))
    assert (polite.ending, polite.status) == (Ending.TIMEOUT, signal.SIGXCPU)
    assert (rude.ending, rude.status) == (Ending.TIMEOUT, signal.SIGKILL)


async def test_output_is_cut_at_its_limit(session, sandbox):
    exact = await sandbox.run("print('x' * 999)", limits=Limits(output_bytes=1000))
    above = await sandbox.run("print('x' * 1000)", limits=Limits(output_bytes=1000))
    assert (exact.ending, len(exact.output)) == (Ending.EXITED, 1000)
    assert (above.ending, len(above.output)) == (Ending.OVERFLOW, 1000)


async def test_much_input_and_output_pass(session):
    numbers = b"\n".join(b"%d" % number for number in range(60_000))
    execution = await session.run("import sys; sys.stdout.write(sys.stdin.read())", stdin=numbers)
    assert execution.output == numbers
    ignored = await session.run("print('not read')", stdin=numbers)
    assert (ignored.ending, ignored.output) == (Ending.EXITED, b"not read\n")


async def test_hashes_are_the_same_in_every_run(session, sandbox):
    program = "print(hash('loom'), list({'a', 'b', 'c', 'd'}))"
    first, second = await sandbox.run(program), await session.run(program)
    assert first.output == second.output


@pytest.mark.parametrize("kept_by", ["a cgroup where there is one", "us"])
async def test_memory_of_all_processes_together_is_limited(sandbox, monkeypatch, kept_by):
    program = "import os\nfor _ in range(5): os.fork()\nx = b'x' * (60 << 20)\nimport time; time.sleep(60)"
    limits = Limits(wall_s=40, cpu_s=30, memory_mb=128, processes=40)
    if kept_by == "us":
        monkeypatch.setattr("loomrl.gym.sandbox.place.make_cgroup", lambda *_, **__: None)
    assert (await sandbox.run(program, limits=limits)).ending is Ending.SIGNALLED


async def test_without_a_cgroup_memory_and_time_of_forks_are_counted(sandbox, monkeypatch):
    monkeypatch.setattr("loomrl.gym.sandbox.place.make_cgroup", lambda *_, **__: None)
    counted = [attack for attack in BOMBS if attack.limits is POOR]
    assert len(counted) == 5
    assert await survey(sandbox, counted) == []


async def test_memory_that_forks_have_in_common_counts_once(sandbox, monkeypatch):
    monkeypatch.setattr("loomrl.gym.sandbox.place.make_cgroup", lambda *_, **__: None)
    program = "import os, time\nx = b'x' * (60 << 20)\nfor _ in range(3): os.fork()\ntime.sleep(0.3)"
    execution = await sandbox.run(program, limits=Limits(wall_s=30, memory_mb=128, scratch_mb=16))
    assert (execution.ending, execution.status) == (Ending.EXITED, 0)


async def test_time_of_one_program_is_not_counted_against_the_next(sandbox):
    program = "import time\nwhile time.process_time() < 0.6: pass"
    async with sandbox.session(limits=Limits(wall_s=60, cpu_s=1)) as session:
        assert [(await session.run(program)).ending for _ in range(4)] == [Ending.EXITED] * 4


def test_a_host_that_ignores_its_dead_children_still_counts_those_of_programs():
    script = textwrap.dedent("""
        import asyncio, signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        from loomrl.gym.sandbox import Slots
        from loomrl.gym.sandbox.bubblewrap import find_bubblewrap
        from loomrl.gym.sandbox.session import Sandbox
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        boxes = find_bubblewrap(Slots())
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        program = "import signal; print(signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL)"
        print(asyncio.run(Sandbox(boxes).run(program)).output)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "b'True\\n'\n", done.stderr


async def test_boxes_cannot_signal_each_other_by_the_files_they_share(sandbox):
    lock = "import fcntl, os\nfile = os.open(os.__file__, os.O_RDONLY)\n{}\nprint('locked', flush=True)"
    for call in ("fcntl.flock(file, fcntl.LOCK_EX)", "fcntl.lockf(file, fcntl.LOCK_SH)"):
        execution = await sandbox.run(lock.format(call))
        assert execution.output == b"", "another box would wait for this one"


async def test_a_session_hands_nothing_from_one_program_to_the_next(session):
    await session.run("import builtins, math; builtins.print = None; math.pi = 3; open('/tmp/note', 'w').write('x')")
    execution = await session.run("import math, os; print(round(math.pi, 2), os.listdir('/tmp'))")
    assert execution.output == b"3.14 []\n"


async def test_a_session_notices_a_hidden_mark_on_its_scratch(session):
    read = "import os; print(os.stat('/tmp').st_mtime_ns == 77)"
    await session.run("import os; os.utime('/tmp', ns=(77, 77))")
    assert (await session.run(read)).output == b"False\n"


async def test_a_session_goes_on_after_a_program_that_spoilt_it(sandbox):
    async with sandbox.session(limits=Limits(wall_s=0.5)) as session:
        await spoil_and_go_on(session)


async def spoil_and_go_on(session):
    for spoil in (
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.kill(-1, 9)",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "import os; os.kill(os.getppid(), 19)",
    ):
        execution = await session.run(spoil)
        assert execution.ending in (Ending.SIGNALLED, Ending.TIMEOUT)
        assert (await session.run("print(1)")).output == b"1\n"


async def test_a_program_that_kills_its_guest_at_once_is_never_trouble_of_the_sandbox(sandbox):
    kill = "import os; os.kill(os.getppid(), 9)"
    for _ in range(4):
        for execution in await asyncio.gather(*(sandbox.run(kill) for _ in range(4))):
            assert (execution.ending, execution.status) == (Ending.SIGNALLED, 9)


async def test_a_warm_session_keeps_its_interpreter(session):
    parents = {(await session.run("import os; print(os.getppid(), os.times().elapsed > 0)")).output for _ in range(5)}
    boxes = {id(session._box)}
    await session.run("print(1)")
    assert len(parents) == 1
    assert {id(session._box)} == boxes


async def test_a_preload_that_fails_is_trouble_of_the_sandbox(sandbox):
    async with sandbox.session(preload="import nothing_of_this_name") as session:
        with pytest.raises(SandboxError, match="nothing_of_this_name"):
            await session.run("print(1)")


@pytest.mark.parametrize(
    "broken",
    [
        {"executable": "/bin/false"},
        {"executable": "/nowhere/bwrap"},
        {"filter": struct.pack("<HBBI", 6, 0, 0, 0x80000000)},
        {"filter": b"no filter"},
        {"interpreter": dataclasses.replace(find_interpreter(for_others=True), libraries=())},
        {"interpreter": dataclasses.replace(find_interpreter(for_others=True), executable=Path("/nowhere/python"))},
    ],
    ids=["ends at once", "is missing", "kills its guest", "has no filter", "has no libraries", "has no python"],
)
async def test_a_bubblewrap_that_is_trouble_and_no_outcome(broken):
    boxes = dataclasses.replace(find_bubblewrap(Slots()), **broken)
    before, dead = descriptors(), zombies()
    with pytest.raises(SandboxError):
        await Sandbox(boxes).run("print(1)")
    assert descriptors() <= before
    assert zombies() <= dead


async def test_a_sandbox_killed_from_outside_is_trouble_and_no_outcome(session):
    await session.run("print(1)")
    assert session._box is not None
    running = asyncio.ensure_future(session.run("import time; time.sleep(60)"))
    await asyncio.sleep(0.1)
    session._box.process.kill()
    with pytest.raises(SandboxError, match="broke under a program"):
        await running
    assert (await session.run("print(2)")).output == b"2\n"


async def test_whoever_cancels_leaves_nothing_behind(sandbox):
    slots = Slots(base=61_070, count=1)
    own = Sandbox(find_bubblewrap(slots))
    before, dead = descriptors(), zombies()
    for moment in (0.0, 0.005, 0.02, 0.1):
        running = asyncio.ensure_future(own.run("import time; time.sleep(60)"))
        await asyncio.sleep(moment)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not processes_of(slots.base) or os.geteuid()
        assert zombies() <= dead
    assert (await own.run("print(1)")).output == b"1\n"
    gc.collect()
    assert descriptors() <= before


async def test_four_at_once_are_four_and_leave_no_zombie_and_no_descriptor(sandbox):
    await sandbox.run("print(0)")
    before, dead = descriptors(), zombies()

    async def one(number):
        return (await sandbox.run(f"print({number})")).output

    for _ in range(5):
        assert await asyncio.gather(*map(one, range(4))) == [b"0\n", b"1\n", b"2\n", b"3\n"]
    assert zombies() <= dead
    assert descriptors() <= before


def test_other_children_of_the_process_are_left_alone(sandbox):
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as other:
        for _ in range(3):
            asyncio.run(sandbox.run("print(1)"))
        assert other.wait() == 7


def test_a_host_process_that_is_killed_takes_its_sandboxes_with_it():
    slots = Slots(base=61_072, count=1)
    script = textwrap.dedent(f"""
        import asyncio
        from loomrl.gym.sandbox import Slots
        from loomrl.gym.sandbox.bubblewrap import find_bubblewrap
        from loomrl.gym.sandbox.session import Sandbox
        async def main():
            async with Sandbox(find_bubblewrap(Slots(base={slots.base}, count=1))).session() as session:
                await session.run("print(1)")
                print(session._box.first, flush=True)
                await session.run("import time; time.sleep(60)")
        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as host:
        first = int(host.stdout.readline())
        assert Path(f"/proc/{first}").exists()
        host.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{first}").exists():
        assert time.monotonic() < deadline, "the sandbox outlived its host"
        time.sleep(0.01)
    assert asyncio.run(Sandbox(find_bubblewrap(slots)).run("print(2)")).output == b"2\n"


async def test_a_program_runs_in_another_thread_and_its_loop(sandbox):
    execution = await asyncio.to_thread(lambda: asyncio.run(sandbox.run("print(1)")))
    assert execution.output == b"1\n"


def test_a_group_left_behind_by_a_killed_host_is_taken_over_also_with_more_memory():
    small = make_cgroup(f"loomrl-left-{os.getpid()}", memory=64 << 20, processes=8)
    if small is None:
        pytest.skip("this process may make no cgroup")
    try:
        assert make_cgroup(f"loomrl-left-{os.getpid()}", memory=128 << 20, processes=8) == small
        limits = [folder / "memory.limit_in_bytes" for folder in small.folders]
        limits += [folder / "memory.max" for folder in small.folders]
        assert [file.read_text().strip() for file in limits if file.exists()] == [str(128 << 20)]
    finally:
        small.remove()


KEPT = Limits(wall_s=20.0, scratch_mb=8, keeps_files=True)


@pytest.fixture
async def session_kept():
    async with open_sandbox("bubblewrap").session(limits=KEPT) as session_kept:
        yield session_kept


async def test_programs_find_the_files_of_those_before_them_and_not_their_processes(
    session_kept,
):
    await session_kept.run(
        "import os, time\nopen('/tmp/note', 'w').write(str(os.getpid()))\nif not os.fork(): time.sleep(60)"
    )
    read = "import os\nprint(os.listdir('/tmp'), [pid for pid in range(3, 3000) if pid != os.getpid() and exists(pid)])"
    exists = "def exists(pid):\n    try: os.kill(pid, 0)\n    except OSError: return False\n    return True\n"
    assert (await session_kept.run(exists + read)).output == b"['note'] []\n"
    assert not session_kept.is_lost


@pytest.mark.parametrize("end", ["import os; os.kill(os.getppid(), 9)", "import os; os.kill(os.getppid(), 19)"])
async def test_a_program_that_ends_its_box_ends_the_session(session_kept, end):
    await session_kept.run("open('/tmp/note', 'w')")
    execution = await session_kept.run(f"{end}\nimport time\ntime.sleep(60)", wall_s=1.0)
    assert execution.ending in (Ending.SIGNALLED, Ending.TIMEOUT)
    assert session_kept.is_lost
    with pytest.raises(SandboxError, match="the box of this session is gone, and the files with it"):
        await session_kept.run("print(1)")


async def test_a_program_may_have_a_time_limit_of_its_own(session_kept):
    execution = await session_kept.run("import time; time.sleep(60)", wall_s=0.3)
    assert execution.ending is Ending.TIMEOUT
    assert execution.wall_s < 2
    short = Limits(wall_s=0.3, keeps_files=True)
    async with open_sandbox("bubblewrap").session(limits=short) as hasty:
        assert (await hasty.run("import time; time.sleep(0.6)", wall_s=20.0)).ending is Ending.EXITED


def with_folders(*folders):
    boxes = open_sandbox("bubblewrap").boxes
    assert isinstance(boxes, Bubblewrap)
    return dataclasses.replace(boxes, writable=("/tmp", *folders), filter=filter_program(more=FILE_CALLS))


async def test_the_folders_that_are_named_can_be_written_to_and_no_other():
    async with Sandbox(with_folders("/app", "/data")).session(limits=KEPT) as session_kept:
        write = "for name in '/app', '/data', '/tmp': open(name + '/x', 'w').write('x')\nopen('/x', 'w')"
        execution = await session_kept.run(write)
        assert execution.status == 1
        assert execution.errors.endswith(b"OSError: [Errno 30] Read-only file system: '/x'\n")
        times = "import os\nos.utime('/app/x', (7, 7))\nprint(os.stat('/app/x').st_mtime)\nos.chown('/app/x', 0, 0)"
        execution = await session_kept.run(times)
        assert execution.output == b"7.0\n"
        assert b"Error: [Errno" in execution.errors


async def test_all_folders_together_hold_no_more_than_the_limit():
    fill = "import time\nfor name in '/app', '/data': open(name + '/x', 'wb').write(bytes({}))\ntime.sleep({})"
    async with Sandbox(with_folders("/app", "/data")).session(limits=KEPT) as session_kept:
        assert (await session_kept.run(fill.format(3 << 20, 0.2))).ending is Ending.EXITED
        assert (await session_kept.run(fill.format(6 << 20, 20))).ending is Ending.SIGNALLED
        assert session_kept.is_lost
