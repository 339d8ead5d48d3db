"""`Harness`: attempts are played by an agent, a program that another wrote, whose model is the policy.

An attempt is a process with a session of its own. There are no turns to be played by hand: the agent decides when to
ask. Every error of an attempt becomes data.
"""

import ast
import asyncio
import importlib.util
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from loomrl.config.basic import Seconds
from loomrl.errors import ConfigError, EpisodeError, PolicyError, ScorerError, failure_from
from loomrl.gym.adapters.family import declare
from loomrl.gym.adapters.harness.nursery import (
    AgentEnding,
    Ended,
    Launch,
    Lost,
    Nursery,
    open_nursery,
    plain_environment,
)
from loomrl.gym.adapters.harness.session import CONTEXT, Access, AgentTranscript, Budget, PolicySessions, sessions_of
from loomrl.gym.adapters.harness.task import AgentRow, AgentTasks, Done, check, score
from loomrl.gym.base import CORRECT, BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.episode import Attempt, Clock, EpisodeLimits, make_trajectory
from loomrl.named import named
from loomrl.schema import Config
from loomrl.types import SEAT, End, Failure, Message, Observation, Reward, Task, Trajectory

AGENT = "agent"
"""The boundary of failures that are the agent's own."""
Worth = tuple[Reward, float | None]
"""A reward, and the second scorer's success if there is one."""
NOTHING: Worth = (Reward(), None)
DEFAULT_LIMITS = EpisodeLimits()
MOST_OUTPUT = 2000
"""Characters of an agent's output that its trajectory keeps."""
LAZY = {
    "openai": ("openai.resources.chat.completions", "openai.resources.responses"),
    "anthropic": ("anthropic.resources.messages",),
}
"""Modules that a client imports only at its first call: better once in the nursery than in every agent."""
LONGEST_VARIABLE = 100_000
"""Bytes of an environment variable; Linux allows 128 KiB. A longer task is only in its file."""
TASK_FILE = "task.json"


