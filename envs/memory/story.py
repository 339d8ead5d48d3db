"""An episode's story: days with their news, then questions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from loomrl.envs.memory.fact import VALUES, Chronicle
from loomrl.envs.memory.note import Memory, Note, Wanted


class Question(NamedTuple):
    """A question, its true answer, and the answer from the notes."""

    text: str
    answer: str
    read: Callable[[Memory], str | None]
    many: bool = False
    """True if the answer is a list of names, in any order."""
    old: bool = False
    """True if no day of this episode told the answer."""


class Day(NamedTuple):
    """A number, the news, and what a good memory holds at its end."""

    number: int
    news: str
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Story:
    """One task. `facts` are those true at its end, if they outlive the episode."""

    topics: str
    """The topics of the questions."""
    days: tuple[Day, ...]
    questions: tuple[Question, ...]
    capacity: int
    longest: int
    notes: tuple[Note, ...] = ()
    """The initial notes."""
    facts: Mapping[str, str] = field(default_factory=dict)


Generator = Callable[[int, Random], Story]
"""(level, randomness) → story; equal arguments give equal stories in every process."""


def ask_now(chronicle: Chronicle, who: str, attribute: str, *, old: bool = False) -> Question:
    """A question about the end."""
    answer = chronicle.now(who, attribute)
    assert answer is not None
    return Question(
        f"What is {who}'s {attribute} now?",
        answer,
        lambda memory: memory.says(who, attribute, values=VALUES[attribute]),
        old=old,
    )


def ask_then(chronicle: Chronicle, who: str, attribute: str, day: int) -> Question:
    """A question about a day."""
    return Question(
        f"What was {who}'s {attribute} on day {day}?",
        chronicle.on(who, attribute, day),
        lambda memory: memory.says(who, attribute, values=VALUES[attribute], day=day),
    )


def ask_who(chronicle: Chronicle, attribute: str, value: str) -> Question:
    """Of whom it is so."""
    names = sorted(who for who, what in chronicle.history if what == attribute and chronicle.now(who, what) == value)
    return Question(
        f"Whose {attribute} is now: {value}? All names, separated by commas.",
        ", ".join(names),
        lambda memory: ", ".join(sorted(name.capitalize() for name in _noted(memory, attribute, value))),
        many=True,
    )


def ask_count(chronicle: Chronicle, attribute: str, value: str) -> Question:
    """Of how many it is so; the notes must say of whom."""
    who = ask_who(chronicle, attribute, value)
    count = str(len(who.answer.split(", ")))
    return Question(
        f"Of how many people is the {attribute} now: {value}? A number.",
        count,
        lambda memory: count if who.read(memory) == who.answer else None,
    )


def _noted(memory: Memory, attribute: str, value: str) -> list[str]:
    noted = memory.says_all(attribute, values=VALUES[attribute])
    return [key for key, said in noted.items() if said == value]


def wanted_now(chronicle: Chronicle, topic: str) -> Wanted:
    """One note per person with the current value."""
    return {
        (who.casefold(), attribute): past[-1][1]
        for (who, attribute), past in chronicle.history.items()
        if attribute == topic
    }


def wanted_history(chronicle: Chronicle, topic: str) -> Wanted:
    """One note for each person, with all that was true, and since when."""
    return {
        (who.casefold(), attribute): " ".join(f"{day} {value}" for day, value in past)
        for (who, attribute), past in chronicle.history.items()
        if attribute == topic
    }
