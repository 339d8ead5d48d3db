"""Attacks on the kernel shared by sandbox and host: system calls that must fail for any program."""

from loomrl.gym.sandbox.attack import Attack
from loomrl.gym.sandbox.contract import Ending, Execution

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


def killed_by_filter(execution: Execution) -> bool:
    """SIGSYS."""
    return execution.ending is Ending.SIGNALLED and execution.status == 31


KERNEL_ATTACKS = (
    *(Attack(name, f"no_call({call})", on_kernel=True) for name, call in CALLS.items()),
    Attack("calls_as_a_32_bit_program", INT_80, holds=killed_by_filter, on_kernel=True),
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
