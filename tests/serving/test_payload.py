"""A secret is in nothing that is stored: not as text, not as ids; and the running session does not notice."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from loomrl.safety.redaction import NoRedactor, PatternRedactor, Redaction
from loomrl.serving.call import ChatMessage, ChatRequest, Drawing, ToolCall, ToolSpec
from loomrl.serving.durable import StoreRecorder, open_recorder
from loomrl.serving.recording.naming import Naming
from loomrl.serving.recording.payload import decode, encode, private
from loomrl.serving.recording.record import CallToRecord, RecordedCall, SpokenChoice, make_recorded
from loomrl.store import LoomDB
from loomrl.store.erasures import delete_judgements, erase
from loomrl.store.sessions import placeholders
from loomrl.types import Form
from tests.serving.scripted import Desk, ask, decoded, encoded, reply, user

SECRETS = ["ghp_" + "aB3" * 12, "AKIAIOSFODNN7EXAMPLE", "ada.lovelace@example.org", "sk-proj-" + "xY9" * 10]
TEXTS = st.text(max_size=12)
SPACED = st.sampled_from(["", " ", "\n", "("])


@st.composite
def planted(draw: st.DrawFn) -> tuple[str, str]:
    """A text with a secret somewhere, and the secret."""
    secret = draw(st.sampled_from(SECRETS))
    before = draw(TEXTS.filter(lambda text: not text[-1:].isalnum()))
    return f"{before} {secret} {draw(TEXTS)}", secret


PLACES = ["user", "system", "tool", "answer", "arguments", "said arguments", "description", "parameters", "name",
          "stop", "form", "prompt", "prefill", "id"]  # fmt: skip


def call_with(place: str, text: str) -> CallToRecord:
    """A call with a text in one place; its ids are those of everything in it."""

    def at(name: str, other: str = "-") -> str:
        return text if place == name else other

    arguments = [
        ChatMessage(role="assistant", calls=(ToolCall(id="1", name="f", arguments=_json(at("said arguments"))),))
    ]
    messages = (ChatMessage(role="system", text=at("system")), user(at("user")), *arguments)
    messages += (ChatMessage(role="tool", text=at("tool"), answers=at("id")),)
    tool = ToolSpec(name=at("name"), description=at("description"), parameters={"x": {"default": at("parameters")}})
    drawing = Drawing(stop=(at("stop"),), form=Form("regex", at("form")))
    asked = ChatRequest(
        model="m", messages=messages, prefill=at("prefill", ""), tools=(tool,), drawing=drawing, user="u"
    )
    if place == "prompt":
        asked = replace(asked, messages=(), prompt=text)
    opened = np.array(encoded(text if place not in ("answer", "arguments") else "hello"), np.int32)
    ids = np.array(encoded(text if place in ("answer", "arguments") else "fine"), np.int32)
    choice = SpokenChoice(
        index=0,
        opened_T=opened,
        ids_T=ids,
        logprobs_T=np.full(len(ids), -0.5, np.float32),
        versions_T=np.zeros(len(ids), np.int32),
        text=at("answer"),
        calls=(ToolCall(id="2", name="f", arguments=_json(at("arguments"))),),
        finish="stop",
    )
    return CallToRecord(
        id="c", session="s", endpoint="e", arm="stable", version="v", parent="", dialect="d", ask=asked,
        choices=(choice,), key="k", started_at=0.0, finished_at=1.0,
    )  # fmt: skip


def _json(text: str) -> str:
    import json

    return json.dumps({"x": text})


def readable(call: RecordedCall) -> str:
    """All text that ids on record decode to."""
    return "".join(
        decoded(ids) for at in range(len(call.columns)) for ids in (call.opened_T(at), call.columns[at].ids_T)
    )


@pytest.mark.parametrize("place", PLACES)
@given(plant=planted())
@settings(max_examples=5)
def test_a_secret_is_not_in_what_is_stored(place: str, plant: tuple[str, str]) -> None:
    text, secret = plant
    payload, columns = encode(private(make_recorded(call_with(place, text), None), Redaction(PatternRedactor())))
    everything = payload + (columns or b"")
    for coding in ("utf-8", "utf-16-le", "utf-32-le"):
        assert secret.encode(coding) not in everything
    assert secret not in readable(decode(payload, columns))
    assert columns is None


@pytest.mark.parametrize("place", PLACES)
@given(text=TEXTS)
@settings(max_examples=4)
def test_what_has_no_secret_is_stored_as_it_is(place: str, text: str) -> None:
    before = make_recorded(call_with(place, text), None)
    if PatternRedactor().redact(text).kinds:
        return
    after = decode(*encode(private(before, Redaction(PatternRedactor()))))
    assert after.record == before.record
    assert [columns.ids_T.tolist() for columns in after.columns] == [c.ids_T.tolist() for c in before.columns]
    assert readable(after) == readable(before)


def test_text_that_is_no_unicode_is_stored_all_the_same() -> None:
    before = make_recorded(call_with("user", "half \ud800 surrogate"), None)
    after = decode(*encode(private(before, Redaction(NoRedactor()))))
    assert after.record.messages[1].text == "half \ufffd surrogate"


@pytest.mark.parametrize("change", [{"finish": "cancelled"}, {"prompt": (1, 2)}])
def test_tokens_that_nobody_can_look_into_are_not_stored(change: dict[str, Any]) -> None:
    call = call_with("user", "harmless")
    if "finish" in change:
        call = replace(call, choices=(replace(call.choices[0], **change),))
    else:
        call = replace(call, ask=replace(call.ask, messages=(), **change))
    assert private(make_recorded(call, None), Redaction(PatternRedactor())).lost
    assert not private(make_recorded(call, None), Redaction(NoRedactor())).lost


# -- in a running session ---------------------------------------------------------------------------------------------


def stored(folder: Path) -> bytes:
    """All bytes of the database and its log."""
    return b"".join(file.read_bytes() for file in sorted(folder.glob("loom.db*")))


async def test_the_running_session_goes_on_and_the_file_has_no_secret(sqlite_url: str, tmp_path: Path) -> None:
    store = open_recorder(sqlite_url)
    desk = Desk(store)
    secret = SECRETS[0]
    clean = await desk.call("s", ask(user("hello")))
    told = ask(*clean.ask.messages, reply(clean), user(f"my key is {secret}"))
    second = await desk.call("s", told)
    third = await desk.call("s", ask(*told.messages, reply(second), user("and now?")))
    assert (second.parent, third.parent) == (f"{clean.id}/0", f"{second.id}/0")
    made = await store.complete("s", outcome={"note": f"it said {secret}"})
    assert [turn.tokens is None for turn in made.turns] == [False, True, True], "without context nothing is learnt"
    assert secret not in str(made)
    await store.close()
    assert secret.encode() not in stored(tmp_path)
    ids = np.array(encoded(secret), np.int32)
    low, high = int(ids.min()), ids.tobytes()
    raw = stored(tmp_path)
    assert high not in raw
    for shift in range(low + 1):  # as narrow integers above a lowest one
        assert (ids - shift).astype(np.uint8).tobytes() not in raw


async def test_after_a_restart_such_a_thread_begins_anew(sqlite_url: str) -> None:
    store = open_recorder(sqlite_url)
    desk = Desk(store)
    first = await desk.call("s", ask(user(f"key {SECRETS[0]}")))
    await store.close()
    desk.recorder = again = open_recorder(sqlite_url)
    second = await desk.call("s", ask(*first.ask.messages, reply(first), user("more")))
    assert second.parent == ""
    made = await again.complete("s")
    assert [joined.tokens for turns in made.sequences for joined in turns] == [None, None]
    await again.close()


async def test_a_call_whose_parent_is_gone_has_no_tokens(sqlite_url: str) -> None:
    """Its new ids alone would be learnt without what came before them."""
    store: StoreRecorder = open_recorder(sqlite_url)
    desk = Desk(store)
    call = await desk.call("s", ask(user("a")))
    await store.keep(replace(call, id="orphan", parent="never/0"))
    made = await store.complete("s")
    assert made.turns[0].tokens is not None
    assert made.threads[0][0].tokens is None
    await store.close()


def test_marks_of_redacted_calls_are_not_stored_either(sqlite_url: str, tmp_path: Path) -> None:
    import asyncio

    async def one() -> None:
        store = open_recorder(sqlite_url)
        await Desk(store).call("s", ask(user(SECRETS[2])))
        await store.close()

    asyncio.run(one())
    with sqlite3.connect(tmp_path / "loom.db") as connection:
        assert connection.execute("SELECT count(*) FROM calls").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM answers").fetchone() == (0,)
    connection.close()


@pytest.mark.parametrize(
    ("first", "second", "halves"),
    [
        ("The first half of my password is Korb7xq", "and the second half is 9Lampe3", ("Korb7xq", "9Lampe3")),
        ("I will send you my password next.", "hunter2-x9", ("hunter2-x9",)),
        ("Wie lautet das Passwort?", "Falke-2291", ("Falke-2291",)),
    ],
)
async def test_a_secret_that_is_said_over_two_messages_leaves_text_and_tokens(
    first: str, second: str, halves: tuple[str, ...], sqlite_url: str, tmp_path: Path
) -> None:
    store = open_recorder(sqlite_url)
    desk = Desk(store)
    opening = await desk.call("s", ask(user(first)))
    told = ask(*opening.ask.messages, reply(opening), user(second))
    await desk.call("s", told)
    made = await store.complete("s")
    await store.close()
    assert made.turns[-1].tokens is None
    raw = stored(tmp_path)
    for half in halves:
        assert half not in str(made)
        assert half.encode() not in raw


ADA, BOB, KEY = "ada@example.org", "bob@example.org", "sk-proj-abcdefghijklmnopqrstuvwxyz012345"


def naming(store: LoomDB, secret: bytes = b"of the service") -> Naming:
    return Naming(store, PatternRedactor(), secret=secret)


def saying(text: str) -> Callable[[Redaction], str]:
    return lambda redaction: redaction.text(text)


def count(store: LoomDB) -> int:
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(placeholders)).scalar_one()


def test_a_value_has_one_number_in_a_session_whichever_gateway_meets_it(store: LoomDB) -> None:
    one, other = naming(store), naming(store)
    assert one.redact_for("s", saying(f"{ADA} and {KEY}")) == "<email-1> and <key-1>"
    assert other.redact_for("s", saying(f"{BOB} to {ADA.upper()}")) == "<email-2> to <email-1>"
    assert one.redact_for("s", saying(f"{BOB}, {KEY}")) == "<email-2>, <key-1>"
    assert other.redact_for("another", saying(BOB)) == "<email-1>", "nobody is followed from session to session"


def test_drafts_of_one_commit_are_named_together_and_in_their_order(store: LoomDB) -> None:
    one = naming(store)
    drafts = [one.draft("s", saying(text)) for text in (BOB, f"{ADA}, {BOB}", "nothing", ADA)]
    assert one.name_drafts(drafts) == ["<email-1>", "<email-2>, <email-1>", "nothing", "<email-2>"]


def test_numbers_begin_behind_those_that_a_text_came_with(store: LoomDB) -> None:
    assert naming(store).redact_for("s", saying(f"<email-4> knows {ADA}")) == "<email-4> knows <email-5>"


def test_what_is_on_record_cannot_be_tried_without_the_secret(store: LoomDB) -> None:
    naming(store).redact_for("s", saying(ADA))
    with store.read() as connection:
        known = {bytes(row.hash) for row in connection.execute(select(placeholders))}
    assert naming(store, b"a guess").redact_for("s", saying(ADA)) == "<email-2>", "another secret, another value"
    with store.read() as connection:
        assert known < {bytes(row.hash) for row in connection.execute(select(placeholders))}


def test_a_value_that_one_text_gives_away_has_its_placeholder_in_all(store: LoomDB) -> None:
    def work(redaction: Redaction) -> list[str]:
        return [redaction.text(text) for text in ("I entered hunter2-x9", "the password is hunter2-x9")]

    assert naming(store).redact_for("s", work) == ["I entered <password-1>", "the password is <password-1>"]


def test_numbers_go_with_the_session_and_those_of_late_feedback_with_the_trajectory(store: LoomDB) -> None:
    for session in ("forgotten", "too old", "another"):
        naming(store).redact_for(session, saying(ADA))
    erase(store, ["forgotten"])
    assert count(store) == 2
    with store.write() as connection:
        delete_judgements(connection, ["too old"])
    assert count(store) == 1
