"""Generated problems: a request, the tools, the world, and a known solution."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from loomrl.envs.tool.call import Call
from loomrl.envs.tool.fault import NONE, Faults
from loomrl.envs.tool.kit import Tool
from loomrl.envs.tool.world import World


@dataclass(frozen=True, slots=True)
class Problem:
    """One task. Its goal is the world that the script leaves where nothing fails, and the answer if there is one."""

    request: str
    world: World
    tools: tuple[Tool, ...]
    """Those that serve the task."""
    script: tuple[Call, ...]
    """A known way, call by call."""
    answer: str | None = None
    """None where the world is all that counts."""
    decoys: tuple[Tool, ...] = ()
    check: Callable[[Call], Call] | None = None
    """The call that shows whether a change was carried out that was not confirmed."""
    faults: Faults = NONE


Generator = Callable[[int, Random], Problem]
"""(level, randomness) → problem; equal arguments give equal problems in every process."""
