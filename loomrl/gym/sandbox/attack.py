"""Attacks on a sandbox, as data: a program, and the outcome expected if the sandbox holds."""

from collections.abc import Callable
from dataclasses import dataclass

from loomrl.gym.sandbox.contract import Ending, Execution, Limits

PRELUDE = '''
import ctypes, json, os, sys
stage = json.loads(sys.stdin.readline())
libc = ctypes.CDLL(None, use_errno=True)
machine = os.uname().machine
def breached(what):
    os.write(1, f"breached: {what!r}"[:500].encode())
    os._exit(0)
def refused(attempt, *arguments):
    """The attempt must raise; any result is a breach."""
    try:
        result = attempt(*arguments)
    except (OSError, ValueError, MemoryError):
        return
    breached(result)
def no_call(numbers, *arguments):
    """The system call of this machine must fail."""
    number = numbers[("x86_64", "aarch64").index(machine)]
    if number is not None:
        wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
        result = libc.syscall(ctypes.c_long(number), *wide)
        if result != -1:
            breached(("system call", number, result))
def must(truth, what):
    if not truth:
        breached(what)
'''
HELD = b"held"
PATIENT = Limits(wall_s=30.0, cpu_s=10)
"""An attempt cut off by a stalled machine proves nothing."""
SECRET = "LOOMRL_SANDBOX_SECRET"


def says_held(execution: Execution) -> bool:
    """The program tried everything, and everything was refused."""
    return execution.ending is Ending.EXITED and execution.status == 0 and execution.output == HELD


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. `then` runs afterwards in its own sandbox, and must find nothing.

    `on_kernel` marks attacks on the kernel shared with the host: for a sandbox with its own kernel (gVisor) they prove
    nothing. `works_outside` marks harmless ones that succeed without a sandbox, which shows that they work.
    """

    name: str
    program: str
    holds: Callable[[Execution], bool] = says_held
    then: str = ""
    limits: Limits = PATIENT
    on_kernel: bool = False
    works_outside: bool = False

    @property
    def text(self) -> str:
        """The whole program."""
        return whole(self.program)


def whole(program: str) -> str:
    """A program with the prelude before it and its success message after it."""
    return f"{PRELUDE}\n{program}\nos.write(1, {HELD!r})\n"


def is_own_end(execution: Execution) -> bool:
    """The program ended by its own doing, and the sandbox did not fail."""
    return execution.ending in (Ending.SIGNALLED, Ending.EXITED)


def is_timeout(execution: Execution) -> bool:
    """Ended by the deadline of `BRIEF`, or soon after it."""
    return execution.ending is Ending.TIMEOUT and execution.wall_s < 1.5


BRIEF = Limits(wall_s=0.4)
FILES = (
    Attack("reads_the_hosts_users", "refused(open, '/etc/passwd')\nrefused(open, '/etc/shadow')", works_outside=True),
    Attack("reads_a_file_anyone_may_read", "refused(open, stage['canary'])", works_outside=True),
    Attack("writes_a_file_anyone_may_write", "refused(open, stage['canary'], 'a')", works_outside=True),
    Attack("climbs_out_by_dots", "refused(open, '/tmp/../../../../..' + stage['canary'])", works_outside=True),
    Attack(
        "climbs_out_by_a_directory",
        """
folder = os.open('/', os.O_RDONLY)
for _ in range(9):
    folder = os.open('..', os.O_RDONLY, dir_fd=folder)
refused(lambda: os.open(stage['canary'][1:], os.O_RDONLY, dir_fd=folder))
""",
        works_outside=True,
    ),
    Attack(
        "follows_its_own_link_out",
        "os.symlink(stage['canary'], '/tmp/link')\nrefused(open, '/tmp/link')\nrefused(open, '/tmp/link', 'a')",
    ),
    Attack("links_to_the_interpreter", "refused(os.link, os.path.realpath(sys.executable), '/tmp/python')"),
    Attack(
        "sees_more_than_its_own_directories",
        """
found = set(os.listdir('/')) - set('bin dev etc lib lib64 opt proc root sys tmp usr'.split())
must(not found, found)
for hidden in '/home', '/root/.ssh', '/var', '/run', '/mnt', '/boot':
    refused(os.listdir, hidden)
