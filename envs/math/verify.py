"""The second opinion: `math-verify` for values that our arithmetic does not compute.

Only a killable worker imports it, and sympy with it.
"""

import atexit
import os
from functools import lru_cache

from loomrl.envs.math.answer import MathAnswer, expression
from loomrl.envs.math.form import Form, is_finished
from loomrl.envs.math.notation import latex
from loomrl.envs.math.syntax import read
from loomrl.envs.math.value import Unreadable
from loomrl.gym.scorer import Scorer

MAX_LENGTH = 120
DEADLINE_S = 5.0


def may_verify(answer: MathAnswer, attempt: str) -> bool:
    """True if a second opinion is due: a short text that our grammar reads as a finished answer, in no special form.

    Nothing that restates the question (`\\int`, `\\sum`, a derivative, `!`, numbers to combine) is computed for the
    policy.
    """
    if answer.form is not Form.ANY or answer.kind != "value" or len(attempt) > MAX_LENGTH:
        return False
    try:
        given, truth = (read(text, answer.variables) for text in (expression(answer, attempt), answer.text))
    except Unreadable:
        return False
    return is_finished(given, truth, answer.form)


async def verify(answer: MathAnswer, attempt: str) -> bool:
    """True if math-verify finds our readings equal; a ScorerError if it cannot work at all."""
    truth, given = (latex(read(text, answer.variables)) for text in (answer.text, expression(answer, attempt)))
    return await _scorer(os.getpid()).score(truth, given) >= 1.0


@lru_cache(maxsize=1)
def _scorer(process: int) -> Scorer:
    """The one scorer of this process and of every episode in it; a forked child makes its own."""
    # one for each process id: a fork that shared the worker would mix up its answers
    scorer = Scorer("loomrl.envs.math.verify:equal", control=("x^2/2", r"\frac{x^2}{2}"), deadline_s=DEADLINE_S)
    atexit.register(scorer.close)
    return scorer


def equal(truth: str, attempt: str) -> float:
    """Runs in the worker: 1.0 if math-verify parses both and finds them equal."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse
    from math_verify import verify as math_verify

    targets = (LatexExtractionConfig(), ExprExtractionConfig())
    gold, given = (parse(f"${text.strip(' $')}$", targets, parsing_timeout=None) for text in (truth, attempt))
    return float(bool(gold and given) and math_verify(gold, given, timeout_seconds=None))
