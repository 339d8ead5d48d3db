"""Attacks on the host's files, processes and network."""

from loomrl.gym.sandbox.attack import Attack
from loomrl.gym.sandbox.contract import Ending, Execution, Limits


def ended_by_itself(execution: Execution) -> bool:
    """The program ended by its own doing, and the sandbox did not fail."""
    return execution.ending in (Ending.SIGNALLED, Ending.EXITED)


def timed_out(execution: Execution) -> bool:
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
    Attack("kills_everything_it_can", "os.kill(-1, 9)\nimport time\ntime.sleep(0.2)", holds=ended_by_itself),
    Attack(
        "kills_its_parent_and_goes_on",
        "import time\ntry: os.kill(os.getppid(), 9)\nexcept OSError: pass\ntime.sleep(0.2)",
        holds=ended_by_itself,
    ),
    Attack(
        "stops_its_parent_to_gain_time",
        "import time\ntry: os.kill(os.getppid(), 19)\nexcept OSError: pass\ntime.sleep(60)",
        holds=timed_out,
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
