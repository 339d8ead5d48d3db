"""Secrets in all places of a call, and the search for what is left of them."""

import json
import random
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from loomrl.safety.redaction import PatternRedactor
from loomrl.serving.call import Ask, Drawing, Said, Tool, ToolCall
from loomrl.serving.policy import Continuation
from loomrl.serving.recording.acts import are_acts
from loomrl.serving.recording.payload import decode
from loomrl.store import LoomDB
from loomrl.store.tables import calls, metadata
from tests.safety.measure import classes, is_gone, planted
from tests.safety.tuned import key, password, person
from tests.serving.scripted import Script, decoded

PLACES = ("system", "user", "tool", "said arguments", "description", "answer", "arguments", "outcome", "comment")
WORD = 8
"""Bytes of a secret by which a trace of it is looked for first."""


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
    each = -(-count // len(forms)) + 1
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


def asked(plant: Plant) -> Ask:
    """A conversation with a tool's call and its result."""
    before = ToolCall(id="c0", name="look", arguments=json.dumps({"text": plant.at("said arguments", "orders")}))
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    tool = Tool(name="look", description=plant.at("description", "Looks things up."), parameters=schema)
    messages = (
        Said(role="system", text=plant.at("system", "Be brief.")),
        Said(role="user", text=plant.at("user", "Which orders are late?")),
        Said(role="assistant", text="", calls=(before,)),
        Said(role="tool", text=plant.at("tool", "none"), answers="c0"),
    )
    return replace(Ask(model="m", messages=messages, tools=(tool,), drawing=Drawing()), user="somebody")


def further(ask: Ask, said: Said, text: str) -> Ask:
    """The conversation goes on."""
    return replace(ask, messages=(*ask.messages, said, Said(role="user", text=text)))


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


def texts_in(db: LoomDB) -> list[bytes]:
    """Every text and every byte of every table; of calls also what their payloads and their ids say."""
    found: list[bytes] = []
    with db.read() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(select(table)):
                found += [_bytes(value) for value in row if isinstance(value, str | bytes | memoryview)]
        for row in connection.execute(select(calls.c.payload, calls.c.columns)):
            if not are_acts(bytes(row.payload)):
                call = decode(bytes(row.payload), None if row.columns is None else bytes(row.columns))
                found.append(str(call.record).encode("utf-8", "replace"))
                found += [decoded(one.ids_T).encode("utf-8", "replace") for one in call.columns]
    return found


def _bytes(value: str | bytes | memoryview) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)


def traces(data: Collection[bytes], secrets: Iterable[str]) -> list[str]:
    """The secrets of eight bytes and more that are in the data, as they are, or as JSON and `repr` write them."""
    forms = {form: secret for secret in secrets for form in _written(secret) if len(form) >= WORD}
    needles: dict[int, list[bytes]] = {}
    for form in forms:
        needles.setdefault(int.from_bytes(form[:WORD], "little"), []).append(form)
    beginnings = np.array(sorted(needles), np.uint64)
    whole = b"\0".join(data)
    return sorted({forms[form] for word in _words(whole, beginnings) for form in needles[word] if form in whole})


def _written(secret: str) -> Sequence[bytes]:
    plain = secret.splitlines()[1:-1] or [secret]  # of a file of a key, a line
    lines = [plain[0].strip(), secret]
    return [one.encode() for line in lines for one in (line, json.dumps(line)[1:-1], repr(line)[1:-1])]


def _words(data: bytes, wanted: NDArray[np.uint64]) -> set[int]:
    """Those of the wanted words that are anywhere in the data."""
    found: set[int] = set()
    for start in range(WORD):
        words = np.frombuffer(data, "<u8", count=(len(data) - start) // WORD, offset=start)
        found.update(map(int, np.unique(words[np.isin(words, wanted)])))
    return found
