"""Secrets as arguments: of functions that log in, of forms that are filled in, of codes for cameras, before a host."""

import re

from loomrl.safety.assignment import promise_of
from loomrl.safety.randomness import is_wordy
from loomrl.safety.redaction.rule import Rule
from loomrl.safety.redaction.said import is_mixed

_LOGIN = r"(?:log_?in|log_?on|sign_?in|auth|credential|passw(?:or)?d)\w{0,30}"
_CALLS = (
    "login(",
    "logon(",
    "_in(",
    "_on(",
    "signin(",
    "auth(",
    "auth=",
    "cate(",
    "rize(",
    "credential",
    "word(",
    "passwd(",
)
"""Functions, and settings of clients, that take a name and its password."""
_ARGUMENT = r"(?:\w{1,30}\s?[=:]\s?)?(?:\"[^\"\n]{0,120}\"|'[^'\n]{0,120}'|[\w.@]{1,60})"
_QUOTED = r"(?:\w{1,30}\s?[=:]\s?)?[\"'](?P<secret>[^\"'\n]{3,200})[\"']"
_BARE = r"(?P<secret>[^\s\"'(){}\[\],;]{6,80})"


def _is_argument(value: str) -> bool:
    """True for what may be a password in quotes: no path, no sentence, no name of a field."""
    return (
        " " not in value and not value.startswith(("/", "http")) and promise_of(value) is None and not value.isupper()
    )


def _is_drawn_argument(value: str) -> bool:
    """True for what is no word either, and no name of a host or a file."""
    is_named = re.fullmatch(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?", value) is not None
    return _is_argument(value) and is_mixed(value) and not is_named and not value.isdigit()


def _is_bare_argument(value: str) -> bool:
    """True for what is no variable and no number."""
    is_named = value.isidentifier() or re.fullmatch(r"[\w.]+", value) is not None
    return any(map(str.isdigit, value)) and not value.isdigit() and (not is_named or not is_wordy(value))


def _is_before_host(value: str) -> bool:
    return is_mixed(value) and promise_of(value) is None and not value.isdigit()


RULES: tuple[Rule, ...] = (
    Rule(
        signs=_CALLS,
        form=re.compile(
            rf"{_LOGIN}\s?[(=]\(?\s{{0,8}}(?:{_ARGUMENT},\s{{0,8}}){{1,4}}{_QUOTED}\s{{0,8}},?\s{{0,8}}[)\]]", re.I
        ),
        check=_is_argument,
    ),
    Rule(
        signs=("password(", "passwd(", "pwd(", "passphrase(", "passcode("),
        form=re.compile(
            rf"(?:set|change|update|reset|use|with|enter|type|check|verify|hash)_?(?:passw(?:or)?d|pwd|passphrase|passcode)"
            rf"\(\s?{_QUOTED}\s?[,)]",
            re.IGNORECASE,
        ),
        check=_is_argument,
    ),
    Rule(
        signs=_CALLS,
        form=re.compile(rf"{_LOGIN}\(\s?\w[\w.@-]{{0,60}},\s{{0,2}}{_BARE}\)", re.IGNORECASE),
        check=_is_bare_argument,
    ),
    Rule(
        signs=("connect(", "connection("),
        form=re.compile(
            rf"connect\w{{0,20}}\(\s{{0,8}}{_ARGUMENT},\s{{0,8}}{_ARGUMENT},\s{{0,8}}{_QUOTED}\s?[,)]", re.I
        ),
        check=_is_argument,
    ),
    Rule(
        signs=("connect(", "connection("),
        form=re.compile(rf"connect\w{{0,20}}\(\s{{0,8}}{_ARGUMENT},\s{{0,8}}{_QUOTED}\s?\)", re.I),
        check=_is_drawn_argument,
    ),
    Rule(
        signs=("fill(", "type(", "keys(", "value(", "input("),
        form=re.compile(
            rf"(?:fill|type|send_?keys|set_?value|input)\(\s?[\"'][^\"'\n]{{0,40}}passw(?:or)?d[^\n]{{0,10}}?[\"'],\s{{0,4}}{_QUOTED}",
            re.IGNORECASE,
        ),
        check=_is_argument,
    ),
    Rule(
        signs=(".fill(", ".type(", "keys(", "value("),
        form=re.compile(
            r"(?:passw(?:or)?d|pwd|passcode)[^\n]{0,10}[\"'\])]{1,4}\.(?:send_?keys|fill|type|set_?value)\(\s?"
            r"[\"'](?P<secret>[^\"'\n]{3,200})[\"']",
            re.IGNORECASE,
        ),
        check=_is_argument,
    ),
    Rule(
        signs=("<input",),
        form=re.compile(
            r"<input\b(?=[^<>]{0,200}type=[\"']?password)[^<>]{0,200}?\svalue=[\"'](?P<secret>[^\"'\n]{3,200})[\"']",
            re.IGNORECASE,
        ),
    ),
    Rule(
        signs=("wifi:",),
        form=re.compile(r"\bWIFI:(?:[^\n;]{0,80};){0,5}?P:(?P<secret>(?:[^;\\\n]|\\.){3,100});", re.IGNORECASE),
    ),
    Rule(
        signs=("@",),
        form=re.compile(
            r"(?<![\w./:@-])[\w.-]{2,40}:(?P<secret>[^\s/@:\"'<>(),]{4,60})@[\w-]{1,60}(?:\.[\w-]{1,60}){1,4}(?!\w)"
        ),
        check=_is_before_host,
    ),
    Rule(
        words=("net",),
        form=re.compile(r"\bnet\ use\ \S{1,20}\ \S{1,120}\ (?P<secret>[^\s/*]\S{3,80})(?=\s|$)", re.IGNORECASE),
    ),
)
