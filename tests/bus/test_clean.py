"""Events without secrets, also without those that are said over two messages."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loomrl.bus.clean import cleaned
from loomrl.bus.event import TRAJECTORY
from loomrl.safety.redaction import PatternRedactor
from tests.bus.event_samples import foreign_event

TEXTS = st.sampled_from(
    ["ada@example.org", "password=hunter2-x9", "my PIN is 4711", "+49 30 1234567", "order 31877", ""]
)


def parsed(event: dict[str, Any]) -> Any:
    return TRAJECTORY.parse(json.dumps(event).encode())


@given(TEXTS, TEXTS, st.dictionaries(st.sampled_from(["note", "content"]), st.integers() | st.none(), max_size=2))
def test_an_event_changes_only_where_something_was_found(says: str, asks: str, found: dict[str, Any]) -> None:
    event = foreign_event(says=says)
    event["turns"][0]["observation"]["content"] = asks
    event["turns"][0]["action"]["tool_args"] = found
    before = parsed(event)
    after, kinds = cleaned(before, PatternRedactor())
    assert (after == before) is (kinds == ())
    assert bool(kinds) is any(PatternRedactor().find(text) for text in (says, asks))


def test_both_halves_of_a_secret_leave_an_event() -> None:
    event = foreign_event(says="And what is the rest?")
    event["turns"][0]["observation"]["content"] = "The first half of the password is Korb7x"
    event["turns"][1]["observation"]["content"] = "and the second half is Lampe3"
    clean, kinds = cleaned(parsed(event), PatternRedactor())
    assert kinds
    assert not {"Korb7x", "Lampe3"} & set(json.dumps(clean, default=str).replace('"', " ").split())
