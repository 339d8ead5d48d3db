"""The system calls a program may make, as a classic BPF filter. Calls not named here do not exist for it."""

import platform
import struct
from collections.abc import Iterable

from loomrl.errors import ConfigError

CALLS = """
read:0:63 write:1:64 close:3:57 fstat:5:80 lseek:8:62 mmap:9:222 mprotect:10:226 munmap:11:215 brk:12:214
rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 pread64:17:67 pwrite64:18:68 readv:19:65
writev:20:66 preadv:295:69 pwritev:296:70 pipe:22:- pipe2:293:59 select:23:- pselect6:270:72 poll:7:-
ppoll:271:73 sched_yield:24:124 mremap:25:216 msync:26:227 madvise:28:233 dup:32:23 dup2:33:-
dup3:292:24 nanosleep:35:101 clock_nanosleep:230:115 getitimer:36:102 setitimer:38:103 alarm:37:- pause:34:-
getpid:39:172 getppid:110:173 gettid:186:178 getpgid:121:155 getpgrp:111:- getsid:124:156 setsid:112:157
setpgid:109:154 getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177 getgroups:115:158
getresuid:118:148 getresgid:120:150 capget:125:90 sendto:44:206 recvfrom:45:207 shutdown:48:210 fork:57:-
vfork:58:- execve:59:221 exit:60:93 exit_group:231:94 wait4:61:260 waitid:247:95 kill:62:129 tkill:200:130
tgkill:234:131 uname:63:160 fcntl:72:25 fsync:74:82 fdatasync:75:83 truncate:76:45 ftruncate:77:46
getdents:78:- getdents64:217:61 getcwd:79:17 chdir:80:49 fchdir:81:50 open:2:- openat:257:56 creat:85:-
close_range:436:436 stat:4:- lstat:6:- newfstatat:262:79 statx:332:291 access:21:- faccessat:269:48
faccessat2:439:439 readlink:89:- readlinkat:267:78 statfs:137:43 fstatfs:138:44 rename:82:- renameat:264:38
renameat2:316:276 mkdir:83:- mkdirat:258:34 rmdir:84:- link:86:- linkat:265:37 unlink:87:- unlinkat:263:35
symlink:88:- symlinkat:266:36 chmod:90:- fchmod:91:52 fchmodat:268:53 umask:95:166 fallocate:285:47
gettimeofday:96:169 time:201:- clock_gettime:228:113 clock_getres:229:114 getrlimit:97:163 setrlimit:160:164
getrusage:98:165 sysinfo:99:179 times:100:153 getpriority:140:141 getcpu:309:168 sched_getaffinity:204:123
sched_getparam:143:121 sched_getscheduler:145:120 sched_get_priority_max:146:125 sched_get_priority_min:147:126
rt_sigpending:127:136 rt_sigtimedwait:128:137 rt_sigsuspend:130:133 sigaltstack:131:132 restart_syscall:219:128
arch_prctl:158:- futex:202:98 set_tid_address:218:96 set_robust_list:273:99 get_robust_list:274:100
rseq:334:293 membarrier:324:283 getrandom:318:278 epoll_create:213:- epoll_create1:291:20 epoll_ctl:233:21
epoll_wait:232:- epoll_pwait:281:22 eventfd2:290:19 signalfd4:289:74 timerfd_create:283:85
timerfd_settime:286:86 timerfd_gettime:287:87 ioctl:16:29 prctl:157:167 clone:56:220 prlimit64:302:261
socketpair:53:199
"""
"""`name:x86_64:aarch64`; a dash if an architecture has no such call. `execve` is bubblewrap's own entry.

No call locks a file, sets its times or tells which of it is in memory: programs of other boxes, and the host, share the
same interpreter and null device.
"""

FILE_CALLS = """
utimensat:280:88 utime:132:- utimes:235:- futimesat:261:- chown:92:- fchown:93:55 lchown:94:- fchownat:260:54
getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10 listxattr:194:11 llistxattr:195:12 flistxattr:196:13
getpeername:52:205
"""
"""Further calls of touch, cp, tar, ls and bash, for boxes that need those.

By the times of /dev/null such boxes can tell each other something. A bash that cannot ask for its peer takes its input
for a network's, and reads ~/.bashrc.
"""

