"""An episode's story: days with their news, then questions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from loomrl.envs.memory.note import Note, NoteMemory, Wanted
from loomrl.gym.generate import words

PEOPLE = words("Ana Ben Cleo Dan Eva Finn Gus Hana Ivo Jan Kim Leo Mia Noa Ole Pia Rio Sam Tom Uma Vic Wes Yan Zoe")
VALUES: Mapping[str, tuple[str, ...]] = {
    "pet": words("cat dog fox owl hen pig cow bee rat ape elk emu"),
    "city": words("rome oslo lima bern kiev riga doha cork graz nice bonn pisa"),
    "job": words("baker nurse pilot judge miner actor tailor farmer waiter diver clerk guard"),
    "drink": words("tea milk cola beer wine cider mocha water rum cocoa juice soda"),
    "game": words("chess golf poker darts rugby judo polo yoga tennis bingo cards dice"),
}
"""Attribute → its values. No word is in two of them."""
WORDINGS: Mapping[str, tuple[str, ...]] = {
    "pet": ("{who} got a new pet: {a} {value}", "At {who}'s home there lives only {a} {value} now"),
    "city": ("{who} moved to {value}", "{who} lives in {value} from today on"),
    "job": ("{who} began to work as {a} {value}", "{who} is {a} {value} from today on"),
    "drink": ("{who} drinks nothing but {value} now", "{who} orders only {value} from today on"),
    "game": ("{who} plays only {value} now", "{who} gave up everything else for {value}"),
}
"""For those who know what a cat is; up to level 3 it is said plainly."""
PLAIN = 3


class Chronicle:
    """All facts with their days, and the sentences about them."""

    def __init__(self, rng: Random, *, plain: bool, values: Mapping[str, Sequence[str]] = VALUES) -> None:
        self.rng = rng
        self.plain = plain
        self._values = values
        self.day = 0
        self.history: dict[tuple[str, str], list[tuple[int, str]]] = {}
        """(who, attribute) → (since which day, what), in order; the last one is so now."""

    def now(self, who: str, attribute: str) -> str | None:
        """The current value."""
        past = self.history.get((who, attribute))
        return past[-1][1] if past else None

    def news(self, who: str, attribute: str) -> str:
        """Something changes; the sentence that tells it."""
        before = self.now(who, attribute)
        value = self.rng.choice([value for value in self._values[attribute] if value != before])
        self.set(who, attribute, value)
        if self.plain:
            return f"{who}'s {attribute}: {value}."
        shown = value.capitalize() if attribute == "city" else value
        article = "an" if value[0] in "aeiou" else "a"
        return self.rng.choice(WORDINGS[attribute]).format(who=who, a=article, value=shown) + "."

    def swap(self, one: str, other: str, attribute: str) -> str:
        """Two people change places."""
        first = self.now(one, attribute)
        second = self.now(other, attribute)
        assert first is not None
        assert second is not None
        self.set(one, attribute, second)
        self.set(other, attribute, first)
        return f"{one} and {other} exchanged their {attribute}."

    def follow(self, who: str, model: str, attribute: str) -> str:
        """A person now has what another one has."""
        value = self.now(model, attribute)
        assert value is not None
        self.set(who, attribute, value)
        return f"{who}'s {attribute} is now the same as {model}'s."

    def set(self, who: str, attribute: str, value: str) -> None:
        """Let it be so from today on."""
        past = self.history.setdefault((who, attribute), [])
        if past and past[-1][0] == self.day:
            past.pop()
        past.append((self.day, value))

    def on(self, who: str, attribute: str, day: int) -> str:
        """The value on a day."""
        return [value for since, value in self.history[who, attribute] if since <= day][-1]


class StoryQuestion(NamedTuple):
    """A question, its true answer, and the answer from the notes."""

    text: str
    answer: str
    read: Callable[[NoteMemory], str | None]
    many: bool = False
    """True if the answer is a list of names, in any order."""
    old: bool = False
    """True if no day of this episode told the answer."""


class StoryDay(NamedTuple):
    """A number, the news, and what a good memory holds at its end."""

    number: int
    news: str
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class MemoryStory:
    """One task. `facts` are those true at its end, if they outlive the episode."""

    topics: str
    """The topics of the questions."""
    days: tuple[StoryDay, ...]
    questions: tuple[StoryQuestion, ...]
    capacity: int
    longest: int
    notes: tuple[Note, ...] = ()
    """The initial notes."""
    facts: Mapping[str, str] = field(default_factory=dict)


Generator = Callable[[int, Random], MemoryStory]
"""(level, randomness) → story; equal arguments give equal stories in every process."""


def ask_now(chronicle: Chronicle, who: str, attribute: str, *, old: bool = False) -> StoryQuestion:
    """A question about the end."""
    answer = chronicle.now(who, attribute)
    assert answer is not None
    return StoryQuestion(
        f"What is {who}'s {attribute} now?",
        answer,
        lambda memory: memory.says(who, attribute, values=VALUES[attribute]),
        old=old,
    )


def ask_then(chronicle: Chronicle, who: str, attribute: str, day: int) -> StoryQuestion:
    """A question about a day."""
    return StoryQuestion(
        f"What was {who}'s {attribute} on day {day}?",
        chronicle.on(who, attribute, day),
        lambda memory: memory.says(who, attribute, values=VALUES[attribute], day=day),
    )


def ask_who(chronicle: Chronicle, attribute: str, value: str) -> StoryQuestion:
    """Ask for everyone with this value."""
    names = sorted(who for who, what in chronicle.history if what == attribute and chronicle.now(who, what) == value)
    return StoryQuestion(
        f"Whose {attribute} is now: {value}? All names, separated by commas.",
        ", ".join(names),
        lambda memory: ", ".join(sorted(name.capitalize() for name in _keys_noted_with(memory, attribute, value))),
        many=True,
    )


def ask_count(chronicle: Chronicle, attribute: str, value: str) -> StoryQuestion:
    """Ask for the number of people with this value; the notes must name them."""
    who = ask_who(chronicle, attribute, value)
    count = str(len(who.answer.split(", ")))
    return StoryQuestion(
        f"Of how many people is the {attribute} now: {value}? A number.",
        count,
        lambda memory: count if who.read(memory) == who.answer else None,
    )


def _keys_noted_with(memory: NoteMemory, attribute: str, value: str) -> list[str]:
    noted = memory.says_all(attribute, values=VALUES[attribute])
    return [key for key, said in noted.items() if said == value]


def notes_now(chronicle: Chronicle, topic: str) -> Wanted:
    """One note per person with the current value."""
    return {
        (who.casefold(), attribute): past[-1][1]
        for (who, attribute), past in chronicle.history.items()
        if attribute == topic
    }


def notes_history(chronicle: Chronicle, topic: str) -> Wanted:
    """One note for each person, with all that was true, and since when."""
    return {
        (who.casefold(), attribute): " ".join(f"{day} {value}" for day, value in past)
        for (who, attribute), past in chronicle.history.items()
        if attribute == topic
    }