""",
        works_outside=True,
    ),
    Attack(
        "writes_into_the_interpreter",
        """
refused(open, os.__file__, 'a')
refused(open, sys.executable, 'r+b')
refused(os.chmod, os.__file__, 0o777)
refused(os.rename, os.__file__, os.__file__ + '.old')
refused(os.unlink, os.__file__)
refused(open, os.path.join(os.path.dirname(os.__file__), 'evil.py'), 'w')
""",
    ),
    Attack(
        "imports_packages_of_the_host",
        """
import importlib.util
for name in 'numpy', 'torch', 'ray', 'loomrl', 'pip', 'apt':
    must(importlib.util.find_spec(name) is None, name)
for folder, folders, names in os.walk('/'):
    if folder.endswith(('site-packages', 'dist-packages')):
        must(not folders and not names, folder)
""",
    ),
    Attack(
        "writes_outside_its_scratch",
        """
for place in '/x', '/usr/x', '/usr/lib/x', '/dev/x', '/lib/x', '/etc/ld.so.preload', '/proc/x':
    refused(open, place, 'w')
refused(os.mkdir, '/x')
""",
    ),
    Attack(
        "opens_the_machines_memory_and_disks",
        """
for name in 'mem kmem port kmsg sda vda nvme0n1 loop0 mapper/control snapshot'.split():
    refused(open, '/dev/' + name, 'rb')
""",
    ),
    Attack(
        "opens_the_kernels_own_devices",
        """
for name in 'fuse', 'kvm', 'net/tun', 'ptmx', 'vhost-net', 'loop-control':
    refused(open, '/dev/' + name, 'rb')
for name in '/proc/kcore', '/proc/kmsg', '/proc/sched_debug', '/sys/firmware', '/sys/kernel/debug':
    refused(os.open, name, os.O_RDONLY)
""",
        on_kernel=True,
    ),
    Attack(
        "finds_descriptors_of_the_host",
        """
import stat
for fd in range(3, 1024):
    refused(os.fstat, fd)
for fd in range(3):
    must(stat.S_ISFIFO(os.fstat(fd).st_mode), fd)
""",
    ),
    Attack(
        "finds_the_sockets_of_services",
        """
import glob
for place in '/run', '/var/run', '/tmp':
    for found in glob.glob(place + '/**/*.sock', recursive=True):
        breached(found)
""",
    ),
    Attack(
        "writes_a_kernel_setting",
        """
for name in 'kernel/core_pattern', 'kernel/modprobe', 'vm/overcommit_memory', 'user/max_user_namespaces':
    must(not os.access('/proc/sys/' + name, os.W_OK), name)
must(not os.access('/proc/sysrq-trigger', os.W_OK), 'sysrq')
""",
        on_kernel=True,
    ),
    Attack(
        "reads_other_processes_environments",
        """
for pid in '1', 'self', str(os.getppid()), str(stage['pid']):
    for name in 'environ', 'mem', 'exe', 'root', 'cwd', 'maps':
        refused(os.open, f'/proc/{pid}/{name}', os.O_RDONLY)
""",
        on_kernel=True,
        works_outside=True,
    ),
    Attack("rewrites_its_own_executable", "refused(open, '/proc/self/exe', 'wb')", on_kernel=True),
    Attack(
        "writes_the_hosts_cgroup",
        """
refused(os.listdir, '/sys')
for name in 'cgroup.procs', 'memory/release_agent', 'unified/cgroup.procs':
    refused(open, '/sys/fs/cgroup/' + name, 'w')
""",
        on_kernel=True,
    ),
)
PROCESSES = (
    Attack("signals_a_process_of_the_host", "refused(os.kill, stage['pid'], 0)", works_outside=True),
    Attack(
        "finds_processes_of_others",
        """
