"""A request to a policy, in the one form that all dialects are read into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loomrl.types import Form, Odds, join_shifts


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the policy made. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    images: tuple[bytes, ...] = ()
    """PNG files."""
    calls: tuple[ToolCall, ...] = ()
    """Calls that an assistant made."""
    answers: str = ""
    """The id of the call that a tool answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A function that the caller offers. `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    """The policy's arguments follow the schema, to the letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The sampling of one call. None is the policy's own setting."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """0 draws nothing: the prompt is only read."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Strings that end the answer; they are not part of its text, their tokens are on record."""
    form: Form | None = None
    odds: Odds | None = None
    n: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    """Alternatives for each token."""
    echo: bool = False
    """The tokens of the prompt are reported before the answer's; with `logprobs` each with its own."""


Prompt = str | tuple[int, ...]
"""A text, or token ids."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conversation:
    """Messages to continue; or, with `prompt`, a text or token ids."""

    messages: tuple[ChatMessage, ...] = ()
    prompt: Prompt | None = None
    prefill: str = ""
    """The beginning of the answer, which the caller has written."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or a tool's name after `tool:`."""
    parallel_tool_calls: bool = True
    drawing: Drawing = field(default_factory=Drawing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest(Conversation):
    """A caller's conversation."""

    model: str
    """The endpoint's name, with an arm after `@` if the caller named one."""
    stream: bool = False
    stream_usage: bool = False
    further: tuple[Prompt, ...] = ()
    """Prompts beside the first (completions only), each with answers of its own."""
    instructed: bool = False
    """The first message is the caller's instructions, in whose place those of a later request come."""
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
            return sum(map(len, (self.prompt, *self.further)))
        return sum(len(said.text) for said in self.messages if said.role != "assistant")

    @property
    def choices(self) -> int:
        """The number of answers, to all prompts."""
        return self.drawing.n * (1 + len(self.further))


Finish = Literal["stop", "length", "tool_calls", "filtered"]
"""`filtered`: the monitor ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCandidate:
    """A token that could have been drawn. `token` is its text as bytes; `logprob` is natural."""

    id: int
    token: bytes
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A drawn token and the likeliest alternatives, in the answer of a caller who asked for log-probabilities."""

    drawn: TokenCandidate
    top: tuple[TokenCandidate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromptOpened:
    """The ids that are new in the prompt: everything since the known ids."""

    index: int = 0
    ids_T: NDArray[np.int32]
    sights: tuple[int, ...] = ()
    """The first token of each picture of the new messages, counted from the beginning of the conversation."""
    tokens: tuple[Token, ...] = ()
    """The prompt's tokens, if they are to be echoed; NaN is the log-probability of one without a distribution."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokensDrawn:
    """Sampled tokens, and the text that is certain so far: less where a stop string or a call may begin."""

    index: int = 0
    ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    versions_T: NDArray[np.int32]
    text: str = ""
    tokens: tuple[Token, ...] = ()
    """Empty unless asked for."""
    shifts_T: NDArray[np.float32] | None = None
    """How much likelier each token was made, as `loomrl.types.Tokens` has it."""


def join_tokens(drawn: Sequence[TokensDrawn]) -> TokensDrawn:
    """Several of one choice as one."""
    if len(drawn) == 1:
        return drawn[0]
    return TokensDrawn(
        index=drawn[0].index,
        ids_T=np.concatenate([each.ids_T for each in drawn]),
        logprobs_T=np.concatenate([each.logprobs_T for each in drawn]),
        versions_T=np.concatenate([each.versions_T for each in drawn]),
        text="".join(each.text for each in drawn),
        tokens=tuple(token for each in drawn for token in each.tokens),
        shifts_T=_join_shifts(drawn),
    )


def _join_shifts(drawn: Sequence[TokensDrawn]) -> NDArray[np.float32] | None:
    return join_shifts((each.ids_T, each.shifts_T) for each in drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceClosed:
    """The end of a choice: its whole text without calls and stop string, its calls, and the reason of its end."""

    index: int = 0
    text: str
    calls: tuple[ToolCall, ...] = ()
    finish: Finish
    stopped_by: str = ""
    """The stop string that ended it."""


Event = PromptOpened | TokensDrawn | ChoiceClosed


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The origin of an answer, known before its first token."""

    id: str
    """The call's id, without a dialect's prefix."""
    created: float
    model: str
    """The endpoint's name."""
    version: str
    """The policy version's id."""
    arm: str
    session: str
    trajectory: str
    """Empty if nothing is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts of tokens."""

    prompt: int
    """The whole conversation before the answer."""
    cached: int = 0
    """Prompt tokens that were continued from an earlier call."""
    completion: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChoice:
    """One whole answer."""

    closed: ChoiceClosed
    tokens: tuple[Token, ...] = ()
    prompt: tuple[Token, ...] = ()
    """The prompt's tokens, if they are to be echoed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """A finished call."""

    heading: Heading
    choices: tuple[AnswerChoice, ...]
    usage: Usage


@dataclass(slots=True)
class Gathered:
    """The events of one choice, joined as they come."""

    opened: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    sights: tuple[int, ...] = ()
    prompt: tuple[Token, ...] = ()
    drawn: list[TokensDrawn] = field(default_factory=list)
    closed: ChoiceClosed | None = None

    def add(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, PromptOpened):
            self.opened = event.ids_T
            self.sights = event.sights
            self.prompt = event.tokens
        elif isinstance(event, TokensDrawn):
            self.drawn.append(event)
        else:
            self.closed = event

    @property
    def ids(self) -> NDArray[np.int32]:
        """All sampled ids."""
        return np.concatenate([np.zeros(0, np.int32), *(each.ids_T for each in self.drawn)])

    @property
    def logprobs(self) -> NDArray[np.float32]:
        """Their log-probabilities."""
        return np.concatenate([np.zeros(0, np.float32), *(each.logprobs_T for each in self.drawn)])

    @property
    def versions(self) -> NDArray[np.int32]:
        """The policy version of each."""
        return np.concatenate([np.zeros(0, np.int32), *(each.versions_T for each in self.drawn)])

    @property
    def shifts(self) -> NDArray[np.float32] | None:
        """The shift of each; None if there was none."""
        return _join_shifts(self.drawn)

    @property
    def tokens(self) -> tuple[Token, ...]:
        """All tokens, if asked for."""
        return tuple(token for each in self.drawn for token in each.tokens)

    def choice(self) -> AnswerChoice:
        """The whole answer, once closed."""
        assert self.closed is not None, "the choice is not closed yet"
        return AnswerChoice(closed=self.closed, tokens=self.tokens, prompt=self.prompt)
