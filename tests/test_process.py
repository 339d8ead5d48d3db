"""Processes of ours end in order, and nothing they started outlives them."""

import fcntl
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from loomrl.process import _group_memory, free_memory, is_readable, peak_memory_kb

pytestmark = pytest.mark.system

PARENT = """
import subprocess, sys
from loomrl.process import none_outlives_us
grandchild = "import subprocess; subprocess.run(['sleep', '600'], start_new_session=True)"
child = subprocess.Popen([sys.executable, '-c', grandchild], start_new_session=True, stdout=-3, stderr=-3)
import time, psutil
while 'sleep' not in [child.name() for child in psutil.Process().children(recursive=True)]:  # not before it is exec'd
    time.sleep(0.01)
with none_outlives_us():
    print('begun', flush=True)
    input()
print('left', flush=True)
input()
"""
RAY = """
from loomrl.experiments.algorithms import ray_running
with ray_running(1):
    print('begun', flush=True)
    input()
"""


def begun(program: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A process that has begun, and its descendants."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)
    if process.stdout.readline() != "begun\n":
        pytest.fail(process.communicate()[1])
    return process, psutil.Process(process.pid).children(recursive=True)


def words_of(process: subprocess.Popen[str]) -> str:
    """Its output until it ends by itself."""
    process.wait(120)
    return process.communicate()[1]


def test_descendants_of_a_killed_process_are_killed() -> None:
    process, descendants = begun(PARENT)
    assert len(descendants) == 3  # and who watches them
    process.kill()
    process.communicate()
    assert not psutil.wait_procs(descendants, timeout=30)[1]


def test_who_leaves_in_order_ends_nothing() -> None:
    process, descendants = begun(PARENT)
    left, _ = process.communicate("\n\n")
    assert left == "left\n"
    running = [child for child in descendants if child.is_running()]
    assert len(running) == 2
    for child in running:
        child.kill()


def test_process_that_lost_what_it_needs_says_so_and_ends() -> None:
    program = PARENT.replace("none_outlives_us()", "none_outlives_us(vital='sleep', obituary='sleep has died')")
    process, descendants = begun(program)
    (vital,) = [child for child in descendants if child.name() == "sleep"]
    vital.kill()
    assert words_of(process).strip() == "sleep has died"
    assert process.returncode != 0
    assert not psutil.wait_procs(descendants, timeout=30)[1]


def test_a_cluster_that_somebody_started_here_and_nobody_named_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="loom-", dir="/tmp") as folder:  # sockets lie in it, whose paths are short
        last = Path(folder) / "ray/ray_current_cluster"
        last.parent.mkdir()
        last.write_text("192.0.2.2:6399")
        monkeypatch.setenv("RAY_TMPDIR", folder)
        process, descendants = begun(RAY)
        assert any(child.cmdline()[0].endswith("raylet/raylet") for child in descendants)
        assert process.communicate("\n")[1] == ""
        assert process.returncode == 0


