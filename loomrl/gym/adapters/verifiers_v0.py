"""Modules of verifiers' first generation: verifiers runs the rollout, and our policy takes the place of its model."""

import asyncio
import functools
import inspect
import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import verifiers.legacy as vf
from verifiers.legacy.clients import Client
from verifiers.legacy.types import Response, ResponseMessage, ToolCall

from loomrl.errors import ConfigError, EpisodeError, ScorerError
from loomrl.gym.adapters.chat import Said, Score, Seen, Tool, field_of, row_of, text_of
from loomrl.gym.adapters.verifiers import Module
from loomrl.types import Message, Task

_MODEL = "policy"
_raised: ContextVar[list[str]] = ContextVar("raised")
"""Errors raised by reward functions in the current scoring."""


def open(module: Module, task: Task) -> tuple[Mapping[str, Any], "Rollout"]:
    """The task's row, and a conversation about it."""
    environment, rows, values = _load(module.module, json.dumps(module.args), module.split, module.level_field)
    row: Mapping[str, Any] = rows[row_of(task, values)]
    return row, Rollout(environment, row, module.module)


@functools.lru_cache(maxsize=16)
def _load(name: str, args: str, split: str, level_field: str) -> tuple[vf.Environment, Any, tuple[Any, ...]]:
    """The environment, its rows and their difficulties; loaded once per process."""
    with _own_signals():
        environment = vf.load_environment(name, **json.loads(args))
    if environment.requires_group_rollouts:
        raise ConfigError(f"modules {name}: it scores attempts in groups; here each attempt is scored by itself.")
    rows = environment.get_dataset() if split == "train" else environment.get_eval_dataset()
    if not len(rows):
        raise ConfigError(f"modules {name}: split={split!r} has no rows.")
    levels = (field_of(row, level_field, origin=name) for row in rows) if level_field else (0 for _ in rows)
    _watch(environment)
    return environment, rows, tuple(levels)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our signal handlers: a verifiers environment installs its own for SIGINT and SIGTERM, which fails off the
    main thread.
    """
    taken, signal.signal = signal.signal, lambda number, handler: None  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = taken


def _watch(environment: vf.Environment) -> None:
    """Make all reward functions report their errors, which verifiers would log and score as 0."""
    if isinstance(environment, vf.EnvGroup):
        for member in environment.envs:
            _watch(member)
    _watch_rubric(environment.rubric)


def _watch_rubric(rubric: vf.Rubric) -> None:
    if isinstance(rubric, vf.RubricGroup):
        for member in rubric.rubrics:
            _watch_rubric(member)
    rubric.funcs = [
        _watched(func) if weight else func for func, weight in zip(rubric.funcs, rubric.weights, strict=True)
    ]


def _watched(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    async def watched(*args: Any, **kwargs: Any) -> float:
        try:
            result = func(*args, **kwargs)
            return float(await result if inspect.isawaitable(result) else result)
        except Exception as error:
            _raised.get([]).append(f"{watched.__name__}: {type(error).__name__}: {error}")
            raise

    return watched


class Seat(Client[None, Any, Any, Any]):  # type: ignore[misc,unused-ignore]
    """A model client for verifiers' rollouts that passes each prompt to our policy."""

    def __init__(self) -> None:
        super().__init__(None)
        self.asked: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()
        self.answers: asyncio.Queue[Response] = asyncio.Queue()

    async def get_response(
        self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **kwargs: Any
    ) -> Response:
        """Wait for the policy's answer to this prompt."""
        await self.asked.put((prompt, tools))
        return await self.answers.get()

    async def close(self) -> None:
        """Nothing is open."""

    def setup_client(self, config: Any) -> None:
        """There is no client to set up."""

    async def _never(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("what sits below a model client is not used")

    to_native_tool = to_native_prompt = get_native_response = raise_from_native_response = _never
    from_native_response = _never


class Rollout:
    """One rollout of verifiers, advanced from one policy answer to the next."""

    def __init__(self, environment: vf.Environment, row: Mapping[str, Any], name: str) -> None:
        self._environment, self._row, self._name = environment, row, name
        self._seat = Seat()
        self._task: asyncio.Task[Any] | None = None
        self._known: list[Any] = []
        self._turns = 0

    async def begin(self) -> Seen:
        """The prompt and the tools."""
        rollout = self._environment.rollout(dict(self._row), self._seat, _MODEL, {})  # type: ignore[arg-type,unused-ignore]
        self._task = asyncio.create_task(rollout)
        first = await self._next()
        if isinstance(first, Score):
            raise EpisodeError(f"{self._name}: the rollout was over before the policy was asked.")
        return first

    async def answer(self, said: Said) -> Seen | Score:
        """The reply to the policy's answer: another turn, or the rubric's score."""
        self._turns += 1
        calls = [
            ToolCall(id=f"call_{self._turns}_{number}", name=call.name, arguments=call.arguments)
            for number, call in enumerate(said.calls)
        ]
        message = ResponseMessage(
            content=said.content,
            tool_calls=calls or None,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        answer = Response(id=f"answer_{self._turns}", created=0, model=_MODEL, message=message)
        await self._seat.answers.put(answer)
        return await self._next()

    async def close(self) -> None:
        """Cancel an unfinished rollout; verifiers cleans up."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _next(self) -> Seen | Score:
        """Wait until the policy is prompted or the rollout ends."""
        assert self._task is not None
        asked = asyncio.create_task(self._seat.asked.get())
        try:
            await asyncio.wait({asked, self._task}, return_when=asyncio.FIRST_COMPLETED)
            return self._shown(*asked.result()) if asked.done() else await self._score(self._task.result())
        finally:
            asked.cancel()

    def _shown(self, prompt: list[Any], tools: Any) -> Seen:
        """The messages that the policy has not seen yet."""
        known, self._known = self._known, list(prompt)
        if known and prompt[: len(known)] != known:
            raise EpisodeError(f"{self._name}: it changes what was said before, which a conversation here cannot.")
        new = prompt[len(known) + 1 :] if known else prompt
        messages = tuple(Message(item.role, text_of(item.content, origin=self._name)) for item in new)
        offered = tuple(Tool(tool.name, tool.description, tool.parameters) for tool in tools or ())
        return Seen(messages, offered)

    async def _score(self, state: Any) -> Score:
        if state.get("error") is not None:
            raise EpisodeError(f"{self._name}: {type(state['error']).__name__}: {state['error']!r}")
        rubric, raised = self._environment.rubric, list[str]()
        before = _raised.set(raised)
        try:
            await rubric.score_rollout(state)
        finally:
            _raised.reset(before)
            await rubric.cleanup(state)
        if raised:
            raise ScorerError(f"{self._name}: {'; '.join(raised)}")
        return Score(float(state["reward"]), dict(state["metrics"] or {}), bool(state.get("timed_out")))
