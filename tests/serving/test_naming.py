"""Placeholders of sessions: on record, on both databases, the same for every gateway."""

from collections.abc import Callable

from sqlalchemy import func, select

from loomrl.safety.redaction import PatternRedactor, Redaction
from loomrl.serving.recording.naming import Naming
from loomrl.store import LoomDB
from loomrl.store.erasures import delete_judgements, erase
from loomrl.store.sessions import placeholders

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
    assert one.redacted("s", saying(f"{ADA} and {KEY}")) == "<email-1> and <key-1>"
    assert other.redacted("s", saying(f"{BOB} to {ADA.upper()}")) == "<email-2> to <email-1>"
    assert one.redacted("s", saying(f"{BOB}, {KEY}")) == "<email-2>, <key-1>"
    assert other.redacted("another", saying(BOB)) == "<email-1>", "nobody is followed from session to session"


def test_drafts_of_one_commit_are_named_together_and_in_their_order(store: LoomDB) -> None:
    one = naming(store)
    drafts = [one.draft("s", saying(text)) for text in (BOB, f"{ADA}, {BOB}", "nothing", ADA)]
    assert one.named(drafts) == ["<email-1>", "<email-2>, <email-1>", "nothing", "<email-2>"]


def test_numbers_begin_behind_those_that_a_text_came_with(store: LoomDB) -> None:
    assert naming(store).redacted("s", saying(f"<email-4> knows {ADA}")) == "<email-4> knows <email-5>"


def test_what_is_on_record_cannot_be_tried_without_the_secret(store: LoomDB) -> None:
    naming(store).redacted("s", saying(ADA))
    with store.read() as connection:
        known = {bytes(row.hash) for row in connection.execute(select(placeholders))}
    assert naming(store, b"a guess").redacted("s", saying(ADA)) == "<email-2>", "another secret, another value"
    with store.read() as connection:
        assert known < {bytes(row.hash) for row in connection.execute(select(placeholders))}


def test_a_value_that_one_text_gives_away_has_its_placeholder_in_all(store: LoomDB) -> None:
    def work(redaction: Redaction) -> list[str]:
        return [redaction.text(text) for text in ("I entered hunter2-x9", "the password is hunter2-x9")]

    assert naming(store).redacted("s", work) == ["I entered <password-1>", "the password is <password-1>"]


def test_numbers_go_with_the_session_and_those_of_late_feedback_with_the_trajectory(store: LoomDB) -> None:
    for session in ("forgotten", "too old", "another"):
        naming(store).redacted(session, saying(ADA))
    erase(store, ["forgotten"])
    assert count(store) == 2
    with store.write() as connection:
        delete_judgements(connection, ["too old"])
    assert count(store) == 1
