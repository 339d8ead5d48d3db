"""A request to a policy, in the one form that all dialects are read into."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the policy made. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    images: tuple[bytes, ...] = ()
    """PNG files."""
    calls: tuple[ToolCall, ...] = ()
    """Of an assistant."""
    answers: str = ""
    """Of a tool: the id of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the caller offers. `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The sampling of one call. None is the policy's own setting."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Strings that end the answer; they are not part of its text, their tokens are on record."""
    n: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    """Alternatives for each token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A conversation to continue; or, with `prompt`, a text or token ids."""

    model: str
    """As the caller wrote it: the endpoint's name."""
    messages: tuple[Said, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or a tool's name after `tool:`."""
    parallel_tool_calls: bool = True
    drawing: Drawing = field(default_factory=Drawing)
    stream: bool = False
    stream_usage: bool = False
    echo: bool = False
    """Of completions: the prompt is repeated before the answer."""
    store: bool = True
    """False: the caller opts out of being recorded."""
    user: str = ""
    """The caller's name for its user."""
    preference: Mapping[str, Any] | None = None
    """Weights of objectives, as the caller wrote them."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Parts of the request that the dialect repeats in its answer."""

    @property
    def prompt_chars(self) -> int:
        """Characters of everything in the conversation that the policy has not said itself; tokens count as one."""
        if self.prompt is not None:
            return len(self.prompt)
        return sum(len(said.text) for said in self.messages if said.role != "assistant")
