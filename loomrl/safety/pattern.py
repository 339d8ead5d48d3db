"""Forms of secrets and addresses. Quantifiers are possessive or bounded, so that no text is slow."""

import re
from collections.abc import Callable
from dataclasses import dataclass

MARK = re.compile(r"\[redacted:[a-z]+\]")
MARKED = re.compile(rf"{MARK.pattern}[.,;:)\]}}]*")


def mark(kind: str) -> str:
    """The text in the place of a finding."""
    return f"[redacted:{kind}]"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One form. The group `secret` is removed; without one, the whole match. `holds` may spare a finding.

    A text has the form only if one of the `hints` is in its folded case: looking for those is much faster.
    """

    kind: str
    form: re.Pattern[str]
    hints: tuple[str, ...]
    holds: Callable[[re.Match[str]], bool] = lambda found: True

    def is_possible(self, folded: str) -> bool:
        """False if a text, given in its folded case, cannot have the form."""
        return any(hint in folded for hint in self.hints)

    def secret(self, match: re.Match[str]) -> tuple[int, int] | None:
        """The span of the secret in a match of `form`; None if there is none after all."""
        if not self.holds(match):
            return None
        return match.span("secret" if "secret" in self.form.groupindex else 0)

    def without(self, text: str) -> tuple[str, bool]:
        """The text with marks, and if there was a finding."""
        found = False

        def replaced(match: re.Match[str]) -> str:
            nonlocal found
            span = self.secret(match)
            if span is None:
                return match[0]
            found = True
            return text[match.start() : span[0]] + mark(self.kind) + text[span[1] : match.end()]

        return self.form.sub(replaced, text), found


# -- assignments ------------------------------------------------------------------------------------------------------

NAMES = (
    r"pass[_-]?(?:word|wd|phrase|code)|passwort|kennwort|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|secret[_-]?key|authorization|credentials?"
)
ASSIGNMENT = re.compile(
    rf"""(?P<name>{NAMES})(?:[_-](?:id|key|value))?[\\"'`\])]{{0,4}}
    (?P<sign>\s{{0,8}}(?:[:=]=?>?|:=)\s{{0,8}}|\s{{1,8}}is:?\s{{1,8}})
    (?:(?:bearer|basic|token)\s{{1,4}})?
    (?:\\?"(?P<double>(?:[^"\\\n]|\\[^"\n])*+)|\\?'(?P<single>(?:[^'\\\n]|\\[^'\n])*+)|(?P<bare>[^\s"']\S*+))""",
    re.IGNORECASE | re.VERBOSE,
)
WORDS = ("pass", "pwd", "kennwort", "secret", "token", "key", "author", "credent")
HARMLESS = re.compile(r"(?:none|null|nil|true|false|undefined|\d{1,6}|\.+|\*+|<[\w -]*>|\{\w*\}),?;?", re.IGNORECASE)
"""Values of code, counts and placeholders."""


class Assignment(Pattern):
    """A name that promises a secret, a sign, and the value."""

    def secret(self, match: re.Match[str]) -> tuple[int, int] | None:
        """The span of the value."""
        group = next(name for name in ("double", "single", "bare") if match[name] is not None)
        return match.span(group) if _is_secret(match["name"], match["sign"], match[group]) else None


def _is_secret(name: str, sign: str, value: str) -> bool:
    if not value or MARKED.fullmatch(value) or value in ("{", "[", "("):
        return False
    if "is" in sign.lower() and value.rstrip(".,;:!?").isalpha():  # "the password is wrong"
        return False
    is_password = name.lower().startswith(("pass", "pwd", "kenn"))
    return not HARMLESS.fullmatch(value) or (is_password and value.rstrip(",;").isdigit())


# -- forms of keys ----------------------------------------------------------------------------------------------------

OTHERS = "hf|npm|gsk|r8|whsec|lin_api|dckr_pat|shpat|shpss|nvapi|tvly|pypi|dop_v1"
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
    |ya29\.[A-Za-z0-9_-]{{16,}}+
    |gl(?:pat|dt|rt|ptt|cbt)-[A-Za-z0-9_.-]{{16,}}+
    |(?<![A-Za-z0-9])(?:{OTHERS})[_-][A-Za-z0-9_-]{{16,}}+
    |SG\.[A-Za-z0-9_-]{{16,}}+\.[A-Za-z0-9_-]{{16,}}+
    |eyJ[A-Za-z0-9_-]{{8,}}+\.[A-Za-z0-9_-]{{8,}}+(?:\.[A-Za-z0-9_-]*+)?
    |loom-[0-9a-f]{{12}}-[0-9a-f]{{48}}
    |AGE-SECRET-KEY-1[A-Z0-9]{{16,}}+
    |(?i:bearer)\ [A-Za-z0-9_.~+/=-]{{20,}}+""",
    re.VERBOSE,
)

PREFIXES: tuple[str, ...] = ("sk-", "sk_", "rk_", "pk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_")
PREFIXES += (
    "akia",
    "asia",
    "aroa",
    "aida",
    "xox",
    "xapp-",
    "aiza",
    "ya29.",
    "glpat-",
    "gldt-",
    "glrt-",
    "glptt-",
    "glcbt-",
    "sg.",
    "eyj",
    "loom-",
)
PREFIXES += tuple(f"{name}{sign}" for sign in "_-" for name in OTHERS.split("|"))
PREFIXES += ("age-secret-key", "bearer ")

PRIVATE = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
URL = re.compile(r"://[^\s/@:\[\]]{0,200}:(?P<secret>[^\s/@]{1,200})@")

# -- addresses --------------------------------------------------------------------------------------------------------

LOCAL = r"""\s@<>()\[\]{},;:"'`|\\/=!?&%"""
EMAIL = re.compile(rf"(?<![^{LOCAL}])[^{LOCAL}]++(?:@|%40)[^\W_][\w-]*+(?:\.[\w-]++)++")


def _unmarked(found: re.Match[str]) -> bool:
    return not MARK.fullmatch(found["secret"])


PATTERNS: tuple[Pattern, ...] = (
    Pattern("key", PRIVATE, ("private key",)),
    Pattern("key", KEYS, PREFIXES),
    Assignment("password", ASSIGNMENT, WORDS),
    Pattern("password", URL, ("://",), _unmarked),
    Pattern("email", EMAIL, ("@", "%40")),
)
"""In this order."""
