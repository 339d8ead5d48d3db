"""Generated problems: a request, the tools, the world, and a known solution."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from loomrl.envs.tool.call import FunctionCall
from loomrl.envs.tool.kit import PolicyTool, fields, whole
from loomrl.envs.tool.world import ToolError, ToolWorld
from loomrl.gym.generate import between

FIRST_CALLS = 16
"""Only these calls may fail, so that persistence succeeds."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Calls are counted from 0; `wait` and `login` never fail and are not counted."""

    broken: tuple[int, ...] = ()
    """These calls get a 503 and are not carried out."""
    lost: tuple[int, ...] = ()
    """Changing calls that are carried out but answered with a 504."""
    dropped: tuple[int, ...] = ()
    """Changing calls that are answered with a 504 and not carried out."""
    burst: int = 0
    """Maximum number of calls …"""
    window_s: int = 0
    """… within this many seconds; 0 is no limit. A call takes a second."""
    session: int = 0
    """Number of calls allowed after a `login`; 0 needs no login."""

    @property
    def tools(self) -> tuple[PolicyTool, ...]:
        """The tools needed to handle them."""
        return ((WAIT,) if self.burst else ()) + ((LOGIN,) if self.session else ())


NONE = Faults()


def faults_for(level: int, rng: Random, *, session: bool = False) -> Faults:
    """None up to level 3; then errors that pass, from 6 on rate limits, from 7 sessions, from 8 lost confirmations."""
    uncertain = rng.sample(range(3), 2) if level >= 8 else [-1, -1]
    limited = level >= 6 and rng.random() < 0.7
    return Faults(
        broken=tuple(sorted(rng.sample(range(FIRST_CALLS), between(level, -2, 5)))) if level >= 4 else (),
        lost=tuple(uncertain[:1]) if level >= 8 else (),
        dropped=tuple(uncertain[1:]) if level >= 8 else (),
        burst=between(level, 12, 4) if limited else 0,
        window_s=20 if limited else 0,
        session=between(level, 16, 6) if session and level >= 7 else 0,
    )


class Turnstile:
    """Lets calls through, or not: the clock, the rate limit, the session."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._clock_s = 0
        self._let_through: list[int] = []
        self._left = 0
        self._count = 0
        self._changes = 0

    def admit(self) -> None:
        """Begin a call; a ToolError refuses it."""
        faults = self._faults
        self._clock_s += 1
        if faults.session and not self._left:
            raise ToolError(401, "the session has expired: login first")
        recent = self._let_through[-faults.burst] + faults.window_s if self._full() else 0
        if recent > self._clock_s:
            raise ToolError(429, "too many calls", retry_after_s=recent - self._clock_s)
        self._let_through.append(self._clock_s)
        self._left = max(0, self._left - 1)
        self._count += 1
        if self._count - 1 in faults.broken:
            raise ToolError(503, "temporarily unavailable, nothing was done: call again")

    def confirm(self) -> bool:
        """True, or a ToolError, if a change is confirmed, lost or dropped; False asks to carry it out first."""
        self._changes += 1
        number = self._changes - 1
        if number in self._faults.dropped:
            raise ToolError(504, UNCERTAIN)
        return number not in self._faults.lost

    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self._clock_s += seconds

    def login(self) -> None:
        """Begin a session."""
        self._clock_s += 1
        self._left = self._faults.session

    def _full(self) -> bool:
        return 0 < self._faults.burst <= len(self._let_through)


UNCERTAIN = "no answer in time: it may have been carried out, or not. Look before you call again"
MOST_SECONDS = 60
WAIT = PolicyTool(
    "wait",
    "let seconds pass",
    fields(seconds=whole("how long", 1, MOST_SECONDS)),
    lambda world, arguments: {"waited_s": arguments["seconds"]},
)
LOGIN = PolicyTool("login", "begin a new session", fields(), lambda world, arguments: {"session": "open"})


@dataclass(frozen=True, slots=True)
class ToolProblem:
    """One task. Its goal is the world that the script leaves where nothing fails, and the answer if there is one."""

    request: str
    world: ToolWorld
    tools: tuple[PolicyTool, ...]
    """Tools that serve the task."""
    script: tuple[FunctionCall, ...]
    """A known way, call by call."""
    answer: str | None = None
    """None where the world is all that counts."""
    decoys: tuple[PolicyTool, ...] = ()
    check: Callable[[FunctionCall], FunctionCall] | None = None
    """The call that shows whether a change was carried out that was not confirmed."""
    faults: Faults = NONE


Generator = Callable[[int, Random], ToolProblem]
"""(level, randomness) → problem; equal arguments give equal problems in every process."""
