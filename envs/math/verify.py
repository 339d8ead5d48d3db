"""The second opinion: `math-verify` for what our grammar does not cover. Only a killable worker imports it and sympy."""

import os
import re
from functools import lru_cache

from loomrl.gym.scorer import Scorer

from envs.math.answer import Answer
from envs.math.form import Form

MAX_LENGTH = 120
MAX_DIGITS_IN_A_ROW = 8
DEADLINE_S = 2.0
_KINDS = ("value", "set", "tuple")
_WORDS = frozenset(
    "frac dfrac tfrac sqrt pi cdot times left right ln log exp sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh "
    "infty pm text mathrm boxed and or e quad".split()
)
_WORD = re.compile(r"[A-Za-z]+")
_PLAIN = re.compile(r"[-\sA-Za-z0-9+*/^_(){}\[\]|,.;=%$\\]*")
_TOWER = re.compile(r"\^[^-+*/,;=]*\^|\^\s*[({]?\s*-?\d{3}|\d{%d}" % (MAX_DIGITS_IN_A_ROW + 1))


def may_verify(answer: Answer, attempt: str) -> bool:
    """Whether a second opinion is due: a short, plain text, where no form was asked for.

    Only known words pass, so that nothing which restates the question (`\\int`, `\\sum`, a derivative, `!`) is
    computed for the policy; everything else that our grammar cannot read is simply wrong.
    """
    if answer.form is not Form.ANY or answer.kind not in _KINDS or len(attempt) > MAX_LENGTH:
        return False
    if not _PLAIN.fullmatch(attempt) or _TOWER.search(attempt):
        return False
    words = set(_WORD.findall(attempt))
    return all(word in _WORDS or word in answer.variables for word in words) and any(c.isalnum() for c in attempt)


async def verify(answer: Answer, attempt: str) -> bool:
    """Whether math-verify finds the attempt equal; a ScorerError where it cannot work at all."""
    return await _scorer(os.getpid()).score(answer.text, attempt) >= 1.0


@lru_cache(maxsize=1)
def _scorer(process: int) -> Scorer:
    """The one scorer of this process and of every episode in it; a forked child makes its own."""
    return Scorer("envs.math.verify:equal", control=("x^2/2", r"\frac{x^2}{2}"), workers=1, deadline_s=DEADLINE_S)


def equal(truth: str, attempt: str) -> float:
    """Runs in the worker: 1.0 if math-verify parses both and finds them equal."""
    from math_verify import LatexExtractionConfig, ExprExtractionConfig, parse
    from math_verify import verify as math_verify

    targets = (LatexExtractionConfig(), ExprExtractionConfig())
    gold, given = (parse(f"${text.strip(' $')}$", targets, parsing_timeout=None) for text in (truth, attempt))
    return float(bool(gold and given) and math_verify(gold, given, timeout_seconds=None))
