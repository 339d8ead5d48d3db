"""Tasksets of verifiers whose tasks are one question and one answer.

Tasks that need more are refused: a runtime, containers, tool servers, interceptors, skills, or several agents need
verifiers' own harnesses.
"""

import functools
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import verifiers.v1 as vf
from verifiers.v1.errors import TaskError
from verifiers.v1.graph import MessageNode
from verifiers.v1.state import state_cls
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, SystemMessage, UserMessage
from verifiers.v1.utils.decorators import discover_decorated, invoke
from verifiers.v1.utils.loaders import environment_class, load_taskset, taskset_config_type

from loomrl.errors import ConfigError, EpisodeError, ScorerError
from loomrl.gym.adapters.verifiers import Module
from loomrl.gym.base import LEVELS
from loomrl.gym.guard import is_storable
from loomrl.types import Message, Task


class TasksetScore(NamedTuple):
    """A taskset's score of an answer."""

    value: float
    parts: Mapping[str, float]


def open(module: Module, task: Task) -> tuple[Mapping[str, Any], "TasksetQuestion"]:
    """The task's data, and a conversation about it."""
    tasks, values = _load(module.module, json.dumps(module.args), module.rows, module.level_field)
    chosen = tasks[row_of(task, values)]
    return chosen.data.model_dump(), TasksetQuestion(chosen, module.module)


@functools.lru_cache(maxsize=16)
def _load(name: str, args: str, rows: int, level_field: str) -> tuple[tuple[vf.Task, ...], tuple[Any, ...]]:
    """The first tasks and their difficulties; loaded once per process."""
    config = taskset_config_type(name).model_validate({**json.loads(args), "id": name})
    taskset = load_taskset(config)
    tasks = tuple(itertools.islice(taskset, rows))
    if not tasks:
        raise ConfigError(f"modules {name}: the taskset has no tasks.")
    reason = _refusal(name, taskset, tasks[0])
    if reason:
        raise ConfigError(f"modules {name}: {reason}. Run it in verifiers' own harness; here a task is a conversation.")
    if not level_field:
        return tasks, (0,) * len(tasks)
    return tasks, tuple(field_of(task.data.model_dump(), level_field, origin=name) for task in tasks)


def _refusal(name: str, taskset: vf.Taskset, task: vf.Task) -> str:
    """The reason these tasks are more than a question and an answer; empty if they are not."""
    if not issubclass(vf.SingleAgentEnv, environment_class(name)):
        return "it brings an environment of its own, with several agents or turns"
    if task.NEEDS_CONTAINER or task.data.image:
        return "its tasks need a container"
    if taskset.toolsets(taskset.config) or task.toolsets(task.config):
        return "its tasks need tool servers"
    if discover_decorated(task, "intercept"):
        return "its tasks intercept what is said"
    if task.data.prompt is None:
        return "its tasks have no prompt"
    if task.data.model_dump().get("skills"):
        return "its tasks bring skills"
    hooks = [*task.hooks("reward"), *task.hooks("metric"), *(judge.score for judge in task.plugged_judges())]
    lifecycle = [hook for name in _PLAIN if (hook := getattr(task, name)).__func__ is not _PLAIN[name]]
    needy = [hook.__name__ for hook in (*hooks, *lifecycle) if _needs_runtime(hook)]
    return f"{', '.join(needy)} of its tasks need a runtime" if needy else ""


_PLAIN = {name: vars(vf.Task)[name] for name in ("setup", "finalize", "stage_verifier")}
"""The default hooks before and after an answer."""


def _needs_runtime(hook: Callable[..., Any]) -> bool:
    parameter = inspect.signature(hook).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


class TasksetQuestion:
    """One task: its prompt, and the score of one answer."""

    def __init__(self, task: vf.Task, name: str) -> None:
        self._task = task
        self._name = name
        self._trace: Trace[Any, Any, Any] = Trace(
            task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            state=state_cls(type(task))(),
            agent=AgentInfo(config=vf.AgentConfig()),
        )

    async def begin(self) -> tuple[Message, ...]:
        """The task's prompt."""
        await self._call(self._task.setup)
        data = self._task.data
        system = [] if data.system_prompt is None else [SystemMessage(content=data.system_prompt)]
        prompt = [UserMessage(content=data.prompt)] if isinstance(data.prompt, str) else list(data.prompt or ())
        for message in (*system, *prompt):
            self._add(message, sampled=False)
        return tuple(Message(item.role, text_of(item.content, origin=self._name)) for item in (*system, *prompt))

    async def answer(self, text: str) -> TasksetScore:
        """The task's rewards for this answer."""
        self._add(AssistantMessage(content=text), sampled=True)
        self._trace.stop("agent_completed")
        await self._call(self._task.finalize)
        try:
            await self._task.score(self._trace)
        except TaskError as error:
            cause = error.__cause__ or error
            raise ScorerError(f"{self._name}: {type(cause).__name__}: {cause}") from error
        scores = {name: reward.value for name, reward in self._trace.rewards.items() if reward is not None}
        if len(scores) < len(self._trace.rewards):
            raise ScorerError(f"{self._name}: not all of {', '.join(self._trace.rewards)} were scored.")
        return TasksetScore(self._trace.reward, scores)

    def _add(self, message: Any, *, sampled: bool) -> None:
        nodes = self._trace.nodes
        nodes.append(MessageNode(parent=len(nodes) - 1 if nodes else None, message=message, sampled=sampled))

    async def _call(self, hook: Callable[..., Any]) -> None:
        if hook.__func__ in _PLAIN.values():  # type: ignore[attr-defined]
            return
        try:
            await invoke(hook, {"trace": self._trace})
        except Exception as error:
            raise EpisodeError(f"{self._name}: {hook.__name__}: {type(error).__name__}: {error}") from error


def text_of(content: Any, *, origin: str) -> str:
    """The text of a message: a string, or parts that are all text."""
    if content is None or isinstance(content, str):
        text = content or ""
    else:
        parts = [part if isinstance(part, Mapping) else part.model_dump() for part in content]
        if any(part.get("type") != "text" for part in parts):
            raise EpisodeError(f"{origin}: a message has parts that are no text; only text can be shown.")
        text = "\n".join(part["text"] for part in parts)
    return text if is_storable(text) else ascii(text)


def row_of(task: Task, values: Sequence[Any]) -> int:
    """The row for a task: rows are sorted by `values`, and each level gets its tenth, or all rows if all values are
    equal.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    size = len(order)
    first, last = 0, size
    if size and values[order[0]] != values[order[-1]]:
        first = (task.level - 1) * size // LEVELS
        last = max(first + 1, task.level * size // LEVELS)
    return order[Random(f"{task.family}:{task.level}:{task.seed}").randrange(first, last)]


def field_of(row: Mapping[str, Any], path: str, *, origin: str) -> Any:
    """The value at a dotted path, such as `info.level`."""
    value: Any = row
    for name in path.split("."):
        value = json.loads(value) if isinstance(value, str) else value
        if not isinstance(value, Mapping) or name not in value:
            raise ConfigError(f"{origin}.level_field={path!r}: a row has no {name!r} there, but {str(value)[:100]!r}.")
        value = value[name]
    return value
