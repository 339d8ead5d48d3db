"""Calls carried out in order, with counts of how well they were made."""

import json
from dataclasses import dataclass
from typing import Any

from loomrl.envs.tool.call import FunctionCall, MalformedCall, read_call
from loomrl.envs.tool.kit import Invalid, PolicyTool, check_arguments
from loomrl.envs.tool.problem import LOGIN, UNCERTAIN, WAIT, ToolProblem, Turnstile
from loomrl.envs.tool.world import ToolError, ToolWorld

MOST_SHOWN = 4500
"""Characters of a tool's answer."""


@dataclass(slots=True)
class Count:
    """Counts of a session's calls."""

    made: int = 0
    well_formed: int = 0
    """Calls of a known tool with arguments that fit its schema."""
    fitting: int = 0
    """Calls of a tool that serves the task."""
    heedless: int = 0
    """Calls repeated although they were answered and no other call has succeeded since."""


class ToolSession:
    """The tools of one problem, over a world of their own."""

    def __init__(self, problem: ToolProblem) -> None:
        self.world = problem.world.copy()
        self.count = Count()
        self._problem = problem
        self._turnstile = Turnstile(problem.faults)
        self._tools = {tool.name: tool for tool in all_tools(problem)}
        self._serving = {tool.name for tool in (*problem.tools, *problem.faults.tools)}
        self._answered: dict[str, int] = {}
        """Calls that had their answer, and how many had succeeded by then."""
        self._succeeded = 0
        self._done = 0
        """Calls of the script that are done."""
        self._next: FunctionCall | None = None
        """The call that the last answer requires."""
        self._look: FunctionCall | None = None
        """Shows whether a change was carried out; None where all is known."""

    def call(self, raw: str) -> str:
        """Carry out the call that these characters are, and answer as JSON."""
        self.count.made += 1
        self._next = None
        try:
            return json.dumps({"result": self._carry_out(read_call(raw))})[:MOST_SHOWN]
        except MalformedCall as error:
            return json.dumps({"error": {"status": 400, "message": str(error)}})
        except ToolError as error:
            return json.dumps(error.answer)

    def demonstrate(self) -> FunctionCall | None:
        """The next call of a policy that knows the script and follows the tools' answers; None at its end."""
        if self._next is not None:
            return self._next
        if self._look is not None:
            return self._look
        script = self._problem.script
        return script[self._done] if self._done < len(script) else None

    def _carry_out(self, call: FunctionCall) -> Any:
        tool = self._tools.get(call.name)
        self.count.fitting += call.name in self._serving
        if tool is None:
            raise ToolError(404, f"there is no tool {call.name[:40]!r}")
        try:
            arguments = check_arguments(call.arguments, tool.parameters)
        except Invalid as error:
            raise ToolError(422, str(error)) from error
        self.count.well_formed += 1
        call = FunctionCall(call.name, arguments)
        self.count.heedless += tool is not WAIT and self._answered.get(call.key) == self._succeeded
        try:
            result = self._admit(tool, call)
        except ToolError as error:
            self._follow_answer(call, error)
            raise
        self._note(call)
        return result

    def _admit(self, tool: PolicyTool, call: FunctionCall) -> Any:
        if tool is WAIT:
            self._turnstile.wait(call.arguments["seconds"])
        elif tool is LOGIN:
            self._turnstile.login()
        else:
            self._turnstile.admit()
            if tool.changes and not self._turnstile.confirm():
                tool.run(self.world, call.arguments)
                self._note(call)
                raise ToolError(504, UNCERTAIN)
        return tool.run(self.world, call.arguments)

    def _note(self, call: FunctionCall) -> None:
        """Record that a call has succeeded."""
        self._succeeded += 1
        self._answered[call.key] = self._succeeded
        self._look = None if call == self._look else self._look
        script = self._problem.script
        self._done += self._done < len(script) and call == script[self._done]

    def _follow_answer(self, call: FunctionCall, error: ToolError) -> None:
        """Record the call that the answer requires. A 503 requires the same call again."""
        # an unconfirmed change may have happened: repeating it blindly would pay or book twice
        if error.status == 504:
            self._look = self._problem.check and self._problem.check(call)
            self._succeeded += 1
        if error.status != 503:
            self._answered[call.key] = self._succeeded
        if error.status == 429:
            self._next = FunctionCall(WAIT.name, {"seconds": error.answer["error"]["retry_after_s"]})
        elif error.status == 401:
            self._next = FunctionCall(LOGIN.name, {})


def all_tools(problem: ToolProblem) -> tuple[PolicyTool, ...]:
    """Everything that can be called."""
    return (*problem.tools, *problem.decoys, *problem.faults.tools)


def goal_of(problem: ToolProblem) -> ToolWorld:
    """The world at the end of the script, where nothing fails."""
    world = problem.world.copy()
    tools = {tool.name: tool for tool in problem.tools}
    for call in problem.script:
        tools[call.name].run(world, call.arguments)
    return world


def calls_needed(problem: ToolProblem) -> int:
    """The calls that the script takes where something fails."""
    session = ToolSession(problem)
    while (following := session.demonstrate()) is not None:
        session.call(json.dumps(following._asdict()))
    return session.count.made
