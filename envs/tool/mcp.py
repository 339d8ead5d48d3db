"""`McpTools`: a data set of prompts, a reward function, and the tools of an MCP server in between.

Every attempt has a session with the server of its own: a process that is started for it, or a session over HTTP. What
the policy does wrong with a tool it is told; a server that does not start, dies or hangs fails the attempt.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from loomrl.config.basic import PositiveInt, Seconds
from loomrl.envs.tool.call import MOST, FunctionCall, MalformedCall, read_call, split_calls
from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.adapters.prompts import Prompts, PromptsSettings
from loomrl.gym.base import EnvironmentSettings, Step
from loomrl.types import Message, Observation, Reward, Task

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as Offered

T = TypeVar("T")
FORMAT = 'Call a tool: <tool_call>{"name": "...", "arguments": {...}}</tool_call>'
ENDS = "A reply without a call ends the task."
INHERITED = ("HOME", "LANG", "PATH", "TMPDIR", "VIRTUAL_ENV")
"""Variables of ours that a server gets; no others, since they may hold secrets."""


class McpToolsSettings(PromptsSettings):
    """Prompts and a reward function, and a server: `command` or `url`."""

    command: tuple[str, ...] = ()
    """Starts a server that speaks over its input and output, once for every attempt."""
    variables: dict[str, str] = Field({})
    """Environment variables of the command."""
    url: str = ""
    """Or the address of one that runs, such as http://127.0.0.1:8000/mcp, which every attempt opens a session with."""
    tools: tuple[str, ...] = ()
    """Names of the tools that are offered; empty means all."""
    call_timeout_s: Seconds = 30.0
    """Time limit of the server's start, and of a call; beyond it the attempt has failed."""
    longest: PositiveInt = 4000
    """Characters of a result that the policy is shown."""
    max_steps: int = Field(16, ge=1)
    """The episode is truncated after this many actions, with the least reward."""

    @model_validator(mode="after")
    def _one_server(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("set command, which starts an MCP server, or url, where one runs, and not both")
        if self.variables and not self.command:
            raise ValueError("variables have no effect with url: leave them out")
        return self


class McpTools(Prompts):
    """Asks with a row's prompt and offers tools; the first reply without a call ends the task.

    The reward function gets two keywords more than TRL's: `messages`, the conversation, and `calls`, a list of
    `{name, arguments, result, error}`; each is in a list of one, as the others are.
    """

    name = "McpTools"
    version = "1.1.0"
    settings_class: ClassVar[type[EnvironmentSettings]] = McpToolsSettings
    settings: McpToolsSettings
    starts_process = True
    sources = (
        __name__,
        "loomrl.gym.adapters.prompts",
        "loomrl.envs.tool.call",
        "loomrl.gym.answer",
        "loomrl.threshold",
    )

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        _library()
        self._session: _McpSession | None = None
        self._messages: list[Message] = []
        self._calls: list[dict[str, Any]] = []
        self._actions = 0

    async def reset(self, task: Task | None = None) -> Observation:
        """Open a session; the tools are described before the prompt."""
        await self.close()
        prompt = await super().reset(task)
        session = _McpSession(self.settings)
        offered = await session.open()
        self._session = session
        self._calls = []
        self._actions = 0
        told = Message("system", "\n".join([*map(_describe, offered), "", FORMAT, ENDS]))
        first = prompt[0]
        if first.role == "system":
            observation = (Message("system", f"{first.content}\n\n{told.content}"), *prompt[1:])
        else:
            observation = (told, *prompt)
        self._messages = list(observation)
        return observation

    async def step(self, action: str) -> Step:
        """The results of the calls in an action, or the reward of one without."""
        if self._session is None:
            raise EpisodeError("McpTools: reset() comes before step().")
        self._messages.append(Message("assistant", action))
        self._actions += 1
        raw, _ = split_calls(action)
        if not raw:
            total = await self._score(action)
            return Step((), self._reward_for(total), True, False, {})
        if self._actions >= self.settings.max_steps:
            return Step((), self._reward_for(self.settings.reward_range[0]), False, True, {})
        if len(raw) > MOST:
            results = [f"Error: an action has at most {MOST} calls, and none of these was made."]
        else:
            results = [await self._result(self._session, each) for each in raw]
        observation = tuple(Message("tool", result) for result in results)
        self._messages += observation
        return Step(observation, Reward(), False, False, {})

    async def close(self) -> None:
        """End the session, and the server with it if it is ours."""
        session = self._session
        self._session = None
        if session is not None:
            await session.close()

    def _extra_columns(self) -> Mapping[str, Any]:
        said = [{"role": message.role, "content": message.content} for message in self._messages]
        return {"messages": said, "calls": self._calls}

    async def _result(self, session: "_McpSession", raw: str) -> str:
        """The answer to a call, for the policy."""
        try:
            call = read_call(raw)
        except MalformedCall as error:
            return f"Error: {error}."
        if call.name not in session.names:
            return f"Error: no tool is named {call.name!r}. Tools: {', '.join(session.names)}."
        text, is_wrong = await session.call(call)
        self._calls.append({**call._asdict(), "result": text, "error": is_wrong})
        shown = text if len(text) <= self.settings.longest else f"{text[: self.settings.longest]}…"
        return f"Error: {shown}" if is_wrong else shown


class _McpSession:
    """A session with a server, held by a task of its own: its library wants to be left where it was entered."""

    def __init__(self, settings: McpToolsSettings) -> None:
        self._settings = settings
        self._asked: asyncio.Queue[tuple[FunctionCall, asyncio.Future[tuple[str, bool]]] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._log = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed with the session
        """Standard error of the server; its last lines are part of the error if it fails."""
        self.names: tuple[str, ...] = ()

    async def open(self) -> "list[Offered]":
        """The tools that are offered; an EpisodeError without a server, a ConfigError if one is missing."""
        ready: asyncio.Future[list[Offered]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(ready))
        try:
            every = await self._answer(ready, "start")
        except BaseException:
            await self.close()
            raise
        wanted = self._settings.tools
        known = {tool.name: tool for tool in every}
        missing = sorted({*wanted} - known.keys())
        if missing:
            await self.close()
            raise ConfigError(f"McpTools: tools={missing} are none of the server's; known: {', '.join(known)}.")
        offered = [known[name] for name in wanted or known]
        self.names = tuple(tool.name for tool in offered)
        return offered

    async def call(self, call: FunctionCall) -> tuple[str, bool]:
        """The text of the result, and whether it is an error of the tool's."""
        answer: asyncio.Future[tuple[str, bool]] = asyncio.get_running_loop().create_future()
        await self._asked.put((call, answer))
        return await self._answer(answer, f"call of {call.name}")

    async def close(self) -> None:
        """End the session."""
        if self._task is None:
            return
        await self._asked.put(None)
        done, _ = await asyncio.wait({self._task}, timeout=self._settings.call_timeout_s)
        if not done:
            self._task.cancel()
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await self._task
        self._task = None
        self._log.close()

    async def _answer(self, answer: "asyncio.Future[T]", what: str) -> T:
        """The answer, or an EpisodeError if it does not come."""
        assert self._task is not None
        either: set[asyncio.Future[Any]] = {answer, self._task}
        await asyncio.wait(either, timeout=self._settings.call_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        where = self._settings.url or " ".join(self._settings.command)
        if answer.done():
            return answer.result()
        if not self._task.done():
            raise EpisodeError(f"MCP server {where}: {what} took longer than {self._settings.call_timeout_s:g} s.")
        error = None if self._task.cancelled() else self._task.exception()
        raise EpisodeError(f"MCP server {where}: {what}: {_cause(error)}{self._said()}.") from error

    def _said(self) -> str:
        self._log.seek(0)
        lines = self._log.read().split("\n")
        said = [line.strip() for line in lines if line.strip()][-3:]
        return f" (it said: {' / '.join(said)[:500]})" if said else ""

    async def _hold(self, ready: "asyncio.Future[list[Offered]]") -> None:
        # the library must be left by the task that entered it, so this task does both
        async with _client(self._settings, self._log) as client:
            ready.set_result(await _list_tools(client))
            while (asked := await self._asked.get()) is not None:
                call, answer = asked
                result = await client.call_tool(call.name, dict(call.arguments))
                if not answer.done():
                    answer.set_result((_text(result), bool(result.is_error)))


async def _list_tools(client: "Client") -> "list[Offered]":
    """All pages of the list of tools."""
    found: list[Offered] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found


def _client(settings: McpToolsSettings, log: IO[str]) -> "Client":
    library = _library()
    if settings.url:
        made: Client = library.Client(settings.url)
        return made
    ours = {name: os.environ[name] for name in INHERITED if name in os.environ}
    command, *arguments = settings.command
    parameters = library.StdioServerParameters(command=command, args=arguments, env=ours | settings.variables)
    started: Client = library.Client(library.stdio_client(parameters, errlog=log))
    return started


def _text(result: "CallToolResult") -> str:
    """The texts of a result; what is no text is named."""
    return "\n".join(getattr(part, "text", None) or f"[{part.type}]" for part in result.content)


def _describe(tool: "Offered") -> str:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def _cause(error: BaseException | None) -> str:
    """The innermost of errors in groups, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "it ended" if error is None else f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _library() -> Any:
    try:
        import mcp
    except ImportError as error:
        raise ConfigError(f"McpTools needs the MCP library ({error}). Install: pip install 'loomrl[mcp]'.") from error
    return mcp
