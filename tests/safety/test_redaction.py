"""Redaction: findings, texts left alone, and the time it takes."""

import json
import logging
import string
import time
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loomrl.safety.assignment import WORDS
from loomrl.safety.pattern import OTHERS, PATTERNS, any_of
from loomrl.safety.placeholder import Counting
from loomrl.safety.redaction import PatternRedactor, Redaction
from loomrl.safety.redaction.finding import ScannedText, blank_blobs
from loomrl.safety.redaction.log import redacted_logger
from loomrl.safety.redaction.redactor import LAYERS
from tests.safety.heldout import key as heldout_key
from tests.safety.heldout import later
from tests.safety.heldout import password as heldout_password
from tests.safety.heldout import person as heldout_person
from tests.safety.measure import classes, planted

redactor = PatternRedactor()
LETTERS = string.ascii_letters + string.digits
BODY = "aB3" * 16
BLOCK = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n{BODY}\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "openai": f"sk-proj-{BODY}",
    "old openai": f"sk-{BODY}",
    "anthropic": f"sk-ant-api03-{BODY}",
    "github": f"ghp_{BODY[:36]}",
    "github fine": f"github_pat_{BODY}",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws_letters": "AKIANUCREAQTSUPACCRW",
    "slack": "xoxb-123456789012-abcdefABCDEF",
    "google": f"AIza{BODY[:35]}",
    "gitlab": f"glpat-{BODY[:20]}",
    "hugging face": f"hf_{BODY[:34]}",
    "stripe": f"sk_live_{BODY[:24]}",
    "ours": f"loom-{'0a1' * 4}-{'0a1b' * 12}",
    "jwt": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{BODY}",
    "private key": BLOCK,
    "email": "ada.lovelace+news@example.co.uk",
    "unicode email": "jürgen@köln.example.de",
}
ASSIGNED = {
    "password=hunter2": "hunter2",
    "PASSWORD: 'correct horse battery'": "correct horse battery",
    'DB_PASSWORD = "p,a;s s"': "p,a;s s",
    '{"user": "x", "password": "tr0ub4dor&3"}': "tr0ub4dor&3",
    '{\\"token\\": \\"abcdef123456\\"}': "abcdef123456",
    "client_secret=abc.def": "abc.def",
    "Authorization: Bearer abcdef": "abcdef",
    "my password is hunter2": "hunter2",
    "api_key=1234567": "1234567",
    "pwd=1234": "1234",
    "postgresql://loom:swordfish@db/x": "swordfish",
}
HARMLESS = [
    "The password is wrong.",
    "max_token: 2048, token = None",
    "A task-management-system-for-everyone and risk-assessment",
    "commit 4edbfe0a9c1b2d3e4f5061728394a5b6c7d8e9f0 of 2026-11-23",
    "login(user, password)",
    "see @alice, 3 @ 4, a@b",
    "https://example.com:8080/a?b=c#d",
    "def f(x): return x['key'] + 1  # <email-1>",
]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("around", ["{}", "use {}, please", "({})", '"{}"', "a\n{}\nb", "k:{}"])
def test_a_secret_goes_and_the_rest_stays(secret: str, around: str) -> None:
    redacted = redactor.redact(around.format(secret))
    assert secret not in redacted.text
    assert redacted.kinds
    assert redacted.text.startswith(around.partition("{}")[0])


@pytest.mark.parametrize("text", ASSIGNED)
def test_an_assigned_value_goes(text: str) -> None:
    redacted = redactor.redact(text)
    assert ASSIGNED[text] not in redacted.text
    assert redacted.kinds


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_text_stays(text: str) -> None:
    assert redactor.redact(text).text == text
    assert not redactor.redact(text).kinds


PIECES = [*SECRETS.values(), *ASSIGNED, *HARMLESS, "password", "=", ": ", '"', "'", "\\", "@", "<key-1>", "sk-"]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=6).map("".join))
@example("password=<key-1>x")
@example("token: <email-1> ")
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redactor.redact(text)
    twice = redactor.redact(once.text)
    assert twice.text == once.text
    assert not twice.kinds


