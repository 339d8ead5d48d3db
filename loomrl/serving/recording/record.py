"""A call on record: its words, and its token columns, which may be lost. Only what is new since its parent is in it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loomrl.canonical import canonical_json
from loomrl.safety.placeholder import drop_numbers
from loomrl.serving.call import ChatMessage, ChatRequest, Drawing, Prompt, ToolCall, ToolSpec
from loomrl.serving.policy import Picture
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.thread import RecordedAnswer, answer_mark, marks

Finish = Literal["stop", "length", "tool_calls", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A choice of an answer without its tokens."""

    index: int
    text: str
    calls: tuple[ToolCall, ...] = ()
    finish: str
    """`stop`, `length`, `tool_calls`, or `cancelled`."""
    sights: tuple[int, ...] = ()
    """The first token of each picture of the new messages, counted from the beginning of the thread."""
    rule: str = ""
    """The monitor's rule that kept it from leaving as it was drawn."""
    said: str = ""
    """The text that the caller got then."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpokenChoice(Words):
    """One choice of an answer, with all that was sampled."""

    opened_T: NDArray[np.int32]
    """The ids that were new in the prompt."""
    ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    versions_T: NDArray[np.int32]
    shifts_T: NDArray[np.float32] | None = None
    """How much likelier each token was made, as `loomrl.types.Tokens` has it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallOrigin:
    """Where and when a call was answered. `parent` is `KnownBeginning.parent`, or empty where a thread begins."""

    id: str
    session: str
    endpoint: str
    arm: str
    version: str
    parent: str
    dialect: str
    started_at: float
    finished_at: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallToRecord(CallOrigin):
    """One request and its answer."""

    ask: ChatRequest
    choices: tuple[SpokenChoice, ...]
    key: str
    """The id of the caller's key, never the key."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The tokens of a choice, and the mark by which a later conversation is recognised."""

    mark: bytes
    opened_T: NDArray[np.int32] | None
    """None: those of the first choice."""
    ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    versions_T: NDArray[np.int32]
    shifts_T: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord(CallOrigin):
    """The words of a call."""

    begins: int
    """Messages of the conversation before the new ones."""
    messages: tuple[ChatMessage, ...]
    prompt: Prompt | None = None
    prefill: str = ""
    """The beginning of the answers, which the caller had written."""
    instructed: bool = False
    """The thread's first message is the caller's instructions."""
    tools: tuple[ToolSpec, ...] = ()
    """Those of a whole thread are with its first call."""
    tool_choice: str = "auto"
    drawing: Drawing = field(default_factory=Drawing)
    user: str = ""
    """The caller's name for its user; in LoomDB, a hash of it."""
    choices: tuple[Words, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedCall:
    """A call as it is recorded: columns for each choice, or none where they are lost."""

    record: CallRecord
    columns: tuple[Columns, ...]

    @property
    def lost(self) -> bool:
        """True if its tokens, or those before it, may not be stored."""
        return not self.columns

    def opened_T(self, at: int) -> NDArray[np.int32]:
        """The new prompt ids of the choice at a position."""
        opened_T = self.columns[at].opened_T
        if opened_T is None:
            opened_T = self.columns[0].opened_T
        assert opened_T is not None, "the first choice has its own"
        return opened_T


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnding:
    """The end of a session."""

    at: float
    cause: Literal["told", "idle", "deadline"] = "told"
    reward: float | None = None
    success: float | None = None
    correct: float | None = None
    """Success by a second check."""
    outcome: Mapping[str, Any] = field(default_factory=dict)

    def agrees(self, other: "SessionEnding") -> bool:
        """True if both have the same data."""
        mine, theirs = ((one.reward, one.success, one.correct, _words_of(one.outcome)) for one in (self, other))
        return mine == theirs

    def data(self) -> dict[str, Any]:
        """Everything but the time, as JSON."""
        checked = {} if self.correct is None else {"correct": self.correct}
        judged = {"reward": self.reward, "success": self.success, **checked, "outcome": dict(self.outcome)}
        return {"cause": self.cause, **judged}


def _words_of(outcome: Mapping[str, Any]) -> str:
    return drop_numbers(canonical_json(dict(outcome)).decode("utf-8", "replace"))


def make_ending(
    reward: float | None,
    success: float | None,
    outcome: Mapping[str, Any] | None,
    *,
    correct: float | None = None,
    at: float,
) -> SessionEnding:
    """The end of a session as a caller gave it; Refusal INVALID for numbers out of range, or no JSON."""
    if reward is not None and not math.isfinite(reward):
        raise Refusal(RefusalCause.INVALID, f"reward={reward} must be a finite number.", where="reward")
    for name, share in (("success", success), ("correct", correct)):
        if share is not None and not 0 <= share <= 1:
            raise Refusal(RefusalCause.INVALID, f"{name}={share} must be between 0 and 1.", where=name)
    try:
        canonical_json(outcome or {})
    except (TypeError, ValueError, RecursionError) as error:
        raise Refusal(RefusalCause.INVALID, f"outcome must be JSON: {error}.", where="outcome") from None
    return SessionEnding(at=at, reward=reward, success=success, correct=correct, outcome=outcome or {})


def make_recorded(call: CallToRecord, parent: RecordedAnswer | None) -> RecordedCall:
    """A call as it is kept, after the answer that it continues."""
    ask = call.ask
    begins = 0 if parent is None else parent.messages
    record = CallRecord(
        **_copy(CallOrigin, call) | {"parent": "" if parent is None else parent.name},
        begins=begins,
        messages=ask.messages[begins:],
        prompt=ask.prompt,
        prefill=ask.prefill,
        instructed=ask.instructed,
        tools=ask.tools if parent is None else (),
        tool_choice=ask.tool_choice,
        drawing=ask.drawing,
        user=ask.user,
        choices=tuple(Words(**_copy(Words, choice)) for choice in call.choices),
    )
    if call.parent and parent is None:  # its ids are gone, and without them the new ones make no sense
        return RecordedCall(record=record, columns=())
    before = marks(ask)[-1] if ask.prompt is None else b""
    return RecordedCall(record=record, columns=tuple(_columns(call, at, before) for at in range(len(call.choices))))


def _copy(kind: type[Words | CallOrigin], of: Words | CallOrigin) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in fields(kind)}