class Agent(Config):
    """The way to start an agent: a `command`, or with `python` a script or a function."""

    command: tuple[str, ...] = ()
    """A program and its arguments. A new program for every attempt: Python takes a second for it, a fork none."""
    python: str = ""
    """A script (`path/agent.py`, or `package.module` for a module's file), or a function of the task
    (`package.module:function`), whose result is the answer.
    """
    arguments: tuple[str, ...] = ()
    """Arguments of a script."""
    interpreter: str = ""
    """The Python for it; empty is ours."""
    preload: tuple[str, ...] | None = None
    """Modules imported once for all attempts. None: those that the agent's file imports at its top."""
    preload_s: Seconds = 60.0
    """Time for these imports."""
    path: tuple[str, ...] = ()
    """Folders of further modules."""
    env: dict[str, str] = Field({})
    """Further environment variables. Nothing else of this process's environment is passed on but PATH and locale."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.command) == bool(self.python):
            raise ValueError(
                "an agent is a command or python, one of the two: {python: agent.py}, {command: [./agent]}"
            )
        if self.command and {"arguments", "interpreter", "preload", "preload_s", "path"} & self.model_fields_set:
            raise ValueError(
                "arguments, interpreter, preload, preload_s and path are for agents with python: leave them out"
            )
        return self

    @property
    def file(self) -> Path:
        """The Python file that it is in; a ConfigError if there is none."""
        return _file(self.python, self.interpreter)

    def check(self) -> None:
        """A ConfigError if it cannot be started here."""
        if self.python:
            _ = self.file
        elif shutil.which(self.command[0], path=self.env.get("PATH", os.environ.get("PATH"))) is None:
            raise ConfigError(f"agent.command[0]={self.command[0]!r}: there is no such program. Give its whole path.")

    def nursery(self) -> Nursery:
        """The interpreter that its processes are forked from."""
        if self.command:
            return open_nursery()
        modules = self.preload if self.preload is not None else imports_of(self.file)
        lazy = [each for name in modules for each in LAZY.get(name.partition(".")[0], ())]
        return open_nursery(self.interpreter, [*modules, *lazy], self._path, env=self.env, start_s=self.preload_s)

    @property
    def _path(self) -> tuple[str, ...]:
        ours = () if self.interpreter else tuple(entry for entry in sys.path if entry)
        return (*(str(Path(folder).absolute()) for folder in self.path), *ours)

    def launch(self, task: Mapping[str, Any], access: Access, folder: Path, **limits: Any) -> Launch:
        """The process of one attempt, in its folder."""
        text = json.dumps(task, ensure_ascii=False)
        (folder / TASK_FILE).write_text(text)
        env = {
            **plain_environment(),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "LOOM_TASK_FILE": str(folder / TASK_FILE),
            "OPENAI_BASE_URL": access.openai_base_url,
            "OPENAI_API_KEY": access.api_key,
            "ANTHROPIC_BASE_URL": access.anthropic_base_url,
            "ANTHROPIC_API_KEY": access.api_key,
            **self.env,
        }
        if len(text.encode()) <= LONGEST_VARIABLE:
            env["LOOM_TASK"] = text
        if self.command:
            return Launch(argv=self.command, env=env, cwd=str(folder), **limits)
        is_function = ":" in self.python
        return Launch(
            script="" if is_function else str(self.file),
            arguments=self.arguments,
            function=self.python if is_function else "",
            path=self._path if is_function else (str(self.file.parent), *self._path),
            task=task if is_function else None,
            env=env,
            cwd=str(folder),
            **limits,
        )


@lru_cache
def _file(python: str, interpreter: str) -> Path:
    module, _, function = python.partition(":")
    if not function and (os.sep in module or module.endswith(".py")):
        file = Path(module).absolute()
        if not file.is_file():
            raise ConfigError(f"agent.python={python!r}: there is no file {file}. Give its path, or package.module.")
        return file
    if function and interpreter:
        raise ConfigError(f"agent.python={python!r}: functions run in our own Python. Leave interpreter out.")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"agent.python={python!r}: {error}. Give a script's path, or package.module.") from error
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ConfigError(f"agent.python={python!r}: there is no such module. Give a script's path, or package.module.")
    return Path(spec.origin)


@lru_cache
def imports_of(file: Path) -> tuple[str, ...]:
    """The modules that a Python file imports at its top, so that they can be imported ahead of it."""
    try:
        tree = ast.parse(file.read_text())
    except (SyntaxError, ValueError):
        return ()  # its own complaint will say so
    found: dict[str, None] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found[node.module] = None
    return tuple(found)


NO_SANDBOX = (
    "sandbox=true: an agent asks the model over the network, and imports libraries of its own. Programs in the sandbox "
    "have neither. Run the whole of LoomRL in a container, or leave sandbox out."
)


class HarnessSettings(EnvironmentSettings):
    """An agent, its tasks, and the limits of an attempt."""

    agent: Agent | None = None
    """The agent; required."""
    tasks: dict[str, AgentTasks] = Field({})
    """Family → tasks. At least one is needed."""
    budget: Budget = Budget()
    output_bytes: int = Field(1 << 20, ge=1)
    """Limit of standard output; an agent that writes more has failed."""
    processes: int = Field(64, ge=1)
    """Limit of processes at one time; an agent that starts more has failed."""
    memory_mb: int = Field(4096, ge=1)
    """Memory limit of each process."""
    file_mb: int = Field(256, ge=1)
    """Size limit of each file."""
    sandbox: bool = False
    """Not possible: the error says why."""


class Harness(BaseEnvironment):
    """Tasks for an agent that is played as it is."""

    name = "Harness"
    version = "1.1.0"
    settings_class: ClassVar[type[EnvironmentSettings]] = HarnessSettings
    settings: HarnessSettings
    reward_range = (0.0, 1.0)
    reward_parts = ("correctness",)
    sources = ("loomrl.gym.adapters.family", "loomrl.gym.adapters.harness", "loomrl.gym.answer")

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        if self.settings.sandbox:
            raise ConfigError(f"Harness: {NO_SANDBOX}")
        if self.settings.agent is None:
            raise ConfigError("Harness: no agent. Set agent, such as {python: agent.py} or {command: [./agent]}.")
        declare(self, self.settings.tasks, needed="tasks, such as {shop: {generate: 'package.module:function'}}")
        self.settings.agent.check()
        for tasks in self.settings.tasks.values():
            tasks.refuse_missing()

    @property
    def agent(self) -> Agent:
        """The agent."""
        assert self.settings.agent is not None, "the constructor refuses none"
        return self.settings.agent

    def tasks(self, task: Task) -> AgentTasks:
        """The family of a task."""
        return self.settings.tasks[task.family]

    def levels(self, family: str) -> Sequence[int]:
        """Those of the family's rows."""
        return self.settings.tasks[family].levels

    def count(self, family: str, level: int, *, held_out: bool) -> int | None:
        """The number of listed rows; None if a function makes them."""
        tasks = self.settings.tasks[family]
        return None if tasks.generate else len(tasks.rows(level, held_out=held_out))

    def row(self, task: Task) -> AgentRow:
        """The content of a task."""
        return self.tasks(task).row(task)

    def reply(self, task: Task, conversation: tuple[Message, ...]) -> str:
        """The oracle's next text in an agent's conversation, if an oracle is configured."""
        return str(self.tasks(task).ask_oracle(self.row(task).task, conversation))

    def guess(self, task: Task, rng: random.Random) -> str | None:
        """A text of a policy without skill, if there is a function for it."""
        guess = self.tasks(task).guess
        return str(named(guess, what="guess")(self.row(task).task, rng)) if guess else None

    async def player(
        self, policy: object, attempt: Attempt, *, limits: EpisodeLimits = DEFAULT_LIMITS, clock: Clock = time.time
    ) -> Trajectory:
        """Play one attempt. Failures are in the trajectory; only cancellation is raised."""
        sessions = sessions_of(policy)
        started_at = clock()
        folder = Path(tempfile.mkdtemp(prefix="loomrl-agent-"))
        try:
            spoken, ended, outcome, (reward, correct) = await _play(self, sessions, attempt, folder, limits)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        turns = spoken.turns
        if isinstance(outcome, End):
            turns = (*turns[:-1], replace(turns[-1], reward=reward))
        checked = {} if correct is None else {CORRECT: correct}
        attempt = replace(attempt, extra={**attempt.extra, **_summary(ended, spoken), **checked})
        return make_trajectory(attempt, turns, outcome, started_at, clock(), threads=spoken.threads)

    async def reset(self, task: Task | None = None) -> Observation:
        """Always an EpisodeError."""
        raise EpisodeError(
            "an agent plays Harness, not a caller of reset() and step(): train it, evaluate it, or run its policy by "
            "`loomrl evaluate`."
        )

    async def step(self, action: str) -> Step:
        """Always an EpisodeError."""
        raise EpisodeError("an agent plays Harness: there are no steps.")


