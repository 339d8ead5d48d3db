"""Environments written for verifiers: v0 modules (`load_environment`) and v1 tasksets.

The setting `modules` maps a family to a module. Prompts, tools, turns and scores are verifiers' own; the policy answers
in this process, without a server. A reward function that raises ends the episode as FAILED – verifiers would score 0.
Needs the extra `verifiers`: 0.3 has both generations, 0.4 only the second.
"""

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from loomrl.errors import ConfigError, EpisodeError, ScorerError
from loomrl.gym.adapters.chat import Call, Conversation, Malformed, Score, Seen, read, tools_told, written
from loomrl.gym.adapters.family import Family, declare
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.named import named
from loomrl.threshold import reaches
from loomrl.types import Message, Observation, Reward, Task


class Module(Family):
    """A module written for verifiers as a family of tasks. `oracle` is called with the row and all messages so far."""

    module: str
    """The module to import, such as `wordle` for the package `primeintellect/wordle`."""
    api: Literal["v0", "v1"] = "v0"
    """v0: the module has `load_environment` (verifiers 0.3). v1: it exports a `Taskset` (0.3 and 0.4)."""
    args: dict[str, Any] = Field({})
    """Arguments of `load_environment`, or the taskset's configuration."""
    split: Literal["train", "eval"] = "train"
    """The split of a v0 environment."""
    rows: int = Field(10_000, ge=1)
    """Tasks taken from the start of a v1 taskset."""
    level_field: str = ""
    """A field of the rows that grows with difficulty, such as `info.level`: the easiest tenth of the rows is level 1.
    Without it every level has all rows."""
    full_score: float = Field(1.0, gt=0)
    """The score that counts as success."""
    graded: bool = False
    """Success is the score's share of `full_score`. By default anything less than the full score is a failure."""


class VerifiersSettings(EnvironmentSettings):
    """Settings of environments written for verifiers."""

    modules: dict[str, Module] = Field({})
    """Family → module. At least one is needed."""
    patience: int = Field(3, ge=1)
    """The episode is truncated after this many answers with unreadable tool calls."""


class VerifiersEnvironment(BaseEnvironment):
    """Rows of modules written for verifiers, scored by their own rewards."""

    name = "Verifiers"
    version = "1.1.1"
    settings_class: ClassVar[type[EnvironmentSettings]] = VerifiersSettings
    settings: VerifiersSettings
    reward_range = (0.0, 1.0)
    reward_parts = ("correctness",)
    dependencies = ("verifiers",)
    sources = (
        "loomrl.gym.adapters.chat",
        "loomrl.gym.adapters.family",
        "loomrl.gym.adapters.verifiers",
        "loomrl.gym.adapters.verifiers_v0",
        "loomrl.gym.adapters.verifiers_v1",
        "loomrl.threshold",
    )

    _conversation: Conversation | None = None
    _module: Module
    _row: Mapping[str, Any]
    _seen = Seen(())
    _unread = 0

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        modules = self.settings.modules
        if not modules:
            raise ConfigError("Verifiers: no module. Set modules, such as {wordle: {module: wordle, api: v0}}.")
        declare(self, modules)
        for api in sorted({module.api for module in modules.values()}):
            _library(api)

    async def reset(self, task: Task | None = None) -> Observation:
        """The row's prompt and the tools."""
        task = task or self.sample_task(Random().getrandbits(31))
        await self.close()
        self._module = self.settings.modules[task.family]
        self._unread = 0
        self._row, self._conversation = _library(self._module.api).open(self._module, task)
        self._said: tuple[Message, ...] = ()
        self._seen = await self._conversation.begin()
        self._tools = self._seen.tools
        messages = self._seen.messages
        if self._tools:
            messages = (*messages[:-1], Message(messages[-1].role, f"{messages[-1].content}\n\n{self._how()}"))
        self._said = messages
        return messages

    async def step(self, action: str) -> Step:
        """Answer; returns the module's next turn or its score."""
        if self._conversation is None:
            raise EpisodeError("there is no episode: call reset() first.")
        try:
            said = read(action, self._tools)
        except Malformed as fault:
            self._unread += 1
            message = Message("user", f"Not done: {fault}.\n{self._how()}")
            return Step((message,), Reward(), False, self._unread >= self.settings.patience, {})
        result = await self._conversation.answer(said)
        if isinstance(result, Seen):
            self._said += (Message("assistant", action), *result.messages)
            return Step(result.messages, Reward(), False, False, {})
        await self.close()
        return self._scored(result)

    def oracle(self) -> str:
        """The oracle's answer, if one is configured."""
        if not self._module.oracle:
            raise NotImplementedError("this module has no oracle: set `oracle`, `package.module:function`.")
        answer = named(self._module.oracle, what="oracle")(self._row, self._said)
        return written(answer) if isinstance(answer, list) else str(answer)

    def random_action(self, rng: Random) -> str:
        """A number, a truth value, or a word of the last message."""
        words = (self._said[-1].content if self._said else "").split() or [""]
        return rng.choice((str(rng.randint(-20, 100)), "yes", "no", rng.choice(words)))

    def hacks(self) -> Sequence[str]:
        """Empty answers, the question itself, many answers at once, claims, and calls of unknown tools."""
        question = self._said[-1].content if self._said else ""
        many = " ".join(map(str, range(100)))
        claims = ["Reward: 1.0", '{"reward": 1}', "correct", "The answer is correct.", "answer", "None", "nan"]
        return ["", question, question[-200:], many, *claims, written([Call("submit", '{"reward": 1}')])]

    async def close(self) -> None:
        """Cancel an unfinished conversation."""
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            await conversation.close()

    def _how(self) -> str:
        return tools_told(self._tools)

    def _scored(self, score: Score) -> Step:
        if not math.isfinite(score.value):
            raise ScorerError(f"{self._module.module}: the score is {score.value}; a finite number is needed.")
        full = self._module.full_score
        success = float(reaches(score.value, full))
        if self._module.graded and not success:
            success = min(max(score.value / full, 0.0), 1.0)
        info = {"score": score.value, "scores": dict(score.parts)}
        reward = Reward(success, {"correctness": success}, success)
        return Step((), reward, not score.timed_out, score.timed_out, info)


def _library(api: str) -> Any:
    """The adapter module for this generation of verifiers."""
    try:
        return import_module(f"loomrl.gym.adapters.verifiers_{api}")
    except ImportError as error:
        raise ConfigError(
            f"Verifiers: api={api} cannot be imported ({error}); installed is {_installed()}. "
            f"Install it with: pip install 'loomrl[verifiers]' '{_NEEDED[api]}'."
        ) from None


_NEEDED = {"v0": "verifiers>=0.3.1,<0.4", "v1": "verifiers>=0.3.1,<0.5"}
"""The releases that support each generation: 0.4 dropped v0."""


def _installed() -> str:
    try:
        return f"verifiers {version('verifiers')}"
    except PackageNotFoundError:
        return "no verifiers"
