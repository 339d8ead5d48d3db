"""A call on record as bytes: its words without secrets, and its tokens where no secret can be read from them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from loomrl.errors import CorruptPayload
from loomrl.hub.array import EXTENSION, Allowance, pack, unpack_hook
from loomrl.safety.redaction import NoRedactor, Redaction
from loomrl.serving.call import ChatMessage, ToolCall, ToolSpec
from loomrl.serving.recording.record import CallRecord, Columns, RecordedCall, SessionEnding, Words


def encode(call: RecordedCall) -> tuple[bytes, bytes | None]:
    """Words and token columns; text that is no Unicode (half surrogates) is stored with U+FFFD."""
    words = pack_value(call.record)
    return words, None if call.lost else pack_value(call.columns)


def decode(payload: bytes, columns: bytes | None) -> RecordedCall:
    """The call of `encode`; CorruptPayload for anything else."""
    try:
        record = msgspec.msgpack.decode(payload, type=CallRecord)
        return RecordedCall(
            record=record, columns=() if columns is None else unpack_value(columns, tuple[Columns, ...])
        )
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise CorruptPayload(f"a recorded call cannot be read: {error}. Restore the store from a copy.") from None


def private(call: RecordedCall, redaction: Redaction, before: Sequence[str] = ()) -> RecordedCall:
    """The call as it may be stored. Where something was found, or the text cannot be searched, its tokens are dropped.

    `before` are the messages before those of the call: a secret may be said over two.
    """
    if isinstance(redaction.redactor, NoRedactor):
        return call
    for text in before:
        redaction.hear(text)
    record = _redact_record(call.record, redaction)
    unseen = not isinstance(call.record.prompt, str | None) or any(one.finish == "cancelled" for one in record.choices)
    if redaction.kinds or unseen or _hidden(call.record, redaction):
        return RecordedCall(record=record, columns=())
    return call


def private_ending(ending: SessionEnding, redaction: Redaction) -> SessionEnding:
    """The end of a session as it may be stored."""
    return replace(ending, outcome=redaction.value(dict(ending.outcome)))


def _redact_record(record: CallRecord, redaction: Redaction) -> CallRecord:
    text = redaction.text
    return replace(
        record,
        messages=tuple(_said(one, redaction) for one in record.messages),
        prompt=text(record.prompt) if isinstance(record.prompt, str) else None,
        prefill=text(record.prefill),
        tools=tuple(_tool(one, redaction) for one in record.tools),
        tool_choice=text(record.tool_choice),
        drawing=replace(
            record.drawing,
            stop=tuple(map(text, record.drawing.stop)),
            form=None if (form := record.drawing.form) is None else replace(form, text=text(form.text)),
        ),
        choices=tuple(_words(one, redaction) for one in record.choices),
    )


def _said(one: ChatMessage, redaction: Redaction) -> ChatMessage:
    calls = _calls(one.calls, redaction)
    answers = redaction.text(one.answers)
    return replace(one, text=redaction.said(one.text), calls=calls, answers=answers)


def _words(one: Words, redaction: Redaction) -> Words:
    return replace(
        one, text=redaction.said(one.text), calls=_calls(one.calls, redaction), said=redaction.said(one.said)
    )


def _calls(calls: Sequence[ToolCall], redaction: Redaction) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=redaction.text(one.id), name=redaction.text(one.name), arguments=redaction.json(one.arguments))
        for one in calls
    )


def _tool(one: ToolSpec, redaction: Redaction) -> ToolSpec:
    name = redaction.text(one.name)
    description = redaction.text(one.description)
    return ToolSpec(name=name, description=description, parameters=redaction.value(dict(one.parameters)))


def _hidden(record: CallRecord, redaction: Redaction) -> bool:
    """True if an answer has a finding with its beginning or a stop string, which only its tokens have."""
    parts = [(record.prefill, stop) for stop in (*record.drawing.stop, "") if stop or record.prefill]
    return any(redaction.finds(begun + one.text + stop) for one in record.choices for begun, stop in parts if one.text)


def unpack_value(data: bytes, form: Any) -> Any:
    """The value of `pack_value`; ValueError, TypeError or msgspec.DecodeError for anything else."""
    return msgspec.msgpack.Decoder(form, ext_hook=unpack_hook(), dec_hook=_array).decode(data)


def pack_value(value: Any) -> bytes:
    """MessagePack with arrays."""

    def convert(one: Any) -> Any:
        if isinstance(one, np.ndarray):
            return msgspec.msgpack.Ext(EXTENSION, pack(one, Allowance()))
        raise TypeError(f"{type(one).__name__} is neither JSON nor a NumPy array")

    try:
        return msgspec.msgpack.encode(value, enc_hook=convert)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(_unicode(msgspec.to_builtins(value, enc_hook=convert, builtin_types=(bytes,))))


def _unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_unicode(key): _unicode(one) for key, one in value.items()}
    return [_unicode(one) for one in value] if isinstance(value, list | tuple) else value


def _array(kind: Any, value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise ValueError("an array is needed")
    return value
