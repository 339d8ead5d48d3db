"""Text around an answer of mathematics: words and names before it, LaTeX and marks around it, a rounding after it.

Only the answer is left, as it was written: whether it is finished is judged without its dress.
"""

import re
from typing import NamedTuple

from loomrl.envs.math.value import Unreadable
from loomrl.gym.answer import undress

ROUNDS = 8
"""Layers that are taken off."""
_SIGNS = r"[-0-9xyzt()\[\]+*/^ ,√π∞U]*"
_BARE = re.compile(rf"(?:[-0-9xyzt()\[√+]{_SIGNS}(?:(?:sin|cos|ln|inf|e\^| = ){_SIGNS})*)?[0-9xyztπ)\]]")
"""Texts that wear nothing, most of those that are short: they are not searched."""
_SAYS = "is|are|was|equals?|becomes|gives|yields|costs?|measures|has|be"
_FACTORIAL = re.compile(
    rf"(?!.*(?:\b(?:{_SAYS}|answer|result|solution)\b|[:：])).*(?:\w|(?<!\\)[)\]])!+", re.DOTALL | re.IGNORECASE
)
"""Without words an exclamation mark is no exclamation."""
_MATHS = re.compile(r"\$\$(.*)\$\$|\$(.*)\$|\\\((.*)\\\)|\\\[(.*)\\\]", re.DOTALL)
_WRAPPED = re.compile(r"\\(?:boxed|fbox|mathbf|boldsymbol|textbf|textit|text|underline)\s*\{(.*)\}", re.DOTALL)
_SIZE = re.compile(r"^\\(?:displaystyle|large|Large|LARGE|huge|therefore|implies|Rightarrow)\b\s*")
_TEXT_FIRST = re.compile(r"\\text(?:bf|rm|it)?\s*\{([^{}]*)\}")
_MARKED = re.compile(r"(?:^|(?<=[\s=:,(]))(\*\*|`)(?=\S)([^*`]+)(?<=\S)\1(?=$|[\s,.;)])")
_WORDS = re.compile(
    r"(?![a-zA-Z]\s*[:：])"
    rf"(?:[A-Za-z][A-Za-z,'’-]*|\$?[a-zA-Z]['′’]?\([a-z]\)\$?)"
    rf"(?:\s+(?:[A-Za-z][A-Za-z,'’-]*|\$?[a-zA-Z]['′’]?\([a-z]\)\$?)){{0,14}}?"
    rf"(?:\s+(?:{_SAYS})\b\s*(?:exactly|therefore|then|thus|given by|simply|equal to)?\s*:?|\s*[:：])\s*(?=\S)"
)
_DOUBT = re.compile(
    r"\b(?:not|no|never|neither|nor|or|either|wrong|false|incorrect|untrue|except|but|without|instead|unless|isn't|"
    r"aren't|wasn't|isn’t|cannot|can't|if|than)\b",
    re.IGNORECASE,
)
"""Words after which nothing is said to be the answer."""
_ROUNDED = re.compile(r"(.*?)\s*\(?(?:≈|≃|\\approx\b)\s*-?[$]?\d[\d.,]*%?([^=<>;]{0,30}?)\)?", re.DOTALL)
_CONSTANT = re.compile(
    r"(?:\s*[,;]?\s*\(?(?:where|with|for|and)\s+\$?[CcKk]\$?\b[^=]{0,60}|\s*(?:\\q?quad)?\s*[,;(]\s*[CcKk]\b[^=+]{0,40})$"
)
_EQUALS = re.compile(r"(?<![<>≤≥!≠:=])=(?!=)")
_COLON = re.compile(r"([a-zA-Z])\s*[:：]\s*")
_GROUP = r"(?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\]|\{[^{}]*\})"
_LABEL = re.compile(
    rf"(?:[^\W\d_]|_\d+|_?\{{[^{{}}]*\}}|\^\{{?\\prime\}}?|\^2|[₀-₉²³'′’∠∘△|/°., \\~$\u0300-\u036f]"
    rf"|(?:(?<=[^\W\d_])|(?<=['′’)\}}])){_GROUP}|\([^()\d+*=-]*\))++"
)
"""A name with what belongs to names: primes, indices, arguments. No numbers to be worked out."""
_ASKED = re.compile(
    r"\s*\$?\s*(?:∫|\\i?int\b|\\?lim\b|d/d[a-z]\b|\\frac\s*\{d\}\s*\{d[a-z]\})[^=]*|\s*\$?\(.*\)\s*['′’]\s*"
)
"""The question itself, in signs: what is said to be equal to it is the answer."""


class Stated(NamedTuple):
    """An answer, and the expressions that it was said to be equal to."""

    answer: str
    names: tuple[str, ...] = ()
    equal: tuple[str, ...] = ()


def bare(text: str) -> str:
    """The text without words before it and marks around it. Names and equals signs stay."""
    text = text.strip()
    if _BARE.fullmatch(text):
        return text
    if _FACTORIAL.fullmatch(text):
        raise Unreadable("a factorial is left to work out")
    for _ in range(ROUNDS):
        before = text
        text = _without_layer(text)
        if text == before:
            break
    return text


def _without_layer(text: str) -> str:
    text = _SIZE.sub("", text.strip())
    if "**" in text or "`" in text:
        text = _MARKED.sub(r"\2", text)
    text = undress(text)
    found = _MATHS.fullmatch(text) or _WRAPPED.fullmatch(text)
    if found:
        return next(part for part in found.groups() if part is not None).strip()
    if text.startswith(r"\text"):
        text = _TEXT_FIRST.sub(r"\1", text, count=1)
    lead = _WORDS.match(text)
    if lead and not _DOUBT.search(lead[0]):
        return text[lead.end() :]
    return text


def read_statement(text: str) -> Stated:
    """The value of a bare text behind its names: `f'(x) = 3x^2`, `A = 12π ≈ 37.7`, `(x - 1)(x + 1) = x^2 - 1`.

    What is no name must equal the answer, and say it in another way.
    """
    if "≈" in text or r"\approx" in text:
        text = _without_rounding(text)
    if "=" not in text:
        named = _COLON.match(text)
        return Stated(text[named.end() :], (named[1],)) if named else Stated(text)
    *before, answer = _EQUALS.split(text)
    if not before:
        return Stated(text)
    answer = bare(answer)
    if is_label("=".join(before)):
        return Stated(answer, names=(before[0].strip(" $"),))
    equal = tuple(side.strip() for side in before if not is_label(side))
    if any(side.replace(" ", "") == answer.replace(" ", "") for side in equal):
        raise Unreadable("both sides are the same")
    names = tuple(side.strip(" $") for side in before if is_label(side))
    return Stated(answer, names, equal)


def _without_rounding(text: str) -> str:
    """`12π ≈ 37.7 cm` as `12π cm`."""
    found = _ROUNDED.fullmatch(text)
    if found is None:
        return text
    exact = found[1]
    unit = found[2].strip()
    return exact if exact.endswith(unit) else f"{exact} {unit}"


def is_label(text: str) -> bool:
    """True for a name, such as `f'(x)`, `x_1`, `dy/dx` or `Area`, and for the question in signs."""
    name = text.strip()
    return bool(_ASKED.fullmatch(name)) or bool(_LABEL.fullmatch(name) and re.search(r"[^\W\d_]", name))


def without_constant(text: str) -> str:
    """An antiderivative without `, where C is a constant`."""
    return _CONSTANT.sub("", text)
