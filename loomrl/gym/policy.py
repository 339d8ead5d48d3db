"""Who acts in an episode. A policy serves one episode; its factory gets the environment and a source of randomness."""

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from loomrl.config import CustomPolicy, LanguagePolicy, OpenAIPolicy, PolicyChoice, ScriptedPolicy
from loomrl.errors import ConfigError
from loomrl.gym.base import BaseEnvironment
from loomrl.named import named
from loomrl.types import Message, Tokens


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy does. A policy of tokens adds this turn's ids exactly as sampled, new prompt tokens first."""

    text: str
    tokens: Tokens | None = None


class Policy(Protocol):
    """Whatever answers a conversation."""

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The next action, given everything said so far: observations and own actions, in order."""


PolicyFactory = Callable[[BaseEnvironment, random.Random], Policy]
OpenPolicy = Callable[[PolicyChoice], PolicyFactory]
"""Opens whatever an experiment can choose, such as `open_policy`; what is opened serves many episodes."""


class OraclePolicy:
    """Asks the environment for the perfect action."""

    def __init__(self, environment: BaseEnvironment, rng: random.Random) -> None:
        self._environment = environment

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The oracle's next action."""
        return Action(self._environment.oracle())


class RandomPolicy:
    """Well-formed actions without skill."""

    def __init__(self, environment: BaseEnvironment, rng: random.Random) -> None:
        self._environment = environment
        self._rng = rng

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """A random action in the environment's own language."""
        return Action(self._environment.random_action(self._rng))


class ConstantPolicy:
    """Says the same well-formed thing in every turn of every episode."""

    def __init__(self, environment: BaseEnvironment, rng: random.Random) -> None:
        self._environment = environment
        self._action: Action | None = None

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The one action it knows: the first that the seed 0 gives."""
        if self._action is None:
            self._action = Action(self._environment.random_action(random.Random(0)))
        return self._action


class HackPolicy:
    """Tries the `index`-th of the environment's own known ways to earn without solving, in every turn."""

    def __init__(self, environment: BaseEnvironment, rng: random.Random, index: int) -> None:
        self._environment = environment
        self._index = index

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """That hack for the present state, or nothing where there is none."""
        hacks = self._environment.hacks()
        return Action(hacks[self._index] if self._index < len(hacks) else "")


SCRIPTED: dict[str, PolicyFactory] = {"oracle": OraclePolicy, "random": RandomPolicy, "constant": ConstantPolicy}


def hack_policy(index: int) -> PolicyFactory:
    """The factory of the policy that tries hack `index`."""
    return lambda environment, rng: HackPolicy(environment, rng, index)


def open_policy(choice: PolicyChoice) -> PolicyFactory:
    """The factory that `choice` names. A custom policy is made once, here, and shared by all episodes."""
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
