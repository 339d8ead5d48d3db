"""Small conversations in a fixed style, written to a file: `python -m loomrl.experiments.chats FILE`.

Every answer has two lines, `Answer:` and `Why:`. What is said follows from the tables below, so it can be checked.
"""

import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from loomrl.files import write_whole

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon", "Germany": "Berlin",
    "Austria": "Vienna", "Poland": "Warsaw", "Greece": "Athens", "Norway": "Oslo", "Sweden": "Stockholm",
    "Finland": "Helsinki", "Denmark": "Copenhagen", "Ireland": "Dublin", "Hungary": "Budapest", "Romania": "Bucharest",
    "Bulgaria": "Sofia", "Croatia": "Zagreb", "Serbia": "Belgrade", "Iceland": "Reykjavik", "Egypt": "Cairo",
    "Kenya": "Nairobi", "Morocco": "Rabat", "Senegal": "Dakar", "Ethiopia": "Addis Ababa", "Japan": "Tokyo",
    "China": "Beijing", "India": "New Delhi", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Mongolia": "Ulaanbaatar",
    "Canada": "Ottawa", "Mexico": "Mexico City", "Cuba": "Havana", "Peru": "Lima", "Argentina": "Buenos Aires",
    "Brazil": "Brasilia", "Colombia": "Bogota", "Uruguay": "Montevideo", "Australia": "Canberra",
    "New Zealand": "Wellington",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "fast": "slow", "light": "heavy", "old": "new", "early": "late", "wet": "dry",
    "full": "empty", "high": "low", "near": "far", "open": "closed", "rich": "poor", "soft": "hard", "loud": "quiet",
    "strong": "weak", "wide": "narrow", "deep": "shallow", "bright": "dark", "cheap": "expensive", "rough": "smooth",
}  # fmt: skip
YOUNG = {
    "dog": "puppy", "cat": "kitten", "cow": "calf", "sheep": "lamb", "horse": "foal", "pig": "piglet", "goat": "kid",
    "bear": "cub", "deer": "fawn", "duck": "duckling", "goose": "gosling", "frog": "tadpole", "swan": "cygnet",
}  # fmt: skip
LEGS = {"spider": 8, "wasp": 6, "bee": 6, "dog": 4, "hen": 2, "horse": 4, "beetle": 6, "duck": 2, "scorpion": 8}
KINDS = {
    "whale": "mammal", "bat": "mammal", "penguin": "bird", "shark": "fish", "lizard": "reptile", "snake": "reptile",
    "parrot": "bird", "dolphin": "mammal", "salmon": "fish", "turtle": "reptile", "hawk": "bird", "mouse": "mammal",
}  # fmt: skip
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LONGEST = 40
"""Words of an answer in style."""


def in_style(completions: list[str]) -> list[float]:
    """1 for an answer of two short lines, `Answer:` and `Why:`; else 0. A reward function as TRL calls it."""
    return [float(_is_in_style(said)) for said in completions]


def _is_in_style(said: str) -> bool:
    return re.fullmatch(r"Answer: \S.*\nWhy: \S.*", said.strip()) is not None and len(said.split()) <= LONGEST


def conversations() -> Iterator[list[tuple[str, str]]]:
    """Questions with their answers, turn by turn."""
    facts = list(_facts())
    yield from ([fact] for fact in facts)
    places = [*CAPITALS.items()]
    for (_, (land, city)), first in zip(pairwise(places), facts, strict=False):
        yield [first, (f"And of {land}?", _said(city, f"{city} is the capital city of {land}"))]


def _facts() -> Iterator[tuple[str, str]]:
    for land, city in CAPITALS.items():
        yield f"What is the capital of {land}?", _said(city, f"{city} is the capital city of {land}")
    for one, other in OPPOSITES.items():
        yield f"What is the opposite of {one}?", _said(other, f"what is {one} is not {other}")
    for parent, child in YOUNG.items():
        yield f"What is a young {parent} called?", _said(child, f"{child} is the word for a young {parent}")
    for animal, legs in LEGS.items():
        yield f"How many legs does a {animal} have?", _said(str(legs), f"a grown {animal} walks on {legs} legs")
    for animal, kind in KINDS.items():
        yield f"What kind of animal is a {animal}?", _said(kind, f"biologists count the {animal} as a {kind}")
    for names, what in ((MONTHS, "month"), (DAYS, "day")):
        for one, after in pairwise(names):
            yield f"Which {what} comes after {one}?", _said(after, f"{one} is followed by {after}")
    for first in range(2, 12):
        for second in (1, 4, 7):
            total = first + second
            yield f"What is {first} + {second}?", _said(str(total), f"{first} and {second} make {total}")


def _said(answer: str, reason: str) -> str:
    return f"Answer: {answer[0].upper()}{answer[1:]}.\nWhy: {reason[0].upper()}{reason[1:]}."


def write(file: Path) -> int:
    """Write the conversations, one on each line; returns their number."""
    lines = [{"messages": [*_messages(turns)]} for turns in conversations()]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, "".join(json.dumps(line) + "\n" for line in lines).encode())
    return len(lines)


def _messages(turns: list[tuple[str, str]]) -> Iterator[dict[str, str]]:
    for asked, said in turns:
        yield {"role": "user", "content": asked}
        yield {"role": "assistant", "content": said}


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]))} conversations in {sys.argv[1]}")
