"""Assignments: a name that promises a secret, a sign, and a value. The value decides if it is one, or only code."""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from loomrl.safety.placeholder import is_placeholder
from loomrl.safety.randomness import is_drawn, is_wordy

WORDS = (
    *("pass", "pwd", "pw", "psk", "kennwort", "mdp", "contrase", "clave", "wachtwoord", "senha", "пароль", "密码"),
    *("パスワード", "secret", "token", "key", "auth", "cred", "mnemonic", "sess", "sid", "sig", "salt", "seed", "jwt"),
    *("cookie", "csrf", "otp", "code"),
)
"""Parts of names that announce a secret."""
_CLOSE = r"[\\\"'`\])]{0,4}"
_IS = r"\s{1,8}(?:is|was|ist|war|lautet|est|es|è|é)"
_TYPE = r"(?:(?:[ \t]{0,4}:[ \t]{0,4}&?[A-Za-z][\w.]{0,30}\??|[ \t]{1,4}string)[ \t]{0,4}(?==[^=]))?"
"""A type between a name and its value: `token: str = …`, `token string = …`."""
NAME = re.compile(r"[\w.-](?<![\w.-]{2})[\w.-]*+")
ASSIGNMENT = re.compile(
    rf"""(?P<name>[\w.-]++){_TYPE}{_CLOSE}
    (?P<sign>[ \t]{{0,8}}(?:[:=]=?>?|->|\.=)\s{{0,8}}|(?<=["'])[ \t]{{0,4}},[ \t]{{0,4}}(?=["'])|{_IS}:?\s{{1,8}})
    (?:(?P<scheme>bearer|basic|token)[ ]{{1,4}})?(?:[bru](?=["']))?
    (?:\\?"(?P<double>(?:[^"\\\n]|\\[^"\n]){{0,4096}}+)|\\?'(?P<single>(?:[^'\\\n]|\\[^'\n]){{0,4096}}+)
    |`(?P<back>[^`\n]{{0,4096}}+)`|(?P<bare>[^\s"'`]\S{{0,4095}}+))""",
    re.IGNORECASE | re.VERBOSE,
)
"""Matched from a name on."""


SHORT_LINE = 200
"""Characters of a line whose quotes are counted."""
SHOWN = 80
"""Leading characters of a value that decide about it."""


@lru_cache(maxsize=8192)
def may_promise(name: str) -> bool:
    """True if the letters of a name may announce a secret."""
    folded = name.casefold()
    return any(word in folded for word in WORDS)


LONGEST_NAME = 100
"""Characters at the end of a name that decide about it."""


class Promise(Enum):
    """The kind of value that a name announces."""

    PASSWORD = "password"
    """A secret that a person may have chosen."""
    SECRET = "secret"
    """A secret that a program made."""
    MAYBE = "maybe"
    """Often something else."""


@dataclass(frozen=True, slots=True)
class AssignedSecret:
    """The secret of an assignment."""

    promise: Promise
    span: tuple[int, int]


def secret_of(match: re.Match[str]) -> AssignedSecret | None:
    """The secret in a match of `ASSIGNMENT`; None if its value is not a secret."""
    promise = promise_of(match["name"], before=match.string[max(0, match.start() - 12) : match.start()])
    if promise is None:
        return None
    group = next(name for name in ("double", "single", "back", "bare") if match[name] is not None)
    value = match[group]
    start = match.start(group)
    if group == "bare":
        value = value[: _end(value)]
    if len(value) < 3 or is_placeholder(value) or is_stub(value):
        return None
    if group != "bare" and (value[0] in " \t,;:)]}" or (match["sign"].strip() == "==" and " " in value)):
        return None  # the quote ends a text
    if group == "double" and _is_closed(match.string, match.start(), start):
        return None
    place = _AssignedValue(match, value, start + len(value), is_bare=group == "bare")
    is_secret = _is_secret(promise, value[:SHOWN], place)
    return AssignedSecret(promise, (start, start + len(value))) if is_secret else None


