"""Attacks on the machine's resources and on reports: bombs, endless loops, leftovers, forged endings."""

from loomrl.gym.sandbox.attack import HELD, Attack
from loomrl.gym.sandbox.attack_host import BRIEF, timed_out
from loomrl.gym.sandbox.contract import Ending, Execution, Limits

FORGED_CODES = 1, 2, 125, 126, 127, 255


def overflowed(execution: Execution) -> bool:
    """Cut off at the limit."""
    return execution.ending is Ending.OVERFLOW and len(execution.output) == Limits().output_bytes


def failed(execution: Execution) -> bool:
    """The program failed, and the sandbox did not."""
    return execution.ending in (Ending.EXITED, Ending.SIGNALLED) and execution.status != 0


def silent(execution: Execution) -> bool:
    """It ended without output."""
    return execution.ending is Ending.EXITED and not execution.output


def kept_a_tail(execution: Execution) -> bool:
    """Its standard error was read to the end, and only a tail was kept."""
    return execution.ending is Ending.EXITED and 0 < len(execution.errors) <= 1 << 14


def exited_with(code: int) -> "Attack":
    """Ends with an exit code that launchers use for their own failures."""

    def holds(execution: Execution) -> bool:
        return execution.ending is Ending.EXITED and execution.status == code

    return Attack(f"exits_with_{code}_as_a_broken_sandbox_would", f"os._exit({code})", holds=holds)


def printed_frames(execution: Execution) -> bool:
    """Its output is reported as output, even if it looks like the protocol."""
    return execution.ending is Ending.EXITED and execution.output.startswith(b"FE") and execution.output.endswith(HELD)


def ended_early(execution: Execution) -> bool:
    """Ended by the processor time of all its processes together, long before its deadline."""
    return execution.ending is Ending.TIMEOUT and execution.wall_s < POOR.wall_s - 5


def broke_off(execution: Execution) -> bool:
    """Stopped before it had all the memory it wanted."""
    return b"breached" not in execution.output


