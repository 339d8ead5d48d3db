"""The bank: hand-written problems, many with open numbers, so that each task differs."""

from loomrl.envs.code.bank import number, sequence, table, text
from loomrl.envs.code.problem import ProblemPattern

PATTERNS: tuple[ProblemPattern, ...] = (
    *number.PATTERNS,
    *text.PATTERNS,
    *sequence.PATTERNS,
    *table.PATTERNS,
)

__all__ = ["PATTERNS"]
