"""Plain texts: what escapes and odd signs stand for, and where it stands in the original."""

import html
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.safety.redaction import PatternRedactor
from loomrl.safety.redaction.plain import PlainText, may_be_disguised

WRITTEN = st.text("ab \"'&<>%\\/+=\n\u00e4\uff41\u200b\u00a0\U0001d400\ufb01", max_size=30)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "disguise", [lambda text: json.dumps({"x": text}), lambda text: quote(text, safe=""), html.escape]
)
def test_a_value_is_found_through_escapes_in_escapes(disguise: object, depth: int) -> None:
    text = 'password: "Korb7-lampe"'
    for _ in range(depth):
        text = disguise(text)  # type: ignore[operator]
    redacted = PatternRedactor().redact(text).text
    assert "Korb7-lampe" in text
    assert "<password-1>" in redacted
    assert not any(part in redacted for part in ("Korb7", "lampe"))


@given(WRITTEN)
def test_every_span_of_the_plain_text_is_one_of_the_original(text: str) -> None:
    plain = PlainText(text)
    assert may_be_disguised(text) or plain.text == text
    size, at = len(plain.text), 0
    for place in range(size):
        start, end = plain.back(place, place + 1)
        assert at <= start < end <= len(text)
        at = start
    if size:
        assert plain.back(0, size)[1] <= len(text)


def test_signs_of_full_width_are_redacted_where_they_stand() -> None:
    redacted = PatternRedactor().redact("メモ：ｐａｓｓｗｏｒｄ：Ｋｏｒｂ７！ｘ").text
    assert redacted == "メモ：ｐａｓｓｗｏｒｄ：<password-1>"
