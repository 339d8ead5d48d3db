"""The bank: problems written by hand, many with numbers left open, so that each task has its own."""

from loomrl.envs.code.bank import language, number, sequence, stretch, table, words
from loomrl.envs.code.problem import Pattern

PATTERNS: tuple[Pattern, ...] = (
    *number.PATTERNS,
    *words.PATTERNS,
    *language.PATTERNS,
    *sequence.PATTERNS,
    *stretch.PATTERNS,
    *table.PATTERNS,
)

__all__ = ["PATTERNS"]
