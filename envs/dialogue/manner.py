"""Manners: rules for the SAY line, stated in the prompt, and the number of turns that kept each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from loomrl.envs.dialogue.scene import LONGEST_SAY, SAY, DialogueAct
from loomrl.envs.language.wording import plain
from loomrl.gym.generate import words

MOST_WORDS = 60
MANNERS_FROM = 3
TABLE_FROM = 6
SURNAMES = words("Weber Sato Miller Rossi Novak Silva Hansen Moreau Costa Fischer")
FORENAMES = {"Frau": words("Anna Mia Lea Eva Ida"), "Herr": words("Paul Leo Max Jan Tom")}
UPSET = "i am sorry"
GLAD = "i am glad"
_MOODS: dict[str, tuple[str, ...]] = {
    UPSET: (
        "I am really annoyed by now.",
        "Honestly, this makes me angry.",
        "I am not happy with any of this.",
        "It has been a terrible day.",
    ),
    GLAD: ("What a lovely day!", "I am in the best of moods.", "I could not be happier.", "This is going wonderfully."),
    "": ("", "", "I am not angry, only in a hurry.", "It is an ordinary day."),
}
_RUDE = frozenset(words("stupid idiot fool nonsense shut hell damn hurry obviously whatever"))
_WORD = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*|[0-9]+")


@dataclass(frozen=True, slots=True)
class Culture:
    """A culture's form of address."""

    country: str
    rule: str
    form: str
    """With placeholders for forename, surname and title."""


CULTURES = (
    Culture("Germany", "Frau or Herr with the surname", "{title} {surname}"),
    Culture("Japan", "the surname with -san", "{surname}-san"),
    Culture("the USA", "the forename alone", "{forename}"),
    Culture("Vietnam", "Em with the forename", "Em {forename}"),
)


class MannerMarks(NamedTuple):
    """The rules kept by a SAY line."""

    politeness: bool
    coherence: bool
    emotional_appropriateness: bool
    cultural_appropriateness: bool


class Manners:
    """The rules of one conversation, and the moods of its partner."""

    def __init__(self, level: int, rng: Random) -> None:
        self.asked = level >= MANNERS_FROM
        """True if the prompt asks for manners."""
        culture = rng.choice(CULTURES)
        title = rng.choice(list(FORENAMES))
        names = {"title": title, "forename": rng.choice(FORENAMES[title]), "surname": rng.choice(SURNAMES)}
        self._address = culture.form.format(**names)
        self._names = names
        self._moods = [rng.choice(list(_MOODS)) for _ in range(64)]
        self._tones = [rng.choice(_MOODS[mood]) for mood in self._moods]
        self._said: set[str] = set()
        self.prompt = self._prompt(culture, level >= TABLE_FROM) if self.asked else ""

    def _prompt(self, culture: Culture, with_table: bool) -> str:
        address = f"call the partner {self._address}"
        if with_table:
            title = f", {self._names['title']}" if culture.country == "Germany" else ""
            table = "; ".join(f"{known.country}: {known.rule}" for known in CULTURES)
            name = f"{self._names['forename']} {self._names['surname']}"
            address = f"use the form of address of the partner, {name} from {culture.country}{title} ({table})"
        return (
            f"\nA bonus for manners: before each command write a line {SAY}: ..., at most {MOST_WORDS} words. In it, "
            f"once each: {address}; say please or thank you; name what the command is about. To an upset partner say "
            "'I am sorry', to a happy one 'I am glad', to others neither."
        )

    def tone(self, turn: int) -> str:
        """The partner's mood before this turn, in words."""
        return self._tones[turn % len(self._tones)] if self.asked else ""

    def mark(self, turn: int, say: str, about: tuple[Sequence[str], Sequence[str]]) -> MannerMarks:
        """The rules kept by this turn's line; an empty or long one keeps none."""
        if not 0 < len(say) <= LONGEST_SAY:
            return MannerMarks(False, False, False, False)
        said = _WORD.findall(plain(say).replace("i'm ", "i am "))
        if len(said) > MOST_WORDS:
            return MannerMarks(False, False, False, False)
        text = " ".join(said)
        fresh = text not in self._said
        self._said.add(text)
        return MannerMarks(
            politeness=_count(text, "please") + _count(text, "thank you") == 1 and _RUDE.isdisjoint(said),
            coherence=fresh and any(_count(text, word) for word in about[0]) and not any(map(said.count, about[1])),
            emotional_appropriateness=_feels(text) == self._moods[turn % len(self._moods)],
            cultural_appropriateness=self._is_addressed(text),
        )

    def _is_addressed(self, text: str) -> bool:
        """True if the one right form occurs once, and no other form of the same names."""
        names = [plain(self._names[part]) for part in ("forename", "surname")]
        wrong = [form for culture in CULTURES if (form := plain(culture.form.format(**self._names))) != self._plain]
        used = sum(_count(text.replace("-san", " san"), name) for name in names)
        return (
            _count(text, self._plain) == 1
            and used == 1
            and not any(_count(text, form) for form in wrong if form not in self._plain)
        )

    @property
    def _plain(self) -> str:
        return plain(self._address)

    def oracle(self, turn: int, act: DialogueAct) -> str:
        """A SAY line that keeps all rules."""
        feeling = self._moods[turn % len(self._moods)]
        opening = f"{feeling.capitalize().replace('i am', 'I am')}. " if feeling else ""
        return f"{SAY}: {opening}Thank you, {self._address}. {act.say}"


def _count(text: str, phrase: str) -> int:
    """The number of occurrences of a phrase in a text of words."""
    return f" {text} ".replace(" ", "  ").count(f" {phrase.replace(' ', '  ')} ")


def _feels(text: str) -> str | None:
    """The one feeling that is expressed once; None for a mixture."""
    counts = {phrase: _count(text, phrase) for phrase in (UPSET, GLAD)}
    if not any(counts.values()):
        return ""
    return next((phrase for phrase, count in counts.items() if count == 1 == sum(counts.values())), None)