def make_answers(call: RecordedCall, parent: RecordedAnswer | None) -> list[RecordedAnswer]:
    """The answers of a call, to be continued; none if its tokens are lost."""
    record = call.record
    images = [image for said in record.messages for image in said.images]
    return [
        RecordedAnswer(
            call=record.id,
            index=words.index,
            mark=columns.mark if len(words.sights) == len(images) else b"",
            messages=record.begins + len(record.messages) + 1,
            opened_T=call.opened_T(at),
            ids_T=columns.ids_T,
            pictures=tuple(Picture(png=png, start=start) for png, start in zip(images, words.sights, strict=False)),
            said=(*record.messages, _answer(record, words)),
            instructed=record.instructed,
            tools=record.tools,
            tool_choice=record.tool_choice,
            parent=parent,
        )
        for at, (words, columns) in enumerate(zip(record.choices, call.columns, strict=False))
    ]


def _answer(record: CallRecord, words: Words) -> ChatMessage:
    """The answer as its caller has it."""
    text = record.prefill + (words.said if words.rule else words.text)
    return ChatMessage(role="assistant", text=text, calls=words.calls)


def _columns(call: CallToRecord, at: int, before: bytes) -> Columns:
    choice = call.choices[at]
    first = call.choices[0]
    repeated = at > 0 and np.array_equal(choice.opened_T, first.opened_T)
    return Columns(
        mark=answer_mark(before, call.ask.prefill + choice.text, choice.calls) if before and not choice.rule else b"",
        opened_T=None if repeated else choice.opened_T,
        ids_T=choice.ids_T,
        logprobs_T=choice.logprobs_T,
        versions_T=choice.versions_T,
        shifts_T=choice.shifts_T,
    )
