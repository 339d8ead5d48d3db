"""What a family makes: a story with one solution, and what may be asked about it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

NAMES = ("Anna", "Ben", "Cara", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jan", "Kira", "Leo", "Mia", "Nils")


class Puzzle(Protocol):
    """A puzzle as the environment sees it."""

    @property
    def story(self) -> str:
        """All that is known, and the question."""

    @property
    def solution(self) -> str:
        """What the oracle answers."""

    @property
    def solve(self) -> str:
        """What stands behind `SOLVE:` in the prompt."""

    @property
    def query(self) -> str:
        """What stands behind `QUERY:` in the prompt."""

    @property
    def queries(self) -> int:
        """How many facts may be bought."""

    async def accepts(self, attempt: str) -> bool:
        """Whether this is the solution."""

    def tell(self, about: str) -> str | None:
        """The fact that was asked for, or None where the text names none."""

    def guess(self, rng: Random) -> str:
        """A well-formed attempt without skill."""

    def agrees(self, attempt: str, about: str) -> bool:
        """Whether an attempt says of that word what the fact about it says."""


@dataclass(frozen=True, slots=True)
class WordPuzzle:
    """A puzzle whose solution is words.

    With `places`, one group of words for each place in order, commas between the groups; without, one set of words out
    of many. The order inside a group never counts.
    """

    story: str
    solution: str
    solve: str
    query: str
    queries: int
    facts: Mapping[str, str]
    """For each word that may be asked about, in lower case, the sentence that answers."""
    places: bool
    shape: tuple[tuple[str, ...], ...]
    """For guessing: the words of every kind; with `places` one of each kind goes to each place."""

    async def accepts(self, attempt: str) -> bool:
        """Whether the words are those of the solution; nothing else may stand between them but commas and `and`."""
        return read_words(attempt, self.places) == read_words(self.solution, self.places)

    def tell(self, about: str) -> str | None:
        """Where that word belongs."""
        return self.facts.get(_word(about))

    def guess(self, rng: Random) -> str:
        """The words in any order, or any of them."""
        kinds = [rng.sample(words, len(words)) for words in self.shape]
        if not self.places:
            return ", ".join(kinds[0][: rng.randint(1, len(kinds[0]))])
        return ", ".join(" ".join(group) for group in zip(*kinds, strict=True))

    def agrees(self, attempt: str, about: str) -> bool:
        """Whether the word has the same place in both."""
        word = _word(about)
        given, truth = (read_words(text, self.places) or [] for text in (attempt, self.solution))
        return [word in group for group in given] == [word in group for group in truth]


def read_words(text: str, places: bool) -> list[list[str]] | None:
    """The first line as groups of words; None where anything but words, commas and right numbers is in it."""
    line = text.strip().partition("\n")[0].strip().rstrip(".").lower()
    groups = []
    for place, piece in enumerate(re.split(r"[,;]", line), start=1):
        bare = re.sub(rf"^\s*(?:(?:house|place) )?{place}[.:)]", "", piece)
        words = [word for word in bare.split() if word != "and"]
        if not all(word.isalpha() for word in words):
            return None
        groups.append(sorted(words))
    return groups if places else [sorted(word for group in groups for word in group)]


def _word(text: str) -> str:
    return text.strip(" .?").lower()


def listed(words: tuple[str, ...] | list[str], joint: str = "and") -> str:
    """`red, blue and green`."""
    return f"{', '.join(words[:-1])} {joint} {words[-1]}" if len(words) > 1 else words[0]


def sentence(text: str) -> str:
    """The text with a capital first."""
    return text[0].upper() + text[1:]