own = 1, os.getpid(), os.getppid()
must(not [pid for pid in range(1, 3000) if pid not in own and libc.kill(pid, 0) == 0], 'processes')
""",
        works_outside=True,
    ),
    Attack("kills_everything_it_can", "os.kill(-1, 9)\nimport time\ntime.sleep(0.2)", holds=is_own_end),
    Attack(
        "kills_its_parent_and_goes_on",
        "import time\ntry: os.kill(os.getppid(), 9)\nexcept OSError: pass\ntime.sleep(0.2)",
        holds=is_own_end,
    ),
    Attack(
        "stops_its_parent_to_gain_time",
        "import time\ntry: os.kill(os.getppid(), 19)\nexcept OSError: pass\ntime.sleep(60)",
        holds=is_timeout,
        limits=BRIEF,
    ),
    Attack(
        "becomes_another_user",
        """
must(0 not in (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups()), 'root')
for user in 0, 1, stage['pid'] + 100000:
    refused(os.setuid, user)
    refused(os.setgid, user)
    refused(os.setresuid, user, user, user)
refused(os.setgroups, [0])
""",
    ),
    Attack(
        "has_capabilities",
        """
head, sets = ctypes.create_string_buffer(b'\\x22\\x05\\x08\\x20' + bytes(4), 8), ctypes.create_string_buffer(24)
must(libc.capget(head, sets) == 0, 'capget')
must(not any(sets.raw), sets.raw)
""",
    ),
    Attack(
        "inherits_the_environment",
        """
must(stage['secret'] not in os.environ, 'secret')
known = 'HOME LANG LC_CTYPE LD_LIBRARY_PATH PATH PWD PYTHONHASHSEED PYTHONSAFEPATH TMPDIR'.split()
must(not set(os.environ) - set(known), list(os.environ))
""",
        works_outside=True,
    ),
    Attack(
        "runs_the_hosts_programs",
        "for name in '/bin/sh', '/usr/bin/env', '/bin/su': refused(os.execv, name, [name, '-c', 'true'])",
    ),
)
NETWORK = (
    Attack(
        "connects_to_the_host",
        "import socket\nrefused(lambda: socket.create_connection(('127.0.0.1', stage['port']), timeout=0.3))",
        works_outside=True,
    ),
    Attack(
        "reaches_the_internet",
        """
import socket
for address in '1.1.1.1', '169.254.169.254', '10.0.0.1':
    refused(lambda: socket.create_connection((address, 80), timeout=0.1))
""",
    ),
    Attack("resolves_a_name", "import socket\nrefused(socket.getaddrinfo, 'example.com', 80)"),
    Attack(
        "connects_to_an_abstract_socket",
        "import socket\nrefused(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + stage['unix']))",
        works_outside=True,
    ),
    Attack(
        "sends_a_datagram",
        "import socket\nrefused(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('10.0.0.1', 9)))",
    ),
    Attack(
        "opens_a_raw_socket",
        "import socket\nrefused(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)\nrefused(socket.socket, 17, 3)",
    ),
    Attack(
        "talks_to_the_kernel_by_netlink",
        "import socket\nfor kind in range(22): refused(socket.socket, 16, socket.SOCK_RAW, kind)",
        on_kernel=True,
    ),
    Attack(
        "opens_sockets_of_rare_families",
        """
import socket
for family in 31, 38, 40, 41, 44:
    for kind in 1, 2, 3, 5:
        refused(socket.socket, family, kind)
