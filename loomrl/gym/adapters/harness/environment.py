"""`Harness`: attempts are played by an agent of somebody else, whose model is the policy.

An attempt is a process with a session of its own (`loomrl.gym.adapters.harness.play`). There are no turns to be played
by hand: the agent decides when to ask.
"""

import random
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.adapters.family import declare
from loomrl.gym.adapters.harness.agent import Agent
from loomrl.gym.adapters.harness.session import Budget
from loomrl.gym.adapters.harness.task import AgentTasks, Row
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.named import named
from loomrl.types import Message, Observation, Task

NO_SANDBOX = (
    "sandbox=true: an agent asks the model over the network, and imports libraries of its own. Programs in the sandbox "
    "have neither. Run the whole of LoomRL in a container, or leave sandbox out."
)


class HarnessSettings(EnvironmentSettings):
    """An agent, its tasks, and the limits of an attempt."""

    agent: Agent | None = None
    """Needed."""
    tasks: dict[str, AgentTasks] = Field({})
    """Family → tasks. At least one is needed."""
    budget: Budget = Budget()
    output_bytes: int = Field(1 << 20, ge=1)
    """Of standard output; an agent that writes more has failed."""
    processes: int = Field(64, ge=1)
    """An agent that starts more has failed."""
    memory_mb: int = Field(4096, ge=1)
    """Of each process."""
    file_mb: int = Field(256, ge=1)
    """Of each file."""
    sandbox: bool = False
    """Not possible; see the message."""


class Harness(BaseEnvironment):
    """Tasks for an agent that is played as it is."""

    name = "Harness"
    version = "1.0.1"
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
        if not self.settings.tasks:
            raise ConfigError("Harness: no tasks. Set tasks, such as {shop: {generate: 'package.module:function'}}.")
        self.settings.agent.check()
        for tasks in self.settings.tasks.values():
            tasks.check()
        declare(self, self.settings.tasks)

    @property
    def agent(self) -> Agent:
        """The agent."""
        assert self.settings.agent is not None, "the constructor refuses none"
        return self.settings.agent

    def tasks(self, task: Task) -> AgentTasks:
        """The family of a task."""
        return self.settings.tasks[task.family]

    def row(self, task: Task) -> Row:
        """The content of a task."""
        return self.tasks(task).row(task)

    def reply(self, task: Task, conversation: tuple[Message, ...]) -> str:
        """The oracle's next text in an agent's conversation, if an oracle is configured."""
        oracle = self.tasks(task).oracle
        if not oracle:
            raise NotImplementedError(
                f"family {task.family!r} has no oracle: set tasks.{task.family}.oracle, package.module:function of the "
                "task and the conversation."
            )
        return str(named(oracle, what="oracle")(self.row(task).task, conversation))

    def guess(self, task: Task, rng: random.Random) -> str | None:
        """A text of a policy without skill, if there is a function for it."""
        guess = self.tasks(task).guess
        return str(named(guess, what="guess")(self.row(task).task, rng)) if guess else None

    async def reset(self, task: Task | None = None) -> Observation:
        """Always an EpisodeError."""
        raise EpisodeError(
            "an agent plays Harness, not a caller of reset() and step(): train it, evaluate it, or run its policy by "
            "`loomrl evaluate`."
        )

    async def step(self, action: str) -> Step:
        """Always an EpisodeError."""
        raise EpisodeError("an agent plays Harness: there are no steps.")
