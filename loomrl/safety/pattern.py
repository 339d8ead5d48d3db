"""Forms of secrets and addresses: one list for redaction and for the monitor's rule.

Quantifiers are possessive or bounded, so that no text is slow.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from typing_extensions import override

from loomrl.safety.assignment import ASSIGNMENT, LONGEST_NAME, NAME, WORDS, Promise, is_stub, may_promise, secret_of
from loomrl.safety.placeholder import is_placeholder
from loomrl.safety.randomness import is_wordy


def any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Finds any of these texts in one search; those with equal first characters are tried only where one begins so."""
    rests: dict[str, list[str]] = {}
    for text in texts:
        rests.setdefault(text[0], []).append(re.escape(text[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?:{'|'.join(found)})" for first, found in rests.items()))


Span = tuple[int, int]


def _whole(match: re.Match[str]) -> Span | None:
    return match.span()


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """One form of a secret."""

    kind: str
    form: re.Pattern[str]
    hint: re.Pattern[str]
    """A text has the form only if this is in its folded case, which is found much faster."""
    secret: Callable[[re.Match[str]], Span | None] = _whole
    """The span of the secret in a match of `form`; None if there is none after all."""

    def is_possible(self, folded: str) -> bool:
        """False if a text, given in its folded case, cannot have the form."""
        return self.hint.search(folded) is not None

    def matches(self, text: str, since: int = 0) -> Iterator[re.Match[str]]:
        """The places of a text that have the form, from a place on."""
        return self.form.finditer(text, since)

    def kind_of(self, match: re.Match[str]) -> str:
        """The kind of the secret in a match."""
        return self.kind


# -- keys -------------------------------------------------------------------------------------------------------------

OTHERS = (
    "hf|npm|gsk|r8|whsec|lin_api|dckr_pat|shpat|shpss|nvapi|tvly|pypi|dop_v1|rnd|PMAK|sgp_local|sqp|sq0csp|xsmtpsib"
    "|lsv2|FLWSECK_TEST|sntrys|glc|ops"
)
KEYS = re.compile(
    rf"""(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{{16,}}+
    |sk-(?:proj|ant|or|svcacct)-[A-Za-z0-9_-]{{16,}}+
    |[rsp]k_(?:live|test)_[A-Za-z0-9]{{10,}}+
    |gh[pousr]_[A-Za-z0-9]{{20,}}+
    |github_pat_[A-Za-z0-9_]{{20,}}+
    |(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{{12,}}+
    |xox[a-z]-[A-Za-z0-9-]{{8,}}+
    |xapp-[A-Za-z0-9-]{{8,}}+
    |AIza[A-Za-z0-9_-]{{30,}}+
    |IGQV[A-Za-z0-9_-]{{60,}}+
    |ya29\.[A-Za-z0-9_-]{{16,}}+
    |hv[bsr]\.[A-Za-z0-9_-]{{20,}}+
    |gl(?:pat|oas|soat|agent|imt|ffct|dt|rt|ptt|cbt|ft)-[A-Za-z0-9_.-]{{16,}}+
    |(?<![A-Za-z0-9])(?:AKID[A-Za-z0-9]{{30,}}+|LTAI[A-Za-z0-9]{{12,}}+|GOCSPX-[A-Za-z0-9_-]{{20,}}+)
    |sq0(?:atp|csp|idp|idb)-[A-Za-z0-9_-]{{20,}}+
    |v1\.0-[0-9a-f]{{24}}-[0-9a-f]{{100,}}+
    |(?<![A-Za-z0-9])(?:{OTHERS})[_-][A-Za-z0-9_+/=-]{{16,}}+
    |(?<![A-Za-z0-9])key-[0-9a-f]{{32}}(?![A-Za-z0-9])
    |(?<![A-Za-z0-9])[0-9a-f]{{32}}-us[0-9]{{1,2}}(?![A-Za-z0-9])
    |SG\.[A-Za-z0-9_-]{{16,}}+\.[A-Za-z0-9_-]{{16,}}+
    |eyJ[A-Za-z0-9_-]{{8,}}+\.[A-Za-z0-9_-]{{8,}}+(?:\.[A-Za-z0-9_-]*+)*+
    |loom-[0-9a-f]{{12}}-[0-9a-f]{{48}}
    |AGE-SECRET-KEY-1[A-Z0-9]{{16,}}+""",
    re.VERBOSE,
)

_PREFIXES = """
    sk- sk_ rk_ pk_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ akia asia aroa aida xox xapp- aiza igqv ya29. hvb. hvs. hvr.
    glpat- glsoat- gloas- glagent- gldt- glrt- glptt- glcbt- key- -us sg. eyj loom- age-secret-key glimt- glffct- glft-
    akid ltai gocspx- sq0atp- sq0csp- sq0idp- sq0idb- v1.0-
"""
PREFIXES = (*_PREFIXES.split(), *(f"{name.lower()}{sign}" for sign in "_-" for name in OTHERS.split("|")))


_STAND_IN = re.compile(r"[a-z_.~+/= -]+|.*?([xX*.])\1{7,}[a-z_-]*")


class KeyPattern(SecretPattern):
    """Keys of known forms. They are long runs of few characters, as only a small part of a text is."""

    _RUN = re.compile(r"[A-Za-z0-9+/_=.:~-]{13,}+")

    @override
    def is_possible(self, folded: str) -> bool:
        return any(map(self.hint.search, self._RUN.findall(folded)))

    @override
    def matches(self, text: str, since: int = 0) -> Iterator[re.Match[str]]:
        for run in self._RUN.finditer(text, since):
            yield from self.form.finditer(text, run.start(), run.end())


def _key(match: re.Match[str]) -> Span | None:
    """All of it, unless it is what documents write in a key's place: `sk-your-api-key-here`, `ghp_xxxxxxxx`."""
    key = match[0]
    is_slug = not key.isupper() and (is_wordy(key) or (key.islower() and sum(map(str.isdigit, key)) < 2))
    return None if is_slug or _STAND_IN.fullmatch(key) else match.span()


BEARER = re.compile(r"(?i:bearer)\ [A-Za-z0-9_.~+/=-]{20,}+")
PRIVATE = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)

# -- passwords --------------------------------------------------------------------------------------------------------

URL = re.compile(r"://[^\s/@:\[\]]{0,200}:(?P<secret>[^\s/@]{1,200})@")


class AssignmentPattern(SecretPattern):
    """A name that promises a secret, a sign, and the value, which may hold the next assignment."""

    @override
    def matches(self, text: str, since: int = 0) -> Iterator[re.Match[str]]:
        for named in NAME.finditer(text, since):
            if may_promise(named[0][-LONGEST_NAME:]) and (match := self.form.match(text, named.start())) is not None:
                yield match

    @override
    def kind_of(self, match: re.Match[str]) -> str:
        found = secret_of(match)
        return self.kind if found is None or found.promise is Promise.PASSWORD else "key"


def _assigned_value(match: re.Match[str]) -> Span | None:
    found = secret_of(match)
    return None if found is None else found.span


def _url_password(match: re.Match[str]) -> Span | None:
    """The password, unless it is one that documents write."""
    value = match["secret"]
    return None if is_placeholder(value) or is_stub(value) else match.span("secret")


# -- addresses --------------------------------------------------------------------------------------------------------

LOCAL = r"""\s@<>()\[\]{},;:"'`|\\/=!?&%"""
EMAIL = re.compile(rf"(?<![^{LOCAL}])[^{LOCAL}]++(?:@|%40)[^\W_][\w-]*+(?:\.[\w-]++)++")
_TOP = re.compile(r"(?:xn--[\w-]+|[^\W\d_]{2,})\Z", re.IGNORECASE)


def _email(match: re.Match[str]) -> Span | None:
    """The address, if its domain ends in letters, which a version behind an @ does not."""
    text = match[0].rstrip("-_")
    if not _TOP.match(text.rpartition(".")[2]) or text.startswith("git@"):
        return None
    return match.start(), match.start() + len(text)


PATTERNS: tuple[SecretPattern, ...] = (
    SecretPattern("key", PRIVATE, any_of(["private key"])),
    KeyPattern("key", KEYS, any_of(PREFIXES), _key),
    SecretPattern("key", BEARER, any_of(["bearer "])),
    AssignmentPattern("password", ASSIGNMENT, any_of(WORDS), _assigned_value),
    SecretPattern("password", URL, any_of(["://"]), _url_password),
    SecretPattern("email", EMAIL, any_of(["@", "%40"]), _email),
)
"""In this order: of two findings in one place the first names the kind."""
