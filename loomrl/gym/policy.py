"""Policies that act in episodes. A policy serves one episode; its factory gets the environment and a random source."""

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from loomrl.config import CustomPolicy, LanguagePolicy, OpenAIPolicy, PolicyChoice, ScriptedPolicy
from loomrl.errors import ConfigError
from loomrl.gym.base import BaseEnvironment
from loomrl.named import named
from loomrl.types import Message, Tokens


@dataclass(frozen=True, slots=True)
class Action:
    """A policy's action. Policies that sample tokens add the ids of this turn exactly as sampled, new prompt tokens
    first.
    """

    text: str
    tokens: Tokens | None = None


class Policy(Protocol):
    """Answers a conversation."""

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The next action, given the whole conversation: observations and own actions, in order."""


PolicyFactory = Callable[[BaseEnvironment, random.Random], Policy]
OpenPolicy = Callable[[PolicyChoice], PolicyFactory]
"""Opens any policy that an experiment can choose, such as `open_policy`; the result serves many episodes."""


class _ScriptedPolicy:
    """Acts by the environment's state and ignores the conversation."""

    def __init__(self, environment: BaseEnvironment, rng: random.Random) -> None:
        self._environment = environment
        self._rng = rng

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The next action."""
        return Action(self.choose())

    def choose(self) -> str:
        """The action in the current state."""
        raise NotImplementedError


class OraclePolicy(_ScriptedPolicy):
    """Asks the environment for the perfect action."""

    def choose(self) -> str:
        """The oracle's next action."""
        return self._environment.oracle()


class RandomPolicy(_ScriptedPolicy):
    """Well-formed actions without skill."""

    def choose(self) -> str:
        """A random action in the environment's own language."""
        return self._environment.random_action(self._rng)


class ConstantPolicy(_ScriptedPolicy):
    """Gives the same well-formed answer in every turn of every episode."""

    @cached_property
    def _answer(self) -> str:
        return self._environment.random_action(random.Random(0))

    def choose(self) -> str:
        """Its only action: the first random action with seed 0."""
        return self._answer


def hack_policy(index: int) -> PolicyFactory:
    """The factory of the policy that tries the environment's known hack `index` in every turn."""

    class HackPolicy(_ScriptedPolicy):
        def choose(self) -> str:
            hacks = self._environment.hacks()
            return hacks[index] if index < len(hacks) else ""

    return HackPolicy


SCRIPTED: dict[str, PolicyFactory] = {"oracle": OraclePolicy, "random": RandomPolicy, "constant": ConstantPolicy}


def open_policy(choice: PolicyChoice) -> PolicyFactory:
    """The factory that `choice` names. A custom policy is created once, here, and shared by all episodes."""
    if isinstance(choice, ScriptedPolicy):
        return SCRIPTED[choice.kind]
    if isinstance(choice, LanguagePolicy):
        raise ConfigError(
            f"policy.kind=language needs an engine: open it with loomrl.inference.open_policy ({choice.path})."
        )
    if isinstance(choice, OpenAIPolicy):
        raise ConfigError(f"policy.kind=openai needs a server: open it with loomrl.inference ({choice.url}).")
    policy = _custom(choice)
    return lambda environment, rng: policy


def _custom(choice: CustomPolicy) -> Policy:
    made: object = named(choice.entry_point, what="policy.entry_point")
    if not callable(made):
        raise ConfigError(f"policy.entry_point={choice.entry_point!r}: {type(made).__name__} is not callable.")
    try:
        policy: Policy = made(**choice.settings)
    except TypeError as error:
        raise ConfigError(f"policy.entry_point={choice.entry_point!r}, settings={choice.settings}: {error}.") from error
    if not inspect.iscoroutinefunction(getattr(policy, "act", None)):
        raise ConfigError(
            f"policy.entry_point={choice.entry_point!r} made a {type(policy).__name__}; "
            "a policy has `async def act(self, conversation) -> Action`."
        )
    return policy
