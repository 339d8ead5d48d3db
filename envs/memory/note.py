"""A memory of few and short notes, and the rule for reading it."""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

MOST_SHOWN = 8
"""Notes that one query brings back."""
LONGEST_NAME = 30
"""Characters of a key or a category."""
MOST_WORDS = 8
"""Words of a query that are searched for."""

_WORD = re.compile(r"[^\W\d_]+|\d{1,4}", re.ASCII)

Place = tuple[str, str]
"""Key and category: where a note is."""


class NoteRefused(Exception):
    """A refused note, with the reason."""


class Note(NamedTuple):
    """A note, and its day."""

    key: str
    category: str
    text: str
    day: int

    def __str__(self) -> str:
        return f"{self.key} | {self.category} | {self.text} (day {self.day})"


@dataclass(slots=True)
class NoteMemory:
    """At most `capacity` notes of `longest` characters, one for each key and category. None leaves by itself."""

    capacity: int
    longest: int
    notes: dict[Place, Note]

    def store(self, argument: str, day: int) -> None:
        """Write `key | category | text`, over the note of that key and category if there is one."""
        parts = [" ".join(part.split()) for part in argument.split("|")]
        if len(parts) != 3 or not all(parts):
            raise NoteRefused("three parts are needed: key | category | text")
        key, category, text = parts
        note = Note(key, category, text, day)
        if not argument.isprintable():
            raise NoteRefused("only printable characters can be noted")
        if max(len(note.key), len(note.category)) > LONGEST_NAME or len(note.text) > self.longest:
            raise NoteRefused(f"a text has at most {self.longest} characters, its key and category {LONGEST_NAME}")
        place = _place(note.key, note.category)
        if place not in self.notes and len(self.notes) >= self.capacity:
            raise NoteRefused(f"the memory is full with {self.capacity} notes: write over one, or FORGET one")
        self.notes[place] = note

    def forget(self, argument: str) -> None:
        """Take away the note of `key | category`."""
        key, _, category = argument.partition("|")
        if self.notes.pop(_place(key, category), None) is None:
            raise NoteRefused("there is no such note: key | category")

    def retrieve(self, query: str) -> list[Note]:
        """The notes of a day, `day 3`, or those in which all words occur: as key, as category, in the text."""
        wanted = words(query[:400])[:MOST_WORDS]
        if len(wanted) == 2 and wanted[0] == "day" and wanted[1].isdigit():
            return [note for note in self.notes.values() if note.day == int(wanted[1])]
        return [note for note in self.notes.values() if wanted and set(wanted) <= set(words(" ".join(note[:3])))]

    def says(self, key: str, category: str, *, values: Container[str], day: int | None = None) -> str | None:
        """The value noted for this key and category: as of a day, or the latest; None if unclear."""
        note = self.notes.get(_place(key, category))
        return None if note is None else read(note.text, values=values, day=day)

    def says_all(self, category: str, *, values: Container[str]) -> dict[str, str | None]:
        """The value noted for each key in a category."""
        found = [note for place, note in self.notes.items() if place[1] == category]
        return {note.key.casefold(): read(note.text, values=values) for note in found}


def read(text: str, *, values: Container[str], day: int | None = None) -> str | None:
    """The value that a note's text gives: `cat`, or `1 cat 5 dog`, where a number is the day since when.

    None where there is no value, or where two of them begin on the same day.
    """
    since = 0
    history = dict[int, list[str]]()
    for word in words(text):
        if word.isdigit():
            since = int(word)
        elif word in values and (day is None or since <= day):
            history.setdefault(since, []).append(word)
    latest = history[max(history)] if history else []
    return latest[0] if len(set(latest)) == 1 else None


def words(text: str) -> list[str]:
    """Words and numbers, in small letters."""
    return _WORD.findall(text.casefold())


def memory_of(notes: Iterable[Note], *, capacity: int, longest: int) -> NoteMemory:
    """A memory that begins with these notes."""
    return NoteMemory(capacity, longest, {_place(note.key, note.category): note for note in notes})


def _place(key: str, category: str) -> Place:
    return " ".join(key.split()).casefold(), " ".join(category.split()).casefold()


Wanted = Mapping[Place, str]
"""The notes of a good memory: place → text."""