POOR = Limits(wall_s=40.0, cpu_s=1, memory_mb=128, processes=16, scratch_mb=16)
"""Little time and memory, and a deadline too late to be the cause of an ending."""
TEN_TIMES_90_MB = """
import time
done, writing = os.pipe()
for _ in range(10):
    if os.fork() == 0:
        taken = take(90 << 20)
        os.write(writing, b'1')
        time.sleep(60)
os.set_blocking(done, False)
count = 0
while not os.waitpid(-1, os.WNOHANG)[0]:
    try: count += len(os.read(done, 1))
    except BlockingIOError: time.sleep(0.01)
    must(count < 10, 'ten times 90 MB under 128')
"""
"""Ten processes that each hold the result of `take`, within their own memory limit."""
NOTHING_LEFT = """
must(not os.listdir('/tmp'), os.listdir('/tmp'))
own = 1, os.getpid(), os.getppid()
must(not [pid for pid in range(1, 3000) if pid not in own and libc.kill(pid, 0) == 0], 'processes')
"""
BOMBS = (
    Attack(
        "forks_without_end",
        """
import time
count = 0
try:
    while count < 300:
        if os.fork() == 0:
            time.sleep(60)
        count += 1
except OSError:
    pass
must(count <= 34, count)
""",
        then=NOTHING_LEFT,
        on_kernel=True,
    ),
    Attack(
        "forks_in_every_fork",
        "while True:\n    try: os.fork()\n    except OSError: pass",
        holds=timed_out,
        then=NOTHING_LEFT,
        limits=BRIEF,
    ),
    Attack(
        "starts_threads_without_end",
        """
import threading, time
threads = []
try:
    while len(threads) < 300:
        threads.append(threading.Thread(target=time.sleep, args=(60,), daemon=True))
        threads[-1].start()
except RuntimeError:
    pass
must(len(threads) <= 36, len(threads))
os.write(1, b'held')
os._exit(0)
""",
        on_kernel=True,
    ),
    Attack(
        "takes_all_memory",
        """
taken = []
try:
    while len(taken) < 600:
        taken.append(bytes(1 << 20))
except MemoryError:
    pass
count = len(taken)
del taken
must(count <= 512, count)
""",
    ),
    Attack(
        "takes_memory_in_every_fork",
        "def take(size): return bytearray(b'x') * size\n" + TEN_TIMES_90_MB,
        holds=broke_off,
        limits=POOR,
    ),
    Attack(
        "takes_memory_in_forks_of_threads_that_hide",
        """
import threading
libc.prctl(4, 0, 0, 0, 0)  # what it has is then shown to the privileged only
def take(size): return bytearray(b'x') * size
def fork_and_go_on():
"""
        + TEN_TIMES_90_MB.replace("\n", "\n    ")
        + "\nthread = threading.Thread(target=fork_and_go_on)\nthread.start()\nthread.join()",
        holds=broke_off,
        limits=POOR,
    ),
    Attack(
        "shares_memory_that_nobody_counts",
        """
import mmap
def take(size):
    memory = mmap.mmap(-1, size)
    memory.write(b'x' * size)
    return memory
refused(take, 1 << 20)
refused(open, '/dev/zero', 'r+b')
""",
        on_kernel=True,
    ),
    Attack(
        "makes_files_without_end",
        """
for number in range(400_000):
    os.close(os.open(f'/tmp/{number}', os.O_CREAT | os.O_WRONLY))
breached('400,000 files')
""",
        holds=broke_off,
        then=NOTHING_LEFT,
        on_kernel=True,
    ),
    Attack(
        "burns_time_in_forks_at_once",
        "import time\nfor _ in range(8):\n    if os.fork() == 0:\n        while True: pass\ntime.sleep(60)",
        holds=ended_early,
        limits=POOR,
    ),
    Attack(
        "burns_time_in_one_fork_after_another",
        "import time\nwhile True:\n    if os.fork() == 0:\n        end = time.process_time() + 0.8\n"
        "        while time.process_time() < end: pass\n        os._exit(0)\n    os.wait()",
        holds=ended_early,
        limits=POOR,
    ),
    Attack(
        "burns_time_in_a_chain_of_orphans",
        """
import time
if os.fork():
    time.sleep(60)
while True:
    sum(range(100_000))
    try:
        if os.fork():
            os._exit(0)
    except BlockingIOError:
        pass
""",
        holds=ended_early,
        limits=POOR,
    ),
    Attack(
        "enlarges_its_pipes",
        "import fcntl\nrefused(fcntl.fcntl, os.pipe()[1], 1031, 1 << 20)",
        on_kernel=True,
    ),
    Attack("maps_more_than_there_is", "import mmap\nrefused(mmap.mmap, -1, 1 << 40)"),
    Attack(
        "fills_the_disk",
        """
file, size = open('/tmp/file', 'wb', buffering=0), 0
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    for number in range(8):
        file = open(f'/tmp/file{number}', 'wb', buffering=0)
        for _ in range(20):
            size += file.write(bytes(1 << 20))
except OSError:
    pass
must(size <= 64 << 20, size)
""",
        then=NOTHING_LEFT,
    ),
    Attack(
        "makes_a_file_with_a_hole",
        """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
refused(os.truncate, os.open('/tmp/file', os.O_RDWR | os.O_CREAT), 1 << 40)
""",
    ),
    Attack("opens_descriptors_without_end", "refused(lambda: [os.dup(0) for _ in range(65)])"),
    Attack("prints_without_end", "while True: os.write(1, b'x' * 65536)", holds=overflowed),
    Attack(
        "complains_without_end",
        "for _ in range(200): os.write(2, b'x' * 65536)",
        holds=kept_a_tail,
    ),
    Attack(
        "loops_without_end_and_ignores_signals",
        "import signal\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass",
        holds=timed_out,
        limits=BRIEF,
    ),
    Attack("sleeps_past_its_deadline", "import time\ntime.sleep(60)", holds=timed_out, limits=BRIEF),
    Attack("waits_for_input_that_never_comes", "import signal\nsignal.pause()", holds=timed_out, limits=BRIEF),
    Attack(
        "burns_more_time_than_it_has",
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\n"
        "refused(resource.setrlimit, resource.RLIMIT_CPU, (60, 60))",
    ),
    Attack(
        "raises_its_own_limits",
        """
import resource
for name in 'AS', 'NPROC', 'NOFILE', 'FSIZE', 'CORE', 'MEMLOCK':
    kind = getattr(resource, 'RLIMIT_' + name)
    refused(resource.setrlimit, kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
""",
    ),
    Attack(
        "dumps_its_memory_into_a_file",
        "import resource\nmust(resource.getrlimit(resource.RLIMIT_CORE) == (0, 0), 'core')\n"
        "pid = os.fork()\nif pid == 0: os.abort()\nmust(not os.WCOREDUMP(os.waitpid(pid, 0)[1]), 'dump')",
    ),
    Attack("runs_with_huge_arguments", "refused(os.execv, sys.executable, ['python', 'x' * (1 << 22)])"),
)
LEFTOVERS = (
    Attack("leaves_a_file_for_the_next", "open('/tmp/note', 'w').write('n')", then=NOTHING_LEFT),
    Attack(
        "leaves_a_process_that_holds_its_output",
        "import time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)",
        then=NOTHING_LEFT,
    ),
    Attack(
        "leaves_a_daemon",
        """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3):
            os.close(fd)
        time.sleep(60)
    os._exit(0)
time.sleep(0.05)
""",
        then=NOTHING_LEFT,
    ),
    Attack(
        "leaves_zombies",
        "for _ in range(25):\n    if os.fork() == 0: os._exit(0)",
        then=NOTHING_LEFT,
    ),
    Attack(
        "sets_variables_for_the_next",
        "os.environ['LD_PRELOAD'] = '/tmp/evil.so'\nopen('/tmp/evil.so', 'w').write('x')",
        then=NOTHING_LEFT + "must('LD_PRELOAD' not in os.environ, 'LD_PRELOAD')",
    ),
)
FORGERIES = (
    *map(exited_with, FORGED_CODES),
    Attack("prints_the_reports_of_the_guest", "os.write(1, b'FE' + bytes(16))", holds=printed_frames),
    Attack("writes_where_the_guest_reports", "for fd in range(3, 300): refused(os.write, fd, b'F')"),
    Attack("closes_its_output", "os.close(2)\nos.close(1)\nos.open('/dev/null', 1)", holds=silent),
    Attack("is_no_python", "def (", holds=failed),
    Attack("holds_a_null_byte", "\0", holds=failed),
    Attack("holds_half_a_character", "'\ud800'", holds=failed),
    Attack("nests_deeper_than_the_compiler", "(" * 100_000, holds=failed),
    Attack("crashes_the_interpreter", "ctypes.string_at(0)", holds=failed),
)
RESOURCE_ATTACKS = (*BOMBS, *LEFTOVERS, *FORGERIES)
