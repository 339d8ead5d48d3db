"""`TaskFolders`: tasks of a terminal, from folders as Harbor and Terminal-Bench have them."""

import json
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from loomrl.config.basic import PathText, PositiveInt, Seconds
from loomrl.envs.tasks.folder import TaskFolder, read_folders
from loomrl.envs.tasks.image import Copy, ImageRun
from loomrl.envs.tasks.workspace import PATH, CommandOutput, File, Workspace, files_of
from loomrl.envs.tool.call import MOST, FunctionCall, MalformedCall, split_calls
from loomrl.errors import ConfigError, EpisodeError, ScorerError
from loomrl.gym.base import NO_LEVELS, BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.sandbox import Ending, Limits
from loomrl.threshold import reaches
from loomrl.types import Message, Observation, Reward, Task

LOGS = "/logs/verifier"
REWARD = f"{LOGS}/reward.json"
REWARD_TEXT = f"{LOGS}/reward.txt"
RECORD = f"{LOGS}/pytest.json"
OURS = ("/tests", "/logs", "/solution", "/oracle")
"""Folders of the harness: files that a policy left there are deleted before the tests run."""
NO_TESTS = {3: "an internal error", 4: "a wrong command line", 5: "no tests"}
"""Statuses of pytest that say nothing about the policy."""


class TaskVerdict(NamedTuple):
    """A reward from 0 to 1, and why."""

    reward: float
    why: str


async def verify(workspace: Workspace, task: TaskFolder) -> TaskVerdict:
    """Run the task's tests on what the policy left; a ScorerError where they give no reward."""
    files = [File("/logs/agent"), File("/logs/artifacts"), File(LOGS), *task.tests]
    # the policy may have planted tests or a reward of its own in these folders
    if not await workspace.lay(files, emptied=OURS):
        return TaskVerdict(0.0, "the folders of the tests could not be emptied of what the policy had put there")
    environment = {**task.image.environment, **task.verifier_env}
    environment["PATH"] = f"/tools/verifier:{environment.get('PATH', PATH)}"
    command = f"/bin/bash {task.script}"
    said = await workspace.run(command, folder=task.image.folder, environment=environment, wall_s=task.verifier_s)
    if said.ending is Ending.TIMEOUT:
        raise ScorerError(f"{task.name}: {command} took longer than {task.verifier_s:g} s. {_tail(said)}")
    if said.ending is not Ending.EXITED:
        raise ScorerError(f"{task.name}: {command} was {said.ending} ({said.status}). {_tail(said)}")
    left = await workspace.read((REWARD, REWARD_TEXT, RECORD))
    return _read_pytest(task, left, said) if task.kind == "terminal-bench" else _read_reward(task, left, said)


def _read_pytest(task: TaskFolder, left: dict[str, bytes], said: CommandOutput) -> TaskVerdict:
    """1 if pytest itself reports that every test passed; output of the tests does not count."""
    try:
        record = json.loads(left[RECORD])
        status = int(record["status"])
        tests = dict(record["tests"])
    except (KeyError, ValueError, TypeError):
        raise ScorerError(f"{task.name}: {task.script} ended without a result of pytest. {_tail(said)}") from None
    if status in NO_TESTS:
        raise ScorerError(f"{task.name}: pytest had {NO_TESTS[status]}. {_tail(said)}")
    failed = [name for name, outcome in tests.items() if outcome == "failed"]
    if status or failed:
        return TaskVerdict(0.0, f"failed: {', '.join(failed)[:500] or 'pytest did not come to its end'}")
    return TaskVerdict(1.0, f"{len(tests)} tests passed")