""",
    ),
)
HOST_ATTACKS = (*FILES, *PROCESSES, *NETWORK)


CALLS = {
    "mounts_a_file_system": "(165, 40), b'none', b'/tmp', b'tmpfs', 0, None",
    "unmounts_what_hides_the_host": "(166, 39), b'/tmp', 2",
    "pivots_its_root": "(155, 41), b'/tmp', b'/tmp'",
    "changes_its_root": "(161, 51), b'/tmp'",
    "opens_a_mount_tree": "(428, 428), -100, b'/', 1",
    "opens_a_file_system_context": "(430, 430), b'tmpfs', 0",
    "makes_a_user_namespace": "(272, 97), 0x10000000",
    "makes_a_mount_namespace": "(272, 97), 0x20000",
    "makes_a_network_namespace": "(272, 97), 0x40000000",
    "joins_a_namespace": "(308, 268), 0, 0",
    "clones_into_a_user_namespace": "(56, 220), 0x10000000 | 17, 0, 0, 0, 0",
    "clones_into_a_pid_namespace": "(56, 220), 0x20000000 | 17, 0, 0, 0, 0",
    "hides_its_flags_in_clone3": "(435, 435), ctypes.create_string_buffer(88), 88",
    "attaches_to_its_parent_by_ptrace": "(101, 117), 16, os.getppid(), 0, 0",
    "seizes_its_parent_by_ptrace": "(101, 117), 0x4206, os.getppid(), 0, 0",
    "asks_its_parent_to_trace_it": "(101, 117), 0, 0, 0, 0",
    "reads_its_parents_memory": "(310, 270), os.getppid(), 0, 0, 0, 0, 0",
    "writes_its_parents_memory": "(311, 271), os.getppid(), 0, 0, 0, 0, 0",
    "compares_itself_with_its_parent": "(312, 272), os.getpid(), os.getppid(), 0, 0, 0",
    "opens_a_process_descriptor": "(434, 434), os.getppid(), 0",
    "takes_a_descriptor_from_another_process": "(438, 438), 0, 0, 0",
    "loads_a_bpf_program": "(321, 280), 0, 0, 0",
    "opens_a_performance_counter": "(298, 241), 0, 0, -1, -1, 0",
    "starts_an_io_uring": "(425, 425), 1, ctypes.create_string_buffer(256)",
    "handles_page_faults_itself": "(323, 282), 1",
    "adds_a_key_to_the_keyring": "(248, 217), b'user', b'a', b'b', 1, -3",
    "reads_the_keyring": "(250, 219), 0, -3, 1",
    "reads_the_kernels_log": "(103, 116), 10, 0, 0",
    "loads_a_kernel_module": "(175, 105), 0, 0, b''",
    "loads_a_kernel_module_from_a_file": "(313, 273), 0, b'', 0",
    "loads_a_new_kernel": "(246, 104), 0, 0, 0, 0",
    "turns_swap_on": "(167, 224), b'/tmp/swap', 0",
    "turns_accounting_on": "(163, 89), b'/tmp/accounts'",
    "reads_quotas": "(179, 60), 0, 0, 0, 0",
    "makes_a_file_handle": "(303, 264), -100, b'/', bytes(160), bytes(8), 0",
    "opens_a_file_by_its_handle": "(304, 265), -100, ctypes.create_string_buffer(160), 0",
    "changes_its_personality": "(135, 92), 0x0040000",
    "sets_the_clock": "(227, 112), 0, ctypes.create_string_buffer(16)",
    "sets_the_hostname": "(170, 161), b'owned', 5",
    "watches_the_file_system": "(300, 262), 0, 0",
    "moves_memory_between_nodes": "(279, 239), 0, 0, 0, 0, 0, 0",
    "allows_itself_the_ports": "(172, None), 3",
    "changes_its_descriptor_table": "(154, None), 0, ctypes.create_string_buffer(16), 16",
    "makes_memory_without_a_file": "(319, 279), b'm', 0",
    "makes_secret_memory": "(447, 447), 0",
    "makes_shared_memory": "(29, 194), 0, 4096, 0o1600",
    "makes_a_message_queue": "(68, 186), 0, 0o1600",
    "makes_a_semaphore": "(64, 190), 0, 1, 0o1600",
    "makes_a_posix_queue": "(240, 180), b'q', 0o102, 0o600, 0",
    "makes_a_character_device": "(133, None), b'/tmp/mem', 0o20666, 0x101",
    "makes_a_block_device": "(259, 33), -100, b'/tmp/disk', 0o60666, 0x800",
    "raises_its_priority": "(141, 140), 0, 0, -10",
    "gives_itself_capabilities": "(126, 91), bytes(8), b'\\xff' * 24",
    "installs_a_filter_of_its_own": "(317, 277), 1, 0, 0",
    "asks_which_pages_of_a_file_are_in_memory": "(27, 232), 0, 0, None",
    "drops_pages_of_a_file_from_memory": "(221, 223), 0, 0, 0, 4",
    "calls_by_the_x32_numbers": "(0x40000000 + 39, None)",
}
"""Name → the numbers on x86_64 and aarch64, and arguments with which a success would be harmless."""

INT_80 = """
import mmap
if machine == "x86_64":
    memory = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
    memory.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # mov eax, 20 (getpid); int 0x80; ret
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    breached(call())
os.kill(os.getpid(), 31)
"""


def is_filter_kill(execution: Execution) -> bool:
    """SIGSYS."""
    return execution.ending is Ending.SIGNALLED and execution.status == 31


KERNEL_ATTACKS = (
    *(Attack(name, f"no_call({call})", on_kernel=True) for name, call in CALLS.items()),
    Attack("calls_as_a_32_bit_program", INT_80, holds=is_filter_kill, on_kernel=True),
    Attack(
        "types_into_a_terminal",
        """