@pytest.mark.slow
def test_dead_raylet_is_said_in_words_of_ours_and_ends_the_command() -> None:
    process, descendants = begun(RAY)
    (raylet,) = [child for child in descendants if child.cmdline()[0].endswith("raylet/raylet")]
    raylet.kill()
    said = words_of(process)
    assert said.count("loomrl:") == 2
    assert "raylet" in said
    assert "--resume" in said
    assert process.returncode != 0
    assert not psutil.wait_procs(descendants, timeout=20)[1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_of_ray_outlives_a_killed_driver(number: int) -> None:
    process, descendants = begun(RAY)
    assert any("raylet" in " ".join(child.cmdline()) for child in descendants)
    process.send_signal(number)
    process.communicate()
    gone, there = psutil.wait_procs(descendants, timeout=20)
    assert not there
    assert len(gone) >= 5


def test_peak_memory_is_not_that_of_the_process_that_started_it() -> None:
    large = bytearray(400 << 20)
    large[::4096] = b"x" * len(large[::4096])
    command = [sys.executable, "-c", "from loomrl.process import peak_memory_kb; print(peak_memory_kb())"]
    asked = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 5_000 < int(asked.stdout) < 200_000
    assert peak_memory_kb() > 400 << 10


def test_a_process_with_thousands_of_open_files_can_still_wait_for_one():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    readable, writable = os.pipe()
    high = fcntl.fcntl(readable, fcntl.F_DUPFD_CLOEXEC, 2000)
    try:
        assert not is_readable(high, 0.01)
        os.write(writable, b"x")
        assert is_readable(high, 10.0)
    finally:
        for descriptor in (high, readable, writable):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


INTERRUPTED_IMPORT = """
import signal, time
from loomrl.process import exit_on_sigterm
exit_on_sigterm()
source = '''
def importing():
    signal.raise_signal(signal.SIGTERM)
    return [None for _ in range(1000)]
'''
exec(compile(source, '<frozen importlib._bootstrap>', 'exec'), globals())
importing()
print('the import was not interrupted', flush=True)
try:
    time.sleep(60)
finally:
    print('cleaned up', flush=True)
"""


def test_sigterm_waits_for_the_import_system_whose_lock_it_would_leave_held():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["the import was not interrupted", "cleaned up"]
    assert done.returncode == 128 + signal.SIGTERM, done.stderr


@pytest.mark.parametrize(
    ("line", "folder", "names"),
    [
        ("0::/box", "box", ("memory.max", "memory.current", "inactive_file")),
        ("4:memory:/box", "memory/box", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
        ("0::/hidden/by/the/container", "", ("memory.max", "memory.current", "inactive_file")),
    ],
)
def test_free_memory_is_that_of_the_container(
    tmp_path: Path, line: str, folder: str, names: tuple[str, str, str]
) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    (root / folder).mkdir(parents=True, exist_ok=True)
    groups.write_text(f"1:cpu:/\n{line}\n")
    limit, used, cached = names
    (root / folder / limit).write_text("4000\n")
    (root / folder / used).write_text("1500\n")
    (root / folder / "memory.stat").write_text(f"anon 900\n{cached} 500\n")
    assert [*_group_memory(groups, root)] == [4000 - 1500 + 500]
    assert 0 < free_memory() <= psutil.virtual_memory().total


STUCK = """
import subprocess, sys, threading
from loomrl.process import stacks_if_stuck
child = '''
import time
from loomrl.process import stacks_on_signal
stacks_on_signal()
def holds_a_lock():
    print("ready", flush=True)
    time.sleep(60)
holds_a_lock()
'''
def learn(seconds):
    threading.Event().wait(seconds)
plain = subprocess.Popen(['sleep', '60'])
held = subprocess.Popen([sys.executable, '-c', child], stdout=subprocess.PIPE)
held.stdout.readline()
with stacks_if_stuck({'learn': 'the learners'}) as advance:
    for _ in range(4):
        learn(0.3)
        advance()
    print('steady', file=sys.stderr, flush=True)
    learn(4)
print('alive', plain.poll() is None and held.poll() is None, file=sys.stderr)
plain.kill()
held.kill()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_without_progress_all_processes_write_their_stacks_and_what_is_waited_for_is_said() -> None:
    environment = {**os.environ, "LOOMRL_HANG_S": "2"}
    done = subprocess.run([sys.executable, "-c", STUCK], env=environment, capture_output=True, text=True, check=True)
    before, after = done.stderr.split("steady\n")
    assert not before
    assert "no progress for 2 s (LOOMRL_HANG_S): waiting for the learners" in after
    assert " in learn" in after
    assert " in holds_a_lock" in after
    assert "alive True" in after


BUSY = """
import hashlib, signal, sys, threading, time
from loomrl.process import answered_in_time, exit_on_sigterm
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in its background without it
exit_on_sigterm()
main = threading.get_ident()
def native():
    hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)  # many minutes, in which Python handles no signal
def python():
    time.sleep(600)
def say_when_busy():
    while sys._current_frames()[main].f_code.co_name != sys.argv[1]:
        time.sleep(0.01)
    time.sleep(0.2)
    print('ready', flush=True)
threading.Thread(target=say_when_busy, daemon=True).start()
try:
    with answered_in_time(lambda: 'go on so', float(sys.argv[2])):
        globals()[sys.argv[1]]()
finally:
    print('cleaned up', flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_process_in_a_long_native_call_and_another_in_order(number: signal.Signals) -> None:
    busy, idle = (
        subprocess.Popen(
            [sys.executable, "-c", BUSY, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for words in (("native", "0.2"), ("python", "600"))
    )
    for process in (busy, idle):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
    (said, told), (cleaned, _) = (process.communicate(timeout=300) for process in (busy, idle))
    assert (said, told, busy.returncode) == ("", "\nloomrl: go on so\n", 128 + number)
    assert (cleaned, idle.returncode) == ("cleaned up\n", 143 if number is signal.SIGTERM else -signal.SIGINT)