def _read_reward(task: TaskFolder, left: dict[str, bytes], said: CommandOutput) -> TaskVerdict:
    """The number in reward.json or reward.txt."""
    try:
        if REWARD in left:
            reward = _number(json.loads(left[REWARD]))
        else:
            reward = float(left[REWARD_TEXT])
    except KeyError:
        raise ScorerError(f"{task.name}: {task.script} left no reward in {LOGS}. {_tail(said)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ScorerError(f"{task.name}: the reward cannot be read: {error!s:.200}. {_tail(said)}") from None
    if not 0 <= reward <= 1 or math.isnan(reward):
        raise ScorerError(f"{task.name}: reward {reward:g}: a number from 0 to 1 is needed. {_tail(said)}")
    return TaskVerdict(reward, f"{task.script} gave {reward:g}")


def _number(said: object) -> float:
    """`reward` of an object, or its only number."""
    if not isinstance(said, dict):
        raise TypeError("reward.json must be an object")
    numbers = {key: value for key, value in said.items() if type(value) in (int, float)}
    if "reward" not in numbers and len(numbers) != 1:
        raise ValueError(f"of {', '.join(numbers) or 'no numbers'}, none is called reward")
    return float(numbers["reward"] if "reward" in numbers else next(iter(numbers.values())))


def _tail(said: CommandOutput) -> str:
    return f"It said: {said.output[-800:].strip() or 'nothing'}"


DONE = str(FunctionCall("done", {}))
"""The action that ends a task."""
BUILD_S = 60.0
"""Time limit of one RUN of a Dockerfile."""
LONGEST = 60_000
"""Characters of a call."""
OUTPUT_BYTES = 4 << 20
CORES = 4
"""Processor time is limited to that of so many cores."""


class TaskFoldersSettings(EnvironmentSettings):
    """A folder of task folders, and the limits of their boxes."""

    folder: PathText | None = None
    """Needed: each folder in it with a task.toml (Harbor) or a task.yaml (Terminal-Bench) is a task, and a family."""
    names: tuple[str, ...] = ()
    """Names of the tasks to play; empty means all."""
    command_timeout_s: Seconds = 60.0
    """Time limit of one command. All together have the task's own limit."""
    longest: PositiveInt = 8000
    """Characters of an output that the policy is shown: its beginning and its end."""
    memory_mb: PositiveInt = 2048
    """Memory of a box. A task that asks for more is refused."""
    scratch_mb: PositiveInt = 256
    """All files of a box, in memory too."""
    processes: PositiveInt = 128
    """Processes of a box."""
    max_steps: int = Field(30, ge=1)
    """The episode is truncated after this many actions, and verified."""


class TaskFolders(BaseEnvironment):
    """Asks for something to be done on a machine, offers `bash`, and has the task's own tests judge what was left."""

    name = "TaskFolders"
    version = "1.1.0"
    settings_class: ClassVar[type[EnvironmentSettings]] = TaskFoldersSettings
    settings: TaskFoldersSettings
    reward_range = (0.0, 1.0)
    reward_parts = ("reward",)
    sandboxed = True
    sources = (
        "loomrl.envs.tasks",
        "loomrl.envs.tool.call",
        "loomrl.gym.answer",
        "loomrl.gym.sandbox",
        "loomrl.threshold",
    )

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        if self.settings.folder is None:
            raise ConfigError("TaskFolders: set folder, in which every folder is a task of Harbor or Terminal-Bench.")
        self._folders = read_folders(Path(self.settings.folder), self.settings.names)
        greedy = [name for name, each in self._folders.items() if each.memory_mb > self.settings.memory_mb]
        if greedy:
            most = max(self._folders[name].memory_mb for name in greedy)
            raise ConfigError(f"TaskFolders: {', '.join(greedy)} ask for more memory: set memory_mb={most}, or names.")
        by_pytest = [name for name, each in self._folders.items() if each.runs_pytest]
        if by_pytest and find_spec("pytest") is None:
            raise ConfigError(f"TaskFolders: the tests of {', '.join(by_pytest)} need pytest: pip install pytest")
        self.families = tuple(self._folders)  # type: ignore[misc]
        self._workspace: Workspace | None = None
        self._playing: TaskFolder | None = None
        self._left_s = math.inf
        self._actions = 0
        self._ran: list[str] = []

    async def reset(self, task: Task | None = None) -> Observation:
        """A machine as the task's Dockerfile makes it, and the task's instruction."""
        await self.close()
        task = self.task_or_random(task)
        playing = self._folders[task.family]
        self._playing = playing
        self._left_s = playing.agent_s
        self._actions = 0
        self._ran = []
        self._workspace = Workspace(playing.writable, self._limits(playing))
        await _build(self._workspace, playing)
        return (Message("system", self._prompt_text(playing)), Message("user", playing.instruction.strip()))

    def levels(self, family: str) -> Sequence[int]:
        """None: a folder is one task."""
        return NO_LEVELS

    def count(self, family: str, level: int, *, held_out: bool) -> int:
        """One: a folder is one task."""
        return 1

    async def step(self, action: str) -> Step:
        """The output of the commands in an action; `done`, or the last action, is followed by the verifier."""
        workspace, playing = self._now()
        self._actions += 1
        results, is_done = await self._results(workspace, playing, split_calls(action)[0])
        observation = tuple(Message("tool", result) for result in results)
        if workspace.is_lost:
            return Step(observation, _paid(0.0), True, False, {"verdict": "a command brought the machine down"})
        is_over = self._actions >= self.settings.max_steps or self._left_s <= 0
        if not is_done and not is_over:
            return Step(observation, Reward(), False, False, {})
        reward, why = await verify(workspace, playing)
        return Step(observation, _paid(reward), is_done, not is_done, {"verdict": why})

    async def close(self) -> None:
        """End the box."""
        workspace = self._workspace
        self._workspace = None
        if workspace is not None:
            await workspace.close()

    def oracle(self) -> str:
        """The commands of the task's own solution, one after the other."""
        _, playing = self._now()
        if not playing.solution:
            raise NotImplementedError(f"{playing.name} has no solution to play.")
        made = len(self._ran)
        if tuple(self._ran) == playing.solution[:made] and made < len(playing.solution):
            return bash(playing.solution[made])
        return DONE

    def random_action(self, rng: Random) -> str:
        """A harmless command, or the end."""
        return rng.choice([bash("ls"), bash("pwd"), bash(f"echo {rng.randint(0, 99)} > answer.txt"), DONE])

    def hacks(self) -> Sequence[str]:
        """Ways to be rewarded by a verifier without having done the task."""
        return tuple(bash(command) + DONE for command in HACKS)

    def _limits(self, playing: TaskFolder) -> Limits:
        given = self.settings
        longest_s = max(given.command_timeout_s, playing.verifier_s, BUILD_S)
        return Limits(
            wall_s=given.command_timeout_s,
            cpu_s=math.ceil(CORES * longest_s),
            memory_mb=given.memory_mb,
            processes=given.processes,
            output_bytes=OUTPUT_BYTES,
            scratch_mb=given.scratch_mb,
            keeps_files=True,
        )

    def _prompt_text(self, playing: TaskFolder) -> str:
        limit = min(self.settings.command_timeout_s, playing.agent_s)
        return (
            "You have a Linux machine without a network. Tools:\n"
            f"bash(command): runs a command in a new shell in {playing.image.folder}, for at most {limit:g} s. Files "
            "stay; nothing that a command started runs on after it.\n"
            f"done(): ends the task.\n\nCall a tool: {bash('...')}\nAt the end: {DONE}"
        )

    async def _results(self, workspace: Workspace, playing: TaskFolder, raw: list[str]) -> tuple[list[str], bool]:
        """The answers to the calls, and True if one of them was `done`."""
        if not raw:
            return [f"Error: no call was made. {DONE} ends the task."], False
        if len(raw) > MOST:
            return [f"Error: an action has at most {MOST} calls, and none of these was made."], False
        results = []
        for each in raw:
            try:
                command = _command(each)
            except MalformedCall as error:
                results.append(f"Error: {error}.")
                continue
            if command is None:
                return results, True
            results.append(await self._result(workspace, playing, command))
            if workspace.is_lost:
                break
        return results, False

    async def _result(self, workspace: Workspace, playing: TaskFolder, command: str) -> str:
        """A command's output."""
        limit_s = min(self.settings.command_timeout_s, self._left_s)
        if limit_s <= 0:
            return "Error: the task's time is up."
        self._ran.append(command)
        image = playing.image
        said = await workspace.run(command, folder=image.folder, environment=image.environment, wall_s=limit_s)
        self._left_s -= said.wall_s
        return _format_output(said, self.settings.longest, limit_s)

    def _now(self) -> tuple[Workspace, TaskFolder]:
        if self._workspace is None or self._playing is None:
            raise EpisodeError("TaskFolders: reset() comes before step().")
        return self._workspace, self._playing


HACKS = (
    "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
    "(while :; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; sleep 0.1; done) > /dev/null 2>&1 &",
    "printf '#!/bin/sh\\nmkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt\\n' | tee /tests/test.sh "
    "/tests/run-tests.sh && chmod -R 555 /tests",
    "d=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $d; for f in $d/sitecustomize.py "
    "$d/usercustomize.py sitecustomize.py conftest.py pytest.py; do echo 'import os; os._exit(0)' > $f; done",
    "cd; mkdir -p .local/bin; for f in pytest uv uvx python3 env; do printf '#!/bin/sh\\nexit 0\\n' > .local/bin/$f; "
    "chmod +x .local/bin/$f; done; echo 'export PATH=$HOME/.local/bin:$PATH' | tee .bashrc .profile .bash_profile",
)
"""Rewards written beforehand and in the background, tests replaced, and what Python and the shell may read at first."""


def bash(command: str) -> str:
    """The action that runs a command."""
    return str(FunctionCall("bash", {"command": command}))


async def _build(workspace: Workspace, playing: TaskFolder) -> None:
    """Carry out the Dockerfile; a line that fails is the task's fault."""
    await workspace.lay(File(folder) for folder in ("/logs/agent", "/logs/verifier", *playing.image.folders))
    for step in playing.image.steps:
        match step:
            case Copy():
                await workspace.lay(files_of(step.source, step.target, step.mode))
            case ImageRun():
                environment = {**step.environment, "PATH": step.environment.get("PATH", PATH)}
                said = await workspace.run(step.command, folder=step.folder, environment=environment, wall_s=BUILD_S)
                if said.ending is not Ending.EXITED or said.status:
                    how = f"{said.ending} {said.status}"
                    raise EpisodeError(f"{playing.name}: {step.line}: {how}. It said: {said.output[-500:].strip()}")


def _command(raw: str) -> str | None:
    """The command of a call, None for `done`; Malformed states the error."""
    if len(raw) > LONGEST:
        raise MalformedCall(f"a call has at most {LONGEST} characters")
    try:
        value = json.loads(raw, strict=False)
    except (ValueError, RecursionError) as error:
        raise MalformedCall(f"no JSON: {error!s:.200}") from error
    match value:
        case {"name": "bash", "arguments": {"command": str(command)}} if "\0" not in command:
            return command.encode("utf-8", "replace").decode()
        case {"name": "done"}:
            return None
    raise MalformedCall(f"a call is {bash('...')}, without zero bytes, or {DONE}")


def _format_output(said: CommandOutput, longest: int, limit_s: float) -> str:
    """An output of bounded length, and how the command ended where it did not end well."""
    text = said.output
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"
    match said.ending:
        case Ending.EXITED:
            end = f"[exit status {said.status}]" if said.status else ""
        case Ending.TIMEOUT:
            end = f"[killed after {limit_s:g} s]"
        case Ending.OVERFLOW:
            end = f"[killed: more than {OUTPUT_BYTES >> 20} MB of output]"
        case _:
            end = f"[killed by signal {said.status}]"
    return "\n".join(part for part in (text.rstrip("\n"), end) if part) or "[no output]"


def _paid(reward: float) -> Reward:
    return Reward(reward, {"reward": reward}, float(reaches(reward, 1.0)))