import fcntl
refused(open, '/dev/tty')
for command in 0x5412, 0x541C:
    refused(fcntl.ioctl, 0, command, b'x')
""",
        on_kernel=True,
    ),
    Attack(
        "locks_a_file_that_others_have",
        """
import fcntl, struct
file, folder = os.open(os.__file__, os.O_RDONLY), os.open(os.path.dirname(os.__file__), os.O_RDONLY)
null = os.open('/dev/null', os.O_RDWR)
for fd in file, null:
    refused(fcntl.flock, fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    for command in 5, 6, 7, 36, 37, 38:  # locks of a process, and of an open file
        refused(fcntl.fcntl, fd, command, struct.pack('hhqqi4x', fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
refused(fcntl.fcntl, file, 1024, fcntl.F_RDLCK)  # a lease
refused(fcntl.fcntl, folder, 1026, 1)  # a notice
""",
        on_kernel=True,
    ),
    Attack(
        "touches_a_file_that_others_have",
        """
null = os.open('/dev/null', os.O_RDWR)
for what in '/dev/null', '/dev/urandom', null, os.__file__:
    refused(os.utime, what)
    refused(os.chmod, what, 0o600)
refused(os.truncate, null, 1)
""",
        on_kernel=True,
    ),
    Attack(
        "has_its_dead_buried_uncounted",
        "import signal\nrefused(signal.signal, signal.SIGCHLD, signal.SIG_IGN)\n"
        "without_zombies = bytes(136) + b'\\2' + bytes(15)\n"
        "must(libc.sigaction(signal.SIGCHLD, without_zombies, None) == -1, 'sigaction')",
        on_kernel=True,
    ),
    Attack(
        "sends_a_device_command",
        "import fcntl\nfile = open('/tmp/file', 'w')\nrefused(fcntl.ioctl, file, 0x40086602, bytes(8))",
        on_kernel=True,
    ),
    Attack(
        "changes_the_limits_of_its_parent",
        "import resource\nrefused(resource.prlimit, os.getppid(), resource.RLIMIT_NOFILE, (0, 0))",
        on_kernel=True,
    ),
    Attack(
        "sheds_the_filter_by_running_python_anew",
        "program = 'import os, socket\\ntry: socket.socket()\\nexcept OSError: os.write(1, b\"held\")'\n"
        "os.execv(sys.executable, [sys.executable, '-S', '-c', program])",
        on_kernel=True,
    ),
    Attack(
        "keeps_capabilities_over_a_change_of_user",
        "must(libc.prctl(8, 1, 0, 0, 0) == -1, 'keepcaps')\nmust(libc.prctl(28, 0, 0, 0, 0) == -1, 'securebits')\n"
        "must(libc.prctl(47, 2, 21, 0, 0) == -1, 'ambient')\nmust(libc.prctl(24, 0, 0, 0, 0) == -1, 'bounding')",
        on_kernel=True,
    ),
    Attack(
        "runs_a_setuid_program",
        "import stat\nmust(libc.prctl(39, 0, 0, 0, 0) == 1, 'new privileges')\n"
        "for folder, _, names in os.walk('/'):\n"
        "    for name in names:\n"
        "        mode = os.lstat(os.path.join(folder, name)).st_mode\n"
        "        must(not mode & (stat.S_ISUID | stat.S_ISGID), name)",
        on_kernel=True,
    ),
)


FORGED_CODES = 1, 2, 125, 126, 127, 255


def is_overflow(execution: Execution) -> bool:
    """Cut off at the limit."""
    return execution.ending is Ending.OVERFLOW and len(execution.output) == Limits().output_bytes


def is_failure(execution: Execution) -> bool:
    """The program failed, and the sandbox did not."""
    return execution.ending in (Ending.EXITED, Ending.SIGNALLED) and execution.status != 0


def silent(execution: Execution) -> bool:
    """It ended without output."""
    return execution.ending is Ending.EXITED and not execution.output


def has_tail(execution: Execution) -> bool:
    """Its standard error was read to the end, and only a tail was kept."""
    return execution.ending is Ending.EXITED and 0 < len(execution.errors) <= 1 << 14


def exit_attack(code: int) -> "Attack":
    """Ends with an exit code that launchers use for their own failures."""

    def holds(execution: Execution) -> bool:
        return execution.ending is Ending.EXITED and execution.status == code

    return Attack(f"exits_with_{code}_as_a_broken_sandbox_would", f"os._exit({code})", holds=holds)


def is_plain_output(execution: Execution) -> bool:
    """Its output is reported as output, even if it looks like the protocol."""
    return execution.ending is Ending.EXITED and execution.output.startswith(b"FE") and execution.output.endswith(HELD)


def is_early_end(execution: Execution) -> bool:
    """Ended by the processor time of all its processes together, long before its deadline."""
    return execution.ending is Ending.TIMEOUT and execution.wall_s < POOR.wall_s - 5


def is_incomplete(execution: Execution) -> bool:
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
        holds=is_timeout,
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
        holds=is_incomplete,
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
        holds=is_incomplete,
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
        holds=is_incomplete,
        then=NOTHING_LEFT,
        on_kernel=True,
    ),
    Attack(
        "burns_time_in_forks_at_once",
        "import time\nfor _ in range(8):\n    if os.fork() == 0:\n        while True: pass\ntime.sleep(60)",
        holds=is_early_end,
        limits=POOR,
    ),
    Attack(
        "burns_time_in_one_fork_after_another",
        "import time\nwhile True:\n    if os.fork() == 0:\n        end = time.process_time() + 0.8\n"
        "        while time.process_time() < end: pass\n        os._exit(0)\n    os.wait()",
        holds=is_early_end,
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
        holds=is_early_end,
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
    Attack("prints_without_end", "while True: os.write(1, b'x' * 65536)", holds=is_overflow),
    Attack(
        "complains_without_end",
        "for _ in range(200): os.write(2, b'x' * 65536)",
        holds=has_tail,
    ),
    Attack(
        "loops_without_end_and_ignores_signals",
        "import signal\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass",
        holds=is_timeout,
        limits=BRIEF,
    ),
    Attack("sleeps_past_its_deadline", "import time\ntime.sleep(60)", holds=is_timeout, limits=BRIEF),
    Attack("waits_for_input_that_never_comes", "import signal\nsignal.pause()", holds=is_timeout, limits=BRIEF),
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
    *map(exit_attack, FORGED_CODES),
    Attack("prints_the_reports_of_the_guest", "os.write(1, b'FE' + bytes(16))", holds=is_plain_output),
    Attack("writes_where_the_guest_reports", "for fd in range(3, 300): refused(os.write, fd, b'F')"),
    Attack("closes_its_output", "os.close(2)\nos.close(1)\nos.open('/dev/null', 1)", holds=silent),
    Attack("is_no_python", "def (", holds=is_failure),
    Attack("holds_a_null_byte", "\0", holds=is_failure),
    Attack("holds_half_a_character", "'\ud800'", holds=is_failure),
    Attack("nests_deeper_than_the_compiler", "(" * 100_000, holds=is_failure),
    Attack("crashes_the_interpreter", "ctypes.string_at(0)", holds=is_failure),
)
RESOURCE_ATTACKS = (*BOMBS, *LEFTOVERS, *FORGERIES)
