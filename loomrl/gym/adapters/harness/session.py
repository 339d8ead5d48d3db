"""An attempt's way to the policy: opened before its agent starts, finished after it has ended.

The gateway behind it is not ours: it is in a layer above, which gives it to us.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from loomrl.config.basic import PositiveInt, Seconds
from loomrl.errors import ConfigError
from loomrl.gym.episode import Attempt
from loomrl.schema import Config
from loomrl.types import Failure, Turn

CONTEXT = "context"
"""The overrun of a conversation that is longer than the policy's context."""


class Budget(Config):
    """Limits of one attempt. Beyond them its calls are refused with 429, and it counts as truncated."""

    calls: PositiveInt = 50
    """Calls to the model."""
    tokens: PositiveInt = 200_000
    """Tokens of all prompts and answers together."""
    seconds: Seconds = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The address at which an agent finds the model."""

    session: str
    openai_base_url: str
    anthropic_base_url: str
    api_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTranscript:
    """All that an agent and the policy said."""

    turns: tuple[Turn, ...] = ()
    threads: tuple[tuple[Turn, ...], ...] = ()
    """Further threads of the same attempt."""
    overrun: str = ""
    """The limit that was reached: `calls`, `tokens`, or `context`."""
    refused: int = 0
    """Refused calls."""
    refusal: str = ""
    """The last of them: its status and message."""
    failure: Failure | None = None
    """The policy's own failure, of which an agent sees only a refused call."""


@runtime_checkable
class PolicySessions(Protocol):
    """Opens a policy to agents, one session per attempt."""

    async def open(self, attempt: Attempt, budget: Budget) -> Access:
        """A new session."""

    async def finish(self, access: Access) -> AgentTranscript:
        """End the session; calls that are still open are refused. Call it once, also after a failure."""


def sessions_of(policy: object) -> PolicySessions:
    """The policy as one that agents can ask; a ConfigError if it cannot be."""
    if not isinstance(policy, PolicySessions):
        raise ConfigError(
            f"{type(policy).__name__} cannot answer agents: Harness is played where a gateway is, by `loomrl train` "
            "and `loomrl evaluate`."
        )
    return policy
