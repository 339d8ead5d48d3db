"""Events without secrets: whoever finds nothing in one at once leaves it as it is, and hides nothing by that."""

import json
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from loomrl.bus.clean import NAMES, cleaned
from loomrl.bus.event import TRAJECTORY
from loomrl.safety.redaction import PatternRedactor, Redaction
from tests.bus.event_samples import foreign_event

TEXTS = st.sampled_from(
    ["ada@example.org", "password=hunter2-x9", "my PIN is 4711", "+49 30 1234567", "order 31877", ""]
)
OBJECTS = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["password", "token", "note", "ada@example.org"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def parsed(event: dict[str, Any]) -> Any:
    return TRAJECTORY.parse(json.dumps(event).encode())


@given(TEXTS, TEXTS, st.dictionaries(st.sampled_from(["apikey", "note", "content"]), OBJECTS, max_size=2), TEXTS)
def test_an_event_is_the_same_whether_it_was_looked_at_before_or_not(
    says: str, asks: str, found: dict[str, Any], session: str
) -> None:
    event = foreign_event(says=says, session_id=session)
    event["turns"][0]["observation"]["content"] = asks
    event["turns"][0]["action"]["tool_args"] = found
    event["turns"][1]["observation"]["their own"] = found
    with patch.object(Redaction, "finds_in", return_value=True):
        expected = cleaned(parsed(event), PatternRedactor())
    assert cleaned(parsed(event), PatternRedactor()) == expected


def test_names_of_the_contract_are_harmless() -> None:
    assert {"turns", "session_id", "tool_args", "total_tokens", "memory_state"} <= NAMES
    assert not Redaction(PatternRedactor()).finds_in(dict.fromkeys(NAMES, 1))
