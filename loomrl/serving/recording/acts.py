"""Acts of a session on record: the steps that were written together are one row of `calls`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from loomrl.errors import CorruptPayload
from loomrl.serving.recording.payload import pack_value, unpack_value
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.types import Steps

Form = tuple[Any, ...]
MARK = b"\xc1"
"""First byte of acts: no MessagePack begins with it, so that no call does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedActs:
    """Steps of one session, arm and version."""

    arm: str
    version: str
    steps: Steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NewActs:
    """Acts to be kept: those of one call, or of several that are written together."""

    session: str
    endpoint: str
    key: str
    """The id of the caller's key, never the key."""
    user: str = ""
    acts: RecordedActs

    @property
    def place(self) -> tuple[str, ...]:
        """Acts of equal place may be written together."""
        return self.session, self.endpoint, self.key, self.user, self.acts.arm, self.acts.version


def are_acts(payload: bytes) -> bool:
    """True if a recorded call was written by `encode_acts`."""
    return payload[:1] == MARK


def encode_acts(acts: RecordedActs) -> bytes:
    """The row's payload."""
    return MARK + pack_value(acts)


def decode_acts(payload: bytes) -> RecordedActs:
    """The acts of `encode_acts`; CorruptPayload for anything else."""
    try:
        acts: RecordedActs = unpack_value(payload[1:], RecordedActs)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise CorruptPayload(f"recorded acts cannot be read: {error}. Restore the store from a copy.") from None
    return acts


def together(new: Sequence[NewActs]) -> list[tuple[NewActs, list[int]]]:
    """The acts in as few rows as possible, each with the positions of its acts."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for position, one in enumerate(new):
        groups.setdefault((*one.place, form_of(one.acts.steps)), []).append(position)
    return [
        (
            replace(new[at[0]], acts=replace(new[at[0]].acts, steps=join_steps([new[each].acts.steps for each in at]))),
            at,
        )
        for at in groups.values()
    ]


def check_form(session: str, first: Form, steps: Steps) -> None:
    """A Refusal for steps that no sequence can hold together with the session's first one."""
    if (form := form_of(steps)) != first:
        message = (
            f"session {session!r:.100} began with steps of another form (observation, action, preference and earned): "
            f"{first}, not {form}. Keep to one in a session, or begin another under a new id."
        )
        raise Refusal(RefusalCause.INVALID, message, where="observation")


def join_steps(parts: Sequence[Steps]) -> Steps:
    """All steps, by time; ValueError if their observations have different forms."""
    if len(parts) == 1:
        return parts[0]
    if len(forms := {form_of(part) for part in parts}) > 1:
        raise ValueError(f"its observations have {len(forms)} different forms, which no sequence of steps can hold")
    times_T = np.concatenate([part.times_T for part in parts])
    order_T = np.argsort(times_T, kind="stable")

    def column(name: str) -> Any:
        return _order(_join([getattr(part, name) for part in parts]), order_T)

    return Steps(**{name: column(name) for name in Steps.__dataclass_fields__})


def _join(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        return {name: _join([value[name] for value in values]) for name in first}
    if isinstance(first, list | tuple):
        return [_join(list(part)) for part in zip(*values, strict=True)]
    return np.concatenate(values)


def _order(value: Any, order_T: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _order(part, order_T) for name, part in value.items()}
    return [_order(part, order_T) for part in value] if isinstance(value, list) else value[order_T]


def form_of(steps: Steps) -> Form:
    """The properties that joined steps share; the width of numbers may differ."""
    return _shape(steps.observations), _shape(steps.actions), _shape(steps.wishes)


def _shape(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return tuple((name, _shape(value[name])) for name in sorted(value))
    return tuple(map(_shape, value)) if isinstance(value, list | tuple) else value.shape[1:]
