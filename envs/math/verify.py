"""The second opinion: `math-verify` for what our grammar does not cover.

Only a killable worker imports it, and sympy with it.
"""

import atexit
import os
import re
from functools import lru_cache

from envs.math.answer import Answer
from envs.math.form import Form
from envs.math.notation import latex
from envs.math.syntax import read
from loomrl.gym.scorer import Scorer

MAX_LENGTH = 120
DEADLINE_S = 5.0
_KINDS = ("value", "set", "tuple")
_WORD = re.compile(r"[A-Za-z]+")
_WORDS = frozenset(
    _WORD.findall(
        "frac dfrac tfrac sqrt pi cdot times left right ln log exp sin cos tan cot sec csc arcsin arccos arctan "
        "sinh cosh tanh infty pm text mathrm boxed and or e quad"
    )
)
_BARE = re.compile(r"(?<![A-Za-z\\])((?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|ln|log|exp|pi)(?![A-Za-z])")
_FUNCTION = re.compile(r"[a-z]{3}")
_PLAIN = re.compile(r"[-\sA-Za-z0-9+*/^_(){}\[\]|,.;=%$\\]*")
_TOWER = re.compile(r"\^[^-+*/,;=]*\^|\^\s*[({]?\s*-?\d{3}|\d{9}")


def may_verify(answer: Answer, attempt: str) -> bool:
    """Whether a second opinion is due: a short text in LaTeX or with named functions, where no form was asked for.

    Only known words pass, so that nothing which restates the question (`\\int`, `\\sum`, a derivative, `!`) is
    computed for the policy; everything else that our grammar cannot read is simply wrong.
    """
    if answer.form is not Form.ANY or answer.kind not in _KINDS or len(attempt) > MAX_LENGTH:
        return False
    if "\\" not in attempt and not _FUNCTION.search(attempt):
        return False
    if not _PLAIN.fullmatch(attempt) or _TOWER.search(attempt):
        return False
    words = set(_WORD.findall(attempt))
    return all(word in _WORDS or word in answer.variables for word in words) and any(c.isalnum() for c in attempt)


async def verify(answer: Answer, attempt: str) -> bool:
    """Whether math-verify finds the attempt equal; a ScorerError where it cannot work at all."""
    separator = ", " if "," in answer.text else ""
    truth = separator.join(latex(read(item, answer.variables)) for item in answer.text.split(","))
    truth = f"({truth})" if answer.kind == "tuple" else rf"\{{{truth}\}}" if answer.kind == "set" else truth
    return await _scorer(os.getpid()).score(truth, _BARE.sub(r"\\\1", attempt)) >= 1.0


@lru_cache(maxsize=1)
def _scorer(process: int) -> Scorer:
    """The one scorer of this process and of every episode in it; a forked child makes its own."""
    scorer = Scorer("envs.math.verify:equal", control=("x^2/2", r"\frac{x^2}{2}"), deadline_s=DEADLINE_S)
    atexit.register(scorer.close)
    return scorer


def equal(truth: str, attempt: str) -> float:
    """Runs in the worker: 1.0 if math-verify parses both and finds them equal."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse
    from math_verify import verify as math_verify

    targets = (LatexExtractionConfig(), ExprExtractionConfig())
    gold, given = (parse(f"${text.strip(' $')}$", targets, parsing_timeout=None) for text in (truth, attempt))
    return float(bool(gold and given) and math_verify(gold, given, timeout_seconds=None))