def _is_closed(text: str, name: int, value: int) -> bool:
    """True if the quote before a value ends a text that begins before the name: `ask("password: ")`."""
    line = text.rfind("\n", max(0, name - SHORT_LINE), name) + 1
    if line == 0 and name > SHORT_LINE:
        return text[value] in "+%."
    return text.count('"', line, value) % 2 == 0


# -- names ------------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_TAIL = "base id key value val private prod production dev staging test live old new current default plain"
_TAILS = frozenset(_TAIL.split())
"""Words behind the promise that do not change it: `SECRET_KEY_BASE`."""
_PASSWORDS: tuple[str, ...] = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "passwort",
    "kennwort",
    "pwd",
    "wachtwoord",
    "senha",
)
_PASSWORDS += ("contraseña", "contrasena", "пароль", "密码", "パスワード", "requirepass")
_PASSES = frozenset({"pass", "pw", "psk", "mdp", "clave"})
_HOLDER = (
    "db sql mysql pg smtp imap mail email ftp http user admin root auth login my app become sudo redis bind proxy wifi"
)
_HOLDERS = frozenset(_HOLDER.split())
"""Words before `pass` that make it a noun."""
_SECRETS: tuple[str, ...] = (
    "secret",
    "token",
    "apikey",
    "credential",
    "credentials",
    "authorization",
    "mnemonic",
    "secretkey",
)
_SECRETS += ("accesskey", "privatekey")
_OWNER = (
    "api access private secret auth signing encryption master app admin shared account license service subscription "
    "functions storage client deploy ssh webhook server hmac jwt crypto preshared"
)
_OWNERS = frozenset(_OWNER.split())
"""Words before `key` that make it a secret."""
_MAYBE = "key session sess sessionid sessid sid cookie sig signature auth salt seed otp csrf jwt code"
_MAYBES = frozenset(_MAYBE.split())


def promise_of(name: str, *, before: str = "") -> Promise | None:
    """The promise of a name; words `before` it may count too, as in `API key`."""
    words = [word.lower() for word in _WORD.findall(name)]
    if len(words) == 1 and words[0] in ("key", "secret"):
        words[:0] = [word.lower() for word in _WORD.findall(before)[-1:]]
    while words:
        last = words[-1]
        owner = words[-2] if len(words) > 1 else ""
        if last.endswith(_PASSWORDS) or (last in _PASSES and (len(words) == 1 or owner in _HOLDERS or name.isupper())):
            return Promise.PASSWORD
        if last.endswith(_SECRETS) or (last == "key" and owner in _OWNERS):
            return Promise.SECRET
        if not (last in _TAILS or last.isdigit()):
            return Promise.MAYBE if last in _MAYBES or last.endswith(("sessid", "sessionid")) else None
        if last == "key" and len(words) < 3 and owner not in ("secret", "token"):
            return Promise.MAYBE
        words.pop()
    return None


# -- values -----------------------------------------------------------------------------------------------------------

