"""Implicit feedback: what a session shows by itself, without anybody having said it. A pure function of its record.

`asked_again`  the person puts the question anew that the answer was for
`corrected`    the person says that the answer was wrong or not what was meant, or gives it back with changes
`left`         the session fell silent after an answer that was broken off, or with a tool's result still to come

All three are guesses, and made to be few: `loomrl.serving.feedback.phrase` says what is taken for what.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loomrl.canonical import content_hash
from loomrl.serving.feedback.phrase import asks_again, corrects, rewrites
from loomrl.serving.recording.record import Kept, Record, Words
from loomrl.serving.recording.trajectory import Session
from loomrl.types import Feedback

VALUES = {"asked_again": 0.2, "corrected": 0.2, "left": 0.0}


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answer, with the question that the person had asked before it."""

    record: Record
    words: Words
    question: str

    @property
    def call(self) -> str:
        """The answer's name in feedback."""
        return answer_name(self.record, self.words.index)


def answer_name(record: Record, index: int) -> str:
    """The name of one answer: its call's id, and its number if the call has several."""
    return record.id if len(record.choices) == 1 else f"{record.id}/{index}"


def signals(session: Session, calls: Sequence[Kept]) -> list[Feedback]:
    """The implicit feedback of an ended session; the same each time, under the same ids."""
    answers: dict[str, _Answered] = {}
    found: list[Feedback] = []
    for call in calls:
        record = call.record
        before = answers.get(record.parent)
        if before is not None:
            found += _reaction(session, before, record)
        question = _said(record) or ("" if before is None else before.question)
        for words in record.choices:
            answers[f"{record.id}/{words.index}"] = _Answered(record, words, question)
    return [*found, *_departure(session, [call.record for call in calls])]


def _reaction(session: Session, before: _Answered, record: Record) -> Iterator[Feedback]:
    """What the person's next words say of the answer before them.

    An answer that was broken off, or that a rule of ours replaced, was not judged.
    """
    said = _said(record)
    answer = before.words.text
    if not said or before.words.finish == "cancelled" or before.words.rule:
        return
    by = {"by": record.id}
    if corrects(answer, said):
        yield _feedback(session, "corrected", before.call, by, record.started_at)
    elif rewrites(answer, said):
        yield _feedback(session, "corrected", before.call, {**by, "text": said}, record.started_at)
    elif asks_again(before.question, said):
        yield _feedback(session, "asked_again", before.call, by, record.started_at)


def _departure(session: Session, records: Sequence[Record]) -> Iterator[Feedback]:
    """The session's end by silence, if something was still to come.

    A caller who always breaks off means nothing by it. A session that a rule of ours stopped may have had no way on:
    a block of ours is not the person's displeasure.
    """
    if session.ending.cause == "told" or not records or any(words.rule for one in records for words in one.choices):
        return
    last = max(records, key=lambda record: record.finished_at)
    finishes = {words.finish for words in last.choices}
    if finishes == {"cancelled"}:
        has_left = not any(_is_cut(record) for record in records if record is not last)
    else:
        has_left = finishes == {"tool_calls"} and any(_has_result(record) for record in records)
    if has_left:
        yield _feedback(session, "left", last.id, {}, session.ending.at)


def _said(record: Record) -> str:
    """The person's new words: the last message, if it is a user's."""
    last = record.messages[-1] if record.messages else None
    return last.text if last is not None and last.role == "user" else ""


def _is_cut(record: Record) -> bool:
    return any(words.finish == "cancelled" for words in record.choices)


def _has_result(record: Record) -> bool:
    return any(message.role == "tool" for message in record.messages)


def _feedback(session: Session, kind: str, call: str, data: Mapping[str, str], at: float) -> Feedback:
    return Feedback(
        id=f"fb-{content_hash(['implicit', session.id, kind, call])[:32]}",
        trajectory=session.id,
        source="implicit",
        kind=kind,
        value=VALUES[kind],
        created_at=at,
        call=call,
        data=data,
    )