UNITS = [
    *(
        "a",
        "1",
        "=",
        "/",
        "é",
        "\n",
        "a ",
        "a@",
        "@",
        "a.",
        "a.b.",
        "a@b.",
        "sk-",
        "Aa1-",
        "aB3/",
        "eyJa.",
        "eyJaaaaaaaaa.",
    ),
    *(
        "password",
        "password=",
        'password="',
        "password: ",
        "token=",
        "key = value1 ",
        'token:"',
        "token: str = ",
        "密码:",
    ),
    *("://a:", "://a:b@", "https://hooks/", "http://x/?token=a&", "<email-", "<email-1>", " ", '"', "\\", '\\"', "“"),
    *("password is ", "the password ", "my password is ", "pass:\n", "user a, pass ", "login x ", "curl -u ", "mysql "),
    *("-----BEGIN PRIVATE KEY", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN CERTIFICATE-----", "<D>aaaa", "AAAA"),
    *("1234 ", "4111 1111 ", "+49 30 ", "+1 (415) 555-", "call 1 2 3 ", "id 12345 ", "GB12 ", "1.2.3.4.", "2a01::"),
    *(
        "a at b dot ",
        "[at]",
        "&#64;",
        "authorization: ",
        "Digest x ",
        "cookie a=b ",
        "\ttrue\t",
        '{"password":',
        "--password ",
    ),
    *(
        'variable "password" { ',
        "machine x login y ",
        '<name="password" ',
        "<password>",
        "seed phrase apple ",
        "user id=a;",
    ),
    *("private key ", "0123456789abcdef", "a-b_c.d/", "data:base64,", "sha256:", "$5$", "passphrase: apple "),
]


FORMS = [*PIECES, "AGE-SECRET-KEY-1" + "A" * 20, "ya29." + BODY, "SG." + BODY + "." + BODY, "Bearer " + BODY]
FORMS += [f"{name}_{BODY}" for name in OTHERS.split("|")] + ["xapp-12345678", "a%40b.org", "Paßwort", "PAſſWORD=12345"]


@given(st.lists(st.sampled_from(FORMS) | st.text(max_size=4), max_size=5).map("".join))
@example("PAſſWORD=12345")
def test_a_text_that_has_a_form_has_a_hint_of_it(text: str) -> None:
    for pattern in PATTERNS:
        assert pattern.is_possible(text.casefold()) or not any(pattern.matches(text))


@given(st.lists(st.sampled_from(FORMS + UNITS) | st.text(max_size=4), max_size=6).map("".join))
@example("AT&T: a [ÄT] b.org")
@example("2abc:1::5")
@example("abcdefabcdefabcdefabcdefabcdefab.abcdefabcdefabcdefabcdefabcdefab")
def test_a_layer_that_finds_something_was_possible(text: str) -> None:
    _check_possible(text)


@pytest.mark.parametrize("module", [heldout_key, later, heldout_password, heldout_person], ids=lambda one: one.__name__)
def test_layers_are_possible_wherever_they_find_a_planted_secret(module: ModuleType) -> None:
    for name, forms in classes(module).items():
        for _, one in planted(name, forms, 1):
            _check_possible(one.text)
            _check_possible(one.text.upper())


def _check_possible(text: str) -> None:
    page = ScannedText(text)
    assert page.bare == blank_blobs(text)
    for layer in LAYERS:
        assert layer.is_possible(page) or not [*layer.find(page)]


@given(
    st.from_regex(r"[A-Za-z]{1,8}-[0-9]{1,6}", fullmatch=True)
    | st.builds("{}-{}".format, st.sampled_from([*WORDS, "AKIA", "xoxb", "sk", "ssn", "tel"]), st.integers(0, 999_999))
    | st.uuids().map(str)
)
def test_nothing_is_ever_found_in_what_is_numbered_and_in_random_ids(text: str) -> None:
    """So nobody looks."""
    page = ScannedText(text)
    assert not [one for layer in LAYERS for one in layer.find(page)]
    assert not [match for pattern in PATTERNS for match in pattern.matches(text) if pattern.secret(match)]


@given(st.text("abc.|", max_size=8), st.lists(st.text("abc.|", min_size=1, max_size=3), min_size=1, max_size=4))
def test_one_search_for_many_texts_finds_any_of_them(text: str, sought: list[str]) -> None:
    assert (any_of(sought).search(text) is not None) == any(one in text for one in sought)


@pytest.mark.parametrize("size", [8_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_the_time_is_linear(size: int) -> None:
    """Of four times the text four times the time; of a square it would be sixteen.

    Short texts may be cheaper than that: 30 µs for a character are always granted.
    """

    def took(text: str) -> float:
        started = time.thread_time()
        redactor.find(text)
        return time.thread_time() - started

    for unit in UNITS:
        few, many = unit * (size // 4 // len(unit)), unit * (size // len(unit))
        most = max(9 * took(few), 3e-5 * size)
        assert any(took(many) < most for _ in range(3)), f"{unit!r} * {size // len(unit)}"


def test_many_values_take_a_linear_time_as_well() -> None:
    def took(count: int) -> float:
        text = "".join(f'password="pw{number:07d}x" ada{number}@example.org\n' for number in range(count))
        started = time.thread_time()
        found = redactor.find(text)
        assert len(found) == 2 * count
        return time.thread_time() - started

    small = min(took(200) for _ in range(3))
    assert any(took(1600) < 20 * small for _ in range(5)), "a square would be sixty-four"


def test_json_stays_json_and_names_promise_secrets() -> None:
    redaction = Redaction(redactor)
    text = json.dumps({"to": "ada@example.com", "db": {"password": "x y z", "port": 5432}, "list": ["é"]})
    clean = json.loads(redaction.json(text))
    assert clean == {"to": "<email-1>", "db": {"password": "<password-1>", "port": 5432}, "list": ["é"]}
    assert set(redaction.kinds) == {"email", "password"}


def test_json_without_findings_stays_as_it_was_written() -> None:
    redaction = Redaction(redactor)
    assert redaction.json('{"a" : "\\u00e9"}') == '{"a" : "\\u00e9"}'
    assert not redaction.kinds


def test_a_secret_that_json_would_drop_is_found() -> None:
    redaction = Redaction(redactor)
    assert "hunter2" not in redaction.json('{"password": "hunter2", "password": ""}')
    assert redaction.kinds


# -- placeholders -----------------------------------------------------------------------------------------------------


def test_the_same_value_has_the_same_placeholder_and_another_the_next() -> None:
    text = "ada@example.org wrote to alan@example.org; Ada@Example.org waits. +49 30 1234567, or (+49) 30-1234567."
    expected = "<email-1> wrote to <email-2>; <email-1> waits. <phone-1>, or <phone-1>."
    assert redactor.redact(text).text == expected


def test_placeholders_in_a_text_keep_their_numbers() -> None:
    assert redactor.redact("<email-1> and <email-7> know ada@example.org").text == (
        "<email-1> and <email-7> know <email-8>"
    )


def test_values_are_named_together() -> None:
    redaction = Redaction(redactor, Counting())
    assert redaction.value({"from": "ada@example.org", "text": "ada@example.org, alan@example.org"}) == {
        "from": "<email-1>",
        "text": "<email-1>, <email-2>",
    }


def test_findings_say_where_they_are_in_the_text() -> None:
    text = "to ada@example.org: password=hunter2, and again password=hunter2"
    assert [text[one.start : one.end] for one in redactor.find(text)] == ["ada@example.org", "hunter2", "hunter2"]


def test_what_one_place_gives_away_is_gone_from_all() -> None:
    assert redactor.redact("the password is hunter2-x9. Enter hunter2-x9!").text.count("<password-1>") == 2
    redaction = Redaction(redactor)
    messages = ["I tried hunter2-x9 at once", "my password is hunter2-x9"]
    clean = redaction.whole(lambda one: [one.text(text) for text in messages])
    assert clean == ["I tried <password-1> at once", "my password is <password-1>"]


def test_a_word_or_a_short_number_is_no_echo() -> None:
    text = "my password is swordfish\nI like swordfish. The PIN is 1984\nIn 1984 it rained."
    assert redactor.redact(text).text == (
        "my password is <password-1>\nI like swordfish. The PIN is <password-2>\nIn 1984 it rained."
    )


@pytest.mark.parametrize("before", range(0, 60, 3))
def test_a_password_in_a_long_line_of_json_is_found(before: int) -> None:
    fields = {f"f{number}": "v" * (number % 5) if number % 3 else number for number in range(before)}
    assert "hunter2" not in redactor.redact(json.dumps({**fields, "password": "hunter2-x9"})).text


@pytest.mark.parametrize("text", ["GET /users?email=ada@example.org", "no address at all"])
def test_lines_of_a_log_are_redacted(text: str, caplog: pytest.LogCaptureFixture) -> None:
    log = redacted_logger("loomrl.tests.redacted")
    try:
        raise ValueError(f"cannot read {text!r}")
    except ValueError:
        log.exception("failed: %s", text)
    (record,) = caplog.records
    written = logging.Formatter().format(record)
    assert "ada@example.org" not in written + str(record.args)
    assert ("<email-1>" in written) == ("@" in text)
    assert "Traceback" in written