async def _play(
    harness: Harness, sessions: PolicySessions, attempt: Attempt, folder: Path, limits: EpisodeLimits
) -> tuple[AgentTranscript, Ended | None, End | Failure, Worth]:
    """Everything that the agent and the policy said, the agent's end, the outcome, and its worth."""
    try:
        row = harness.row(attempt.task)
        for name, text in row.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        nursery = await asyncio.to_thread(harness.agent.nursery)
    except Exception as error:  # noqa: BLE001 - the boundary: task sources are a stranger's
        return AgentTranscript(), None, failure_from(error, boundary=EpisodeError.boundary), NOTHING
    try:
        access = await sessions.open(attempt, harness.settings.budget)
    except Exception as error:  # noqa: BLE001 - the boundary
        return AgentTranscript(), None, failure_from(error, boundary=PolicyError.boundary), NOTHING
    ended: Ended | None = None
    failure: Failure | None = None
    settings = harness.settings
    try:
        launch = harness.agent.launch(
            row.task,
            access,
            folder,
            seconds=min(settings.budget.seconds, limits.episode_timeout_s),
            output_bytes=settings.output_bytes,
            processes=settings.processes,
            memory_mb=settings.memory_mb,
            file_mb=settings.file_mb,
        )
        seat = SEAT.get()
        ended = await (nursery.run(launch) if seat is None else nursery.run(launch, seat.seconds_held))
    except Lost as error:
        failure = Failure(AGENT, "Lost", str(error))
    except Exception as error:  # noqa: BLE001 - the boundary
        failure = failure_from(error, boundary=EpisodeError.boundary)
    finally:
        spoken = await _finish(sessions, access)
    if ended is None:
        assert failure is not None, "without an end there is a failure"
        return spoken, None, failure, NOTHING
    tasks = harness.tasks(attempt.task)
    truncated = _overrun(spoken, ended)
    failure = spoken.failure or _failure(ended, spoken, truncated=bool(truncated), scores_status=tasks.scores_status)
    if failure is not None:
        return spoken, ended, failure, NOTHING
    done = Done(
        row=row,
        status=ended.status,
        output=ended.output,
        errors=ended.errors,
        folder=folder,
        truncated=truncated,
    )
    try:
        reward = await score(tasks, done, timeout_s=limits.turn_timeout_s)
        correct = await check(tasks, done, timeout_s=limits.turn_timeout_s)
    except ScorerError as error:
        return spoken, ended, failure_from(error, boundary=ScorerError.boundary), NOTHING
    return spoken, ended, End.TRUNCATED if truncated else End.TERMINATED, (reward, correct)