ONLY = {
    "fcntl": (1, (0, 1, 2, 3, 4, 1030, 1032)),  # descriptors and their flags; no lock, lease, notice or larger pipe
    "ioctl": (1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),  # is it a terminal, its size, FIONREAD, flags
    "prctl": (0, (1, 3, 4, 15, 16, 21, 23, 39)),  # death signal, dumpable, name; seccomp, capabilities, no-new-privs
    "prlimit64": (0, (0,)),  # one's own limits: those of the process that watches it are not its to change
    "socketpair": (0, (1,)),  # AF_UNIX, both ends at home
}
"""Call → the index of an argument, and its permitted values."""

NEW_NAMESPACES = 0x7E020000
"""Every CLONE_NEW* flag that `clone` knows. `clone3` hides its flags behind a pointer and is not on the list."""

MAP_SHARED = 0x01
MAP_ANONYMOUS = 0x20
"""Memory that is both outlives its mapping and belongs to no process: only a cgroup could count it."""

SIGCHLD = 17
"""Ignoring it makes the kernel reap children at once, and their processor time is lost."""

MACHINES = {"x86_64": (1, 0xC000003E), "aarch64": (2, 0xC00000B7)}
"""Machine → its column in CALLS and its AUDIT_ARCH."""

LOAD = 0x20
EQUAL = 0x15
ANY_BIT = 0x45
RETURN = 0x06
ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
EPERM = 0x00050000 | 1
ENOSYS = 0x00050000 | 38
NUMBER_AT = 0
ARCHITECTURE_AT = 4
ARGUMENTS_AT = 16

Instruction = tuple[int, int, int, int]


def filter_program(machine: str | None = None, more: str = "") -> bytes:
    """The filter of a machine: a call of another architecture kills, an unnamed call is ENOSYS, a bad argument
    EPERM. `more` names further calls, as `CALLS` does.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise ConfigError(f"machine={machine!r} has no seccomp filter. Known: {', '.join(MACHINES)}.")
    architecture = MACHINES[machine][1]
    code: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    for name, number in numbers(machine, more).items():
        rule = _rule(name)
        code += [(EQUAL, 0, len(rule), number), *rule]
    code.append((RETURN, 0, 0, ENOSYS))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def numbers(machine: str, more: str = "") -> dict[str, int]:
    """Every permitted call of a machine with its number."""
    column = MACHINES[machine][0]
    rows = [row.split(":") for row in f"{CALLS} {more}".split()]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def _rule(name: str) -> list[Instruction]:
    if name == "clone":
        return [*_load_argument(0), (ANY_BIT, 0, 1, NEW_NAMESPACES), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW)]
    if name == "mmap":
        return [
            *_load_argument(3),
            (ANY_BIT, 0, 2, MAP_ANONYMOUS),
            (ANY_BIT, 0, 1, MAP_SHARED),
            (RETURN, 0, 0, EPERM),
            (RETURN, 0, 0, ALLOW),
        ]
    if name == "rt_sigaction":  # asking is a call with no new action
        return [
            *_load_argument(0),
            (EQUAL, 0, 5, SIGCHLD),
            *_load_argument(1),
            (EQUAL, 0, 2, 0),
            (LOAD, 0, 0, ARGUMENTS_AT + 8 * 1 + 4),
            (EQUAL, 1, 0, 0),
            (RETURN, 0, 0, EPERM),
            (RETURN, 0, 0, ALLOW),
        ]
    if name in ONLY:
        argument, values = ONLY[name]
        return [*_load_argument(argument), *_one_of(values), (RETURN, 0, 0, EPERM)]
    return [(RETURN, 0, 0, ALLOW)]


def _load_argument(index: int) -> list[Instruction]:
    """The argument's lower half: the kernel also reads these arguments as 32 bits."""
    return [(LOAD, 0, 0, ARGUMENTS_AT + 8 * index)]


def _one_of(values: Iterable[int]) -> list[Instruction]:
    return [step for value in values for step in ((EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW))]
