"""The bank: hand-written problems, many with open numbers, so that each task differs."""

from loomrl.envs.code.bank import language, number, sequence, stretch, table, words
from loomrl.envs.code.problem import ProblemPattern

PATTERNS: tuple[ProblemPattern, ...] = (
    *number.PATTERNS,
    *words.PATTERNS,
    *language.PATTERNS,
    *sequence.PATTERNS,
    *stretch.PATTERNS,
    *table.PATTERNS,
)

__all__ = ["PATTERNS"]