_END = re.compile(r"[&;,]\s*[\w.-]{1,40}[=:]|</|[)\]}>]{1,3}[(\s]|\\[nrt]|\\?[\"']")
_STUB = re.compile(
    r"(?:none|null|nil|true|false|undefined|required|optional|string|str|int|integer|bool|boolean|bytes|any|text|char"
    r"|varchar|object|number|password|passwd|pass|pw|secret|token|key|hidden|redacted|changeme|change-me|placeholder"
    r"|example|todo|value|off|on|yes|no|basic|bearer|hash|uuid|user|username|username:password|foo|bar|test"
    r"|[.*•_-]+|…|(?:your|my|the|some|insert|enter|replace)[-_ ].*|.*?([xX*.•])\1{3,}.*|x{2,}"
    r"|<[^<>]*>?|\[[\w -]*\]|\$(?:[A-Z][A-Z0-9_]*|[a-z][a-z0-9_]*)|%\w+%|\$?\{+[^{}]*\}*|\$\(.*|%[sdvq]|#)[,;.]?",
    re.IGNORECASE,
)
"""Values of code, counts, and stand-ins that documents use."""
_LABEL = re.compile(
    r"[A-ZÄÖÜÉ][^\d\s]*(?:\s[^\d\s]+)+"
    r"|(?=\S+\s+\S+\s)(?:.*\s)?(?:the|your|a|an|to|must|is|are|for|of|and|or|with|not|here|der|die|das|le|la|el|il)(?:\s.*)?"
)
"""Words for people, as beside a field of a form."""
_ROOT = (
    "self this os sys env environ process config cfg conf settings options opts args params ctx context state request "
    "req res response data user var local module props super auth client session app ctx input form payload body creds "
    "credentials secrets kwargs parser"
)
_ROOTS = frozenset(_ROOT.split())
_NAMED = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)*[!?]?")
_CALL = re.compile(r"[:@&*!]\w+\Z|.{0,200}?(?:[(\[{<|]|::|->)|\W*(?:await|new|lambda|async|not)\b")
"""Expressions by a sign in them."""
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_CAMEL = re.compile(r"(?:[A-Z][a-z]+){2,}")
_TOKEN = re.compile(r"[\w.+/=:~@%$!-]+")
_LOGIN = re.compile(r"[^\s:/$]+:[^\s:/$]{4,}")
_CONNECTION = re.compile(
    r"(?:user id|uid|server|data source|initial catalog|database)\s?=[^;\n]*;[^\n]*\Z", re.IGNORECASE
)
_INI = re.compile(r"^\[[\w .:-]+\]\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _AssignedValue:
    """An assigned value in its context."""

    match: re.Match[str]
    value: str
    end: int
    is_bare: bool

    @property
    def after(self) -> str:
        """The characters behind it."""
        return self.match.string[self.end : self.end + 3]

    @property
    def is_tight(self) -> bool:
        """True for `NAME=value` between spaces, as in files of settings and on command lines."""
        before = self.match.string[max(0, self.match.start() - 1) : self.match.start()]
        return self.match["sign"] == "=" and (not before or before in " \t\n?&;'\"-/,") and self.after[:1] in _ENDS

    @property
    def is_said(self) -> bool:
        """True if a word is the sign: `is`."""
        return self.match["sign"].strip(" \t\n:").isalpha()

    @property
    def is_alone(self) -> bool:
        """True if its line ends with it."""
        rest = self.match.string[self.end : self.end + 200].lstrip(" \t.!\"'")
        return not rest or rest[0] in "\r\n#<"


_ENDS = ("", " ", "\t", "\n", "\r", "&", ";", '"', "'", "<", "|", "\\")


def is_stub(value: str) -> bool:
    """True for stand-ins of a secret: `None`, `${TOKEN}`, `your-key-here`, `xxxx`."""
    return len(value) <= 200 and _STUB.fullmatch(value) is not None


def _end(value: str) -> int:
    found = _END.search(value, 1, 600)  # hardly any is longer, and a text of names and signs only is no slower
    return len(value.rstrip(",;.:)]}>")) if found is None else found.start()


def _is_secret(promise: Promise, value: str, place: _AssignedValue) -> bool:
    if place.is_bare and _is_code(value, place):
        return False
    if place.match["sign"].strip() == ",":  # an argument, or the next of a list
        is_mixed = _is_chosen(value) and any(map(str.isdigit, value)) and not is_wordy(value)
        return promise is not Promise.MAYBE and " " not in value and is_mixed and promise_of(value) is None
    if promise is Promise.MAYBE:
        is_set = place.is_tight and place.match["name"].isupper() and len(value) >= 12 and not is_wordy(value)
        is_set |= place.is_tight and place.match["name"].endswith("AUTH") and _LOGIN.fullmatch(value) is not None
        return (is_set or is_keylike(value)) and not place.is_said
    if promise is Promise.SECRET:
        return _is_made(value, place)
    if place.is_said:
        return _is_chosen(value) or (not place.is_bare and " " not in value)
    if value.isdigit():
        return len(value) > 3
    if not place.is_bare:
        return not _LABEL.fullmatch(value) if " " in value else not _is_name_of(value)
    if _CAMEL.fullmatch(value) and not place.is_tight:
        return False
    return _is_chosen(value) or place.is_tight or (place.is_alone and (_is_setting(place) or not is_wordy(value)))


def is_keylike(value: str) -> bool:
    """True for a value that a program drew: also hexadecimal digits, which by themselves would be a hash."""
    if " " in value or len(value) < 16 or _UUID.fullmatch(value):
        return False
    body = re.sub(r"[^A-Za-z0-9]", "", value)
    if len(body) < 16 or (body.isalpha() and (body.islower() or body.isupper())):
        return False
    is_hex = re.fullmatch(r"[0-9a-fA-F]{16,}", body) is not None and "-" not in value
    return is_drawn(value) or (is_hex and not body.isdigit()) or (len(body) >= 20 and not is_wordy(value))


def _is_made(value: str, place: _AssignedValue) -> bool:
    """True for the value of a token or a key: none is a word, or two."""
    if len(value) < 6 or not _TOKEN.fullmatch(value):
        return False
    if place.match["scheme"] and place.match["name"].lower().endswith("authorization"):
        return promise_of(value) is None
    if value.isdigit():
        return len(value) > 6
    if place.is_tight and (place.match["name"].isupper() or (place.is_bare and not value.isalpha())):
        return len(value) >= 8 or not value.isalpha()
    return (any(map(str.isdigit, value)) or len(value) > 15) and not is_wordy(value)


def _is_chosen(value: str) -> bool:
    """True for a value with more than letters in it, as in passwords and in no word of a text."""
    letters = value.rstrip(".,;:!?")
    return len(letters) >= 4 and not letters.replace("-", "", 1).replace("'", "").replace("’", "").isalpha()


def _is_setting(place: _AssignedValue) -> bool:
    """True in YAML, and in a file with [sections]."""
    if place.match["sign"].strip() == ":":
        before = place.match.string[max(0, place.match.start() - 1) : place.match.start()]
        return before not in tuple("\"'`") and place.match["sign"] != ":"
    return _INI.search(place.match.string) is not None


def _is_name_of(value: str) -> bool:
    """True for a name of a field or a variable, in quotes."""
    return bool(_NAMED.fullmatch(value)) and promise_of(value) in (Promise.PASSWORD, Promise.SECRET)


def _is_code(value: str, place: _AssignedValue) -> bool:
    """True for an expression: a call, an attribute, a variable, a type."""
    sign = place.match["sign"]
    if (sign == ":" and value[0] in "+?=-") or re.match(r"\$\w+/", value):  # of a shell
        return True
    if place.match["name"].lower().endswith("pwd") and value[0] in "/~.":  # a folder
        return True
    if _CALL.match(value) or place.after[:1] in ("(", "[") or sign.strip() == "==":
        return True
    if not _NAMED.fullmatch(value):
        return False
    parts = [part for part in re.split(r"[^\w]+", value) if part]
    if parts[0].lower() in _ROOTS or any(promise_of(part) is not None for part in parts):
        return True
    if "." in value or ":" in value or "->" in value:
        return not place.is_tight
    if place.after[:1] == ";" and _CONNECTION.search(
        place.match.string[max(0, place.match.start() - 200) : place.match.start()]
    ):
        return False
    is_one_of_many = place.after[:1] in (")", ",", "]", "}", ";")
    return is_one_of_many and is_wordy(value) and not any(map(str.isdigit, value))