async def _finish(sessions: PolicySessions, access: Access) -> AgentTranscript:
    try:
        return await sessions.finish(access)
    except Exception as error:  # noqa: BLE001 - the boundary
        return AgentTranscript(failure=failure_from(error, boundary=PolicyError.boundary))


def _overrun(spoken: AgentTranscript, ended: Ended) -> str:
    """The limit that ended the attempt. An agent may get by with a full context, by beginning another conversation."""
    if ended.ended is AgentEnding.DEADLINE:
        return "seconds"
    gets_by = spoken.overrun == CONTEXT and ended.ended is AgentEnding.EXITED and ended.status == 0
    return "" if gets_by else spoken.overrun


def _failure(ended: Ended, spoken: AgentTranscript, *, truncated: bool, scores_status: bool) -> Failure | None:
    """The agent's failure, if it has one. It is never a reward of 0: nothing says that the policy did badly."""
    said = f" It said: {ended.errors.strip()[-1500:]}" if ended.errors.strip() else ""
    if ended.ended is AgentEnding.OVERFLOW:
        return Failure(AGENT, "Overflow", f"the agent wrote more than output_bytes to standard output.{said}")
    if ended.ended is AgentEnding.CROWD:
        return Failure(AGENT, "Crowd", f"the agent started more processes than `processes` allows.{said}")
    if not spoken.turns and spoken.refused:
        count = "the agent's only call was" if spoken.refused == 1 else f"all {spoken.refused} calls of the agent were"
        return Failure(AGENT, "Refused", f"{count} refused, the last with {spoken.refusal}{said}")
    if not truncated and ended.status < 0:
        return Failure(AGENT, "Signal", f"the agent was ended by signal {-ended.status}.{said}")
    if not truncated and ended.status and not scores_status:
        return Failure(AGENT, "Exit", f"the agent ended with status {ended.status}.{said}")
    if not spoken.turns:
        # An agent that never asked says nothing about the policy, so this cannot be a reward of 0.
        return Failure(
            AGENT,
            "Silent",
            "the agent got no answer of the model. Does it use OPENAI_BASE_URL or ANTHROPIC_BASE_URL? agent.env can "
            f"set what it reads instead.{said}",
        )
    return None


def _summary(ended: Ended | None, spoken: AgentTranscript) -> dict[str, object]:
    """The agent's end, as the trajectory keeps it."""
    if ended is None:
        return {}
    agent = {
        "ended": str(ended.ended),
        "status": ended.status,
        "output": ended.output[-MOST_OUTPUT:],
        "seconds": round(ended.wall_s, 3),
        "cpu_s": round(ended.cpu_s, 3),
    }
    return {"agent": agent | ({"overrun": spoken.overrun} if spoken.overrun else {})}
