"""Secrets in all places of a call, and the search for what is left of them."""

import json
import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sqlalchemy import select

from loomrl.safety.redaction import PatternRedactor
from loomrl.serving.call import ChatMessage, ChatRequest, Drawing, ToolCall, ToolSpec
from loomrl.serving.policy import Continuation
from loomrl.serving.recording.acts import are_acts
from loomrl.serving.recording.payload import decode
from loomrl.store import LoomDB
from loomrl.store.log import metadata
from loomrl.store.sessions import CALLS
from tests.safety.measure import classes, is_gone, planted
from tests.safety.tuned import key, password, person
from tests.serving.scripted import Script, decoded

PLACES = ("system", "user", "tool", "said arguments", "description", "answer", "arguments", "outcome", "comment")
WORD = 8
"""Bytes of a secret by which a trace of it is looked for first."""
LOW = np.uint64(0xFFFFFF)
BATCH = 16 << 20


@dataclass(frozen=True, slots=True)
class Plant:
    """A text with secrets in it, which redaction finds in the text alone, and where it goes."""

    text: str
    secrets: tuple[str, ...]
    places: frozenset[str]

    def at(self, place: str, other: str) -> str:
        """The text of a place."""
        return self.text if place in self.places else other


def plants(count: int) -> list[Plant]:
    """So many, of all classes in turn. One in five trajectories has none."""
    forms = [(name, form) for module in (key, password, person) for name, form in _forms(module)]
    each = -(-2 * count // len(forms))
    redactor, rng, found = PatternRedactor(), random.Random(0), []
    for number, (name, form) in enumerate(forms):
        for _, one in planted(f"{name}/{number}", [form], each):
            if all(is_gone(secret, redactor.redact(one.text).text) for secret in one.secrets):
                places = frozenset(rng.sample(PLACES, rng.randint(1, 3)))
                found.append(Plant(one.text, one.secrets, places if rng.random() < 0.8 else frozenset()))
    rng.shuffle(found)
    assert len(found) >= count, "redaction misses too many of the forms that it was made for"
    return found[:count]


def _forms(module: object) -> Iterable[tuple[str, object]]:
    return [(name, form) for name, forms in classes(module).items() for form in forms]  # type: ignore[arg-type]


@dataclass
class Echo(Script):
    """Answers with what is planted in an answer, and in the arguments of a call."""

    plant: Plant = field(default_factory=lambda: Plant("", (), frozenset()))

    def _answer(self, continuation: Continuation) -> "tuple[str, tuple[ToolCall, ...], str]":
        text = self.plant.at("answer", "It is done.")
        if "arguments" not in self.plant.places or not continuation.tools:
            return text, (), "stop"
        arguments = json.dumps({"query": self.plant.text, "deep": [{"note": "as told"}]})
        return text, (ToolCall(id="call-1", name="look", arguments=arguments),), "tool_calls"


def asked(plant: Plant) -> ChatRequest:
    """A conversation with a tool's call and its result."""
    before = ToolCall(id="c0", name="look", arguments=json.dumps({"text": plant.at("said arguments", "orders")}))
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    tool = ToolSpec(name="look", description=plant.at("description", "Looks things up."), parameters=schema)
    messages = (
        ChatMessage(role="system", text=plant.at("system", "Be brief.")),
        ChatMessage(role="user", text=plant.at("user", "Which orders are late?")),
        ChatMessage(role="assistant", text="", calls=(before,)),
        ChatMessage(role="tool", text=plant.at("tool", "none"), answers="c0"),
    )
    return replace(ChatRequest(model="m", messages=messages, tools=(tool,), drawing=Drawing()), user="somebody")


def further(ask: ChatRequest, said: ChatMessage, text: str) -> ChatRequest:
    """The conversation goes on."""
    return replace(ask, messages=(*ask.messages, said, ChatMessage(role="user", text=text)))


def foreign(plant: Plant) -> dict[str, Any]:
    """The same as another agent's event."""
    at, time = plant.at, "2026-01-31T12:00:00Z"
    call = {"type": "tool_call", "tool_name": "look", "tool_args": {"query": at("arguments", "late")}}
    first = {
        "turn_id": 1,
        "timestamp": time,
        "observation": {"type": "user_message", "content": at("user", "Which orders?")},
        "thought_process": [at("description", "They are in a table.")],
        "action": call,
        "result": {"success": True, "output": {"found": [at("tool", "none")]}},
    }
    last = {
        "turn_id": 2,
        "timestamp": time,
        "observation": {"type": "tool_result", "content": {"found": [at("tool", "none")]}},
        "action": {"type": "response", "raw_response": at("answer", "Done.")},
        "result": {"success": False, "error": at("outcome", "none")},
    }
    return {
        "trajectory_id": str(uuid.uuid4()),
        "session_id": at("said arguments", "session 1"),
        "agent_id": "zero",
        "start_timestamp": time,
        "end_timestamp": time,
        "turns": [first, last],
        "task_context": {"task_id": "t-1", "instructions": at("system", "Help."), "domain": "general"},
        "metadata": {"model": "theirs", "note": at("comment", "none")},
    }


# -- what is left -----------------------------------------------------------------------------------------------------


def texts_in(db: LoomDB) -> Iterator[bytes]:
    """Every text and every byte of every table; of calls also what their payloads and their ids say."""
    with db.read() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(select(table)):
                yield from (_bytes(value) for value in row if isinstance(value, str | bytes | memoryview))
        for row in connection.execute(select(CALLS.c.payload, CALLS.c.columns)):
            if not are_acts(bytes(row.payload)):
                call = decode(bytes(row.payload), None if row.columns is None else bytes(row.columns))
                yield str(call.record).encode("utf-8", "replace")
                yield from (decoded(one.ids_T).encode("utf-8", "replace") for one in call.columns)


def _bytes(value: str | bytes | memoryview) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)


class Search:
    """Looks for secrets of eight bytes and more, as they are, or as JSON and `repr` write them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms = {form: secret for secret in secrets for form in _written(secret) if len(form) >= WORD}
        self._needles: dict[int, list[bytes]] = {}
        for form in self._forms:
            self._needles.setdefault(int.from_bytes(form[:WORD], "little"), []).append(form)
        self._wanted = np.array(sorted(self._needles), np.uint64)
        self._may_be = np.zeros(1 << 24, np.bool_)
        self._may_be[self._wanted & LOW] = True
        self.left: set[str] = set()
        """The secrets that were found."""

    def look(self, pieces: Iterable[bytes]) -> None:
        """Look through pieces of data."""
        batch, size = [], 0
        for piece in pieces:
            batch.append(piece)
            size += len(piece)
            if size > BATCH:
                self._look(b"\0".join(batch))
                batch, size = [], 0
        self._look(b"\0".join(batch))

    def _look(self, data: bytes) -> None:
        for start in range(min(WORD, max(0, len(data) - WORD + 1))):
            words = np.frombuffer(data, "<u8", count=(len(data) - start) // WORD, offset=start)
            near = words[self._may_be[words & LOW]]
            for word in map(int, np.unique(near[np.isin(near, self._wanted)])):
                self.left.update(self._forms[form] for form in self._needles[word] if form in data)


def _written(secret: str) -> Sequence[bytes]:
    plain = secret.splitlines()[1:-1] or [secret]  # of a file of a key, a line
    lines = [plain[0].strip(), secret]
    return [one.encode() for line in lines for one in (line, json.dumps(line)[1:-1], repr(line)[1:-1])]
