"""Grading from outside: every call in a process of its own, which gets one input and never the expected value.

The output is untrusted text between two nonces. It is compared with the text of the expected value, and never turned
into a value: it is read once, from its first byte to its last.
"""

import inspect
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from loomrl.envs.code import driver
from loomrl.envs.code.admission import Test
from loomrl.envs.code.driver import MAX_SHOWN, write_value
from loomrl.envs.code.problem import Arguments, CodeProblem
from loomrl.envs.code.value import says
from loomrl.gym.sandbox import Ending, Execution, Limits, SandboxSession

LIMITS = Limits(wall_s=10.0, cpu_s=1, memory_mb=256, processes=16, output_bytes=1 << 20, scratch_mb=16)
"""Limits of one call. An endless loop reaches the processor limit; the wall limit is wide, for busy machines."""
TOTAL_S = 30.0
"""Time limit for all calls of a step together; beyond it no further calls are made."""
TOGETHER = 12
"""Calls of one process, where there are many."""
PROGRAM = "import driver\ndriver.serve()"
MAX_ERROR = 120
MAX_DIGITS = 10
"""Letters of an error in a message, and of a number of lines."""
_ENDED = {
    Ending.TIMEOUT: "it took too long",
    Ending.OVERFLOW: "it wrote too much",
    Ending.SIGNALLED: "its process was killed",
    Ending.EXITED: "its process ended before it returned",
}


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of one call: the value in the driver's format and for people, or an error.

    `lines` if they were counted.
    """

    returned: bytes = b""
    shown: str = ""
    error: str = ""
    lines: int | None = None


def preload() -> str:
    """The preload of a warm interpreter: the driver as a module, so that each call finds it compiled."""
    return (
        "import sys, types\n"
        "module = sys.modules['driver'] = types.ModuleType('driver')\n"
        f"exec({inspect.getsource(driver)!r}, module.__dict__)\n"
    )


class Grader:
    """Calls the function of one problem in the sandbox, as often as asked."""

    def __init__(self, session: SandboxSession, problem: CodeProblem) -> None:
        self._session = session
        self._problem = problem
        self._spent_s = 0.0

    async def call(self, source: str, *calls: Arguments, budget: int = 0) -> CallResult:
        """The values of this source's function, one after the other; lines of one call, if budgeted."""
        nonce = secrets.token_hex(16)
        request = {
            "nonce": nonce,
            "source": source,
            "name": self._problem.name,
            "calls": repr(calls),
            "budget": budget,
        }
        execution = await self._session.run(PROGRAM, stdin=json.dumps(request).encode())
        self._spent_s += execution.wall_s
        return read_reply(execution, nonce)

    async def attempt(self, source: str, *calls: Arguments, budget: int = 0) -> CallResult:
        """Like `call`, for a submission: all its calls share one deadline."""
        if self._spent_s > TOTAL_S:
            return CallResult(error=_ENDED[Ending.TIMEOUT])
        return await self.call(source, *calls, budget=budget)

    async def failure(self, source: str, test: Test) -> CallResult | None:
        """The reply if the test fails; None if it passes."""
        reply = await self.attempt(source, test.arguments)
        return None if self.agrees(reply, write_value(test.expected).encode()) else reply

    async def first_failed(self, source: str, tests: Sequence[Test]) -> Test | None:
        """The first failing test, if any. Some share a process; a failure there is confirmed alone."""
        for first in range(0, len(tests), TOGETHER):
            some = tests[first : first + TOGETHER]
            reply = await self.attempt(source, *(test.arguments for test in some))
            if not self.agrees(reply, "\n".join(write_value(test.expected) for test in some).encode()):
                for test in some:
                    if await self.failure(source, test) is not None:
                        return test
        return None

    def agrees(self, reply: CallResult, wanted: bytes) -> bool:
        """True if a value was returned and has the expected text."""
        return not reply.error and says(reply.returned, wanted, tolerance=self._problem.tolerance)


def read_reply(execution: Execution, nonce: str) -> CallResult:
    """The only result in a process's output; anything more or different is no result."""
    fence = nonce.encode()
    parts = execution.output.split(fence)
    if execution.ending is not Ending.EXITED or execution.status or len(parts) != 3 or parts[0] or parts[2]:
        return CallResult(error=_ENDED[execution.ending])
    head, _, rest = parts[1].partition(b"\n")
    word, _, detail = head.partition(b" ")
    if word == b"value":
        shown, _, returned = rest.partition(b"\n")
        lines = int(detail) if detail.isdigit() and len(detail) < MAX_DIGITS else None
        return CallResult(returned, _cut(shown, MAX_SHOWN + len("...")), lines=lines)
    return CallResult(error=_cut(detail, MAX_ERROR) or "it raised")


def _cut(text: bytes, most: int) -> str:
    """Untrusted text for a message."""
    return ascii(text[:most].decode("ascii", "replace"))[1:-1]
