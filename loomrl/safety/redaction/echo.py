"""Echoes: a value that one place gave away is looked for in all others, where nothing says what it is."""

from collections.abc import Iterator, Mapping, Sequence

from loomrl.safety.redaction.finding import Finding, merged

SHORTEST = 6
LONGEST = 200
"""Characters of a value that is looked for by itself: there are others like a shorter one, and a longer one is told."""


class Echoes:
    """Looks for values that were found, by their kinds. Words and short numbers are none: those are everywhere."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._kinds = {value: kind for value, kind in kinds.items() if _is_telling(value)}
        lengths: dict[str, set[int]] = {}
        for value in self._kinds:
            lengths.setdefault(value[:SHORTEST], set()).add(len(value))
        self._lengths = {begin: sorted(found, reverse=True) for begin, found in lengths.items()}
        """Of the values that begin so: many values cost no more than one."""

    def beside(self, text: str, found: Sequence[Finding]) -> Sequence[Finding]:
        """What was found in a text, and the values that are in it too."""
        return merged([*found, *self._in(text)]) if self._kinds else found

    def _in(self, text: str) -> Iterator[Finding]:
        end = 0
        lengths = self._lengths
        for start in range(len(text) - SHORTEST + 1):
            begin = text[start : start + SHORTEST]
            if begin not in lengths or start < end:
                continue
            for length in lengths[begin]:
                if (kind := self._kinds.get(text[start : start + length])) is not None:
                    end = start + length
                    yield Finding(start, end, kind)
                    break


def values_in(text: str, found: Sequence[Finding]) -> dict[str, str]:
    """The values of findings, and their kinds."""
    return {text[one.start : one.end]: one.kind for one in found}


def _is_telling(value: str) -> bool:
    is_word_or_number = value.isalpha() or (value.isdigit() and len(value) < 9)
    return SHORTEST <= len(value) <= LONGEST and not is_word_or_number
