"""What a caller says of an answer, as it is read from JSON. Closed and bounded; a Refusal names what is wrong.

`session` (or `trajectory`: the same id) and `call` say which answer it is about, and one field what is said of it:
`thumb`, `stars`, `correction`, `over`, `abandoned`, `outcome`; or `comment` alone, which may also stand beside another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loomrl.serving.dialect.fields import Fields, check_bounds, invalid

LONGEST_COMMENT = 8_192
LONGEST_CORRECTION = 32_768
"""Characters."""
LATEST = 1e11
"""The last second of `created_at` that is a time at all: the year 5138."""
MOST_STARS = 5
CORRECTED = 0.2
NO_OPINION = 0.5
THUMBS = {"up": 1.0, "down": 0.0}
PREFIXES = ("chatcmpl-", "cmpl-", "resp_", "msg_")
"""Of the ids that dialects give to answers."""
WAYS = ("thumb", "stars", "correction", "over", "abandoned", "outcome")
"""One of these is said; or nothing but a comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlace:
    """The answer that is meant: a call, or all of a session."""

    session: str = ""
    call: str = ""
    index: int | None = None
    """Of the call's choices, if one is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One judgement."""

    place: AnswerPlace
    kind: str
    source: str
    value: float
    comment: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    over: AnswerPlace | None = None
    """Of a choice: the answer that was not taken."""
    id: str = ""
    """The caller's own; a repeated one stores nothing more."""
    created_at: float | None = None


def read_told(body: Mapping[str, Any], *, session: str = "", key: str = "") -> Told:
    """The judgement in a request's body. `session` and `key` (of idempotency) come from its path and headers."""
    check_bounds(body)
    fields = Fields(body)
    place = _place(fields, session)
    comment = _words(fields, "comment", LONGEST_COMMENT)
    id = fields.name("id", "")
    if id and key and id != key:
        raise invalid("id", "it differs from the header Idempotency-Key: give one of them.")
    created_at = fields.number("created_at", 0, LATEST)
    ways = [name for name in WAYS if fields.take(name) is not None]
    fields.end()
    if len(ways) > 1:
        raise invalid(ways[1], f"it stands beside {ways[0]!r}: send one judgement at a time.")
    kind, source, value, data, over = _judgement(fields, ways[0] if ways else "comment", comment)
    return Told(
        place=place,
        kind=kind,
        source=source,
        value=value,
        comment=comment,
        data=data,
        over=over,
        id=id or _name(key),
        created_at=created_at,
    )


Judgement = tuple[str, str, float, Mapping[str, Any], AnswerPlace | None]


def _judgement(fields: Fields, way: str, comment: str) -> Judgement:
    """Kind, source, value, data, and the other answer of a choice."""
    if way == "thumb":
        return "thumb", "human", THUMBS[fields.choice("thumb", tuple(THUMBS))], {}, None
    if way == "stars":
        stars = fields.number("stars", 0, MOST_STARS)
        return "stars", "human", (stars or 0.0) / MOST_STARS, {}, None
    if way == "correction":
        text = _words(fields, "correction", LONGEST_CORRECTION)
        if not text.strip():
            raise invalid("correction", "it is empty: give the answer that would have been right.")
        return "correction", "human", CORRECTED, {"text": text}, None
    if way == "over":
        part = fields.part("over")
        assert part is not None, "it is there"
        other = _place(part, "")
        part.end()
        return "choice", "human", 1.0, {}, other
    if way == "abandoned":
        if fields.take("abandoned") is not True:
            raise invalid("abandoned", "it can only be true: leave it out otherwise.")
        return "abandoned", "caller", 0.0, {}, None
    if way == "outcome":
        return _outcome(fields)
    if not comment.strip():
        raise invalid("", f"nothing is said of the answer. Give one of {', '.join(WAYS)}, comment.")
    return "comment", "human", NO_OPINION, {}, None


def _outcome(fields: Fields) -> Judgement:
    """What only the caller knows. The value is the success, or the reward as far as it lies within 0..1."""
    part = fields.part("outcome")
    assert part is not None, "it is there"
    success = part.take("success")
    if isinstance(success, bool):
        success = float(success)
    else:
        success = part.number("success", 0, 1)
    reward = part.number("reward", -1e308, 1e308)
    part.end()
    told = {name: value for name, value in (("reward", reward), ("success", success)) if value is not None}
    if not told:
        raise invalid("outcome", "it says nothing: give reward, success, or both.")
    return "outcome", "caller", success if success is not None else min(1.0, max(0.0, told["reward"])), told, None


def _place(fields: Fields, session: str) -> AnswerPlace:
    """`session` is the one that path or header name."""
    given = {name: fields.name(name, "") for name in ("session", "trajectory")}
    names = sorted({name for name in (*given.values(), session) if name})
    if len(names) > 1:
        where = fields.path("trajectory" if given["trajectory"] else "session")
        raise invalid(where, f"two sessions are named, {names[0]!r} and {names[1]!r}: give one.")
    call, index = _call(fields)
    if not names and not call:
        raise invalid(
            fields.path("session"), "the field is missing: say what it is about by session, trajectory or call."
        )
    return AnswerPlace(session=names[0] if names else "", call=call, index=index)


def _call(fields: Fields) -> tuple[str, int | None]:
    """The id of a call, as an answer shows it, and the choice behind a slash."""
    name = fields.name("call", "")
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    call, slash, index = name.partition("/")
    if slash and not (index.isdecimal() and index.isascii() and len(index) < 4):
        raise invalid(fields.path("call"), f"{name[:60]!r}: a choice is named by its number, as in CALL/1.")
    return call, int(index) if slash else None


def _words(fields: Fields, name: str, most: int) -> str:
    text = fields.text(name, "")
    if len(text) > most:
        raise invalid(fields.path(name), f"{len(text)} characters are more than {most}.")
    if "\0" in text:
        raise invalid(fields.path(name), "NUL cannot be stored.")
    return text


def _name(key: str) -> str:
    return Fields({"Idempotency-Key": key}).name("Idempotency-Key", "") if key else ""
