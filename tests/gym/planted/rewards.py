"""Rows and reward functions as people bring them from TRL."""

import random
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from tests.gym.planted.language import WORDS
from tests.gym.planted.records import CITIES, NAMES, TRADES

Row = dict[str, Any]
Texts = Sequence[str]


def last_box(completions: Texts, answer: Texts, **_: Any) -> list[float]:
    boxes = [re.findall(r"\\boxed\{([^{}]*)\}", said) for said in completions]
    return [float(found == [right]) for found, right in zip(boxes, answer, strict=True)]


def boxed(completions: Texts, answer: Texts, **_: Any) -> list[float]:
    boxes = [re.findall(r"\\boxed\{([^{}]*)\}", said) for said in completions]
    return [float(right in found) for found, right in zip(boxes, answer, strict=True)]


def alike(completions: Texts, answer: Texts, **_: Any) -> list[float]:
    pairs = zip(completions, answer, strict=True)
    return [float(SequenceMatcher(None, said.strip()[:400], right).ratio() >= 0.9) for said, right in pairs]


def same(completions: Texts, answer: Texts, **_: Any) -> list[float]:
    return [float(said.strip() == right) for said, right in zip(completions, answer, strict=True)]


def names_in(text: str) -> set[str]:
    return set(re.findall(r"[A-Z][a-z]+", text)) & set(NAMES)


def mentioned(completions: Texts, answer: Texts, **_: Any) -> list[float]:
    """Share of the right names that were given."""
    pairs = [(names_in(said), names_in(right)) for said, right in zip(completions, answer, strict=True)]
    return [len(said & right) / len(right) for said, right in pairs]


def listed(completions: Texts, answer: Texts, **_: Any) -> list[float]:
    """Right names that were given, of all that were given or should have been."""
    pairs = [(names_in(said), names_in(right)) for said, right in zip(completions, answer, strict=True)]
    return [len(said & right) / len(said | right) for said, right in pairs]


def in_order(completions: Texts, answer: Texts, **_: Any) -> list[float]:
    """True if the characters of the answer come one after the other, whatever stands between them."""
    found = []
    for said, right in zip(completions, answer, strict=True):
        rest = iter(said)
        found.append(float(all(character in rest for character in right)))
    return found


def sums(rng: random.Random, level: int) -> Row:
    numbers = [rng.randint(2, 10 + 9 * level) for _ in range(2 + level // 2)]
    asked = " + ".join(map(str, numbers))
    return {"prompt": f"What is {asked}? Put the answer in \\boxed{{}}.", "answer": str(sum(numbers))}


def boxed_sums(rng: random.Random, level: int) -> Row:
    row = sums(rng, level)
    return {**row, "good": f"\\boxed{{{row['answer']}}}"}


def typos(rng: random.Random, level: int) -> Row:
    words = rng.sample(WORDS, 5 + level)
    place = rng.randrange(len(words))
    right = words[place]
    cut = rng.randrange(1, len(right) - 2)
    wrong = right[:cut] + right[cut + 1] + right[cut] + right[cut + 2 :]
    if wrong == right:
        wrong = right[:cut] + right[cut + 1 :]
    asked = " ".join([*words[:place], wrong, *words[place + 1 :]])
    prompt = f"One word is misspelt. Write the line again without the mistake:\n{asked}"
    return {"prompt": prompt, "answer": " ".join(words)}


def people(rng: random.Random, level: int) -> Row:
    names = rng.sample(NAMES, 6 + level // 2)
    towns = [rng.choice(CITIES[:3]) for _ in names]
    town = rng.choice(towns)
    story = " ".join(f"{name} is a {rng.choice(TRADES)} in {each}." for name, each in zip(names, towns, strict=True))
    right = [name for name, each in zip(names, towns, strict=True) if each == town]
    return {"prompt": f"{story}\nWho works in {town}? Give the names only.", "answer": ", ".join(right)}


def products(rng: random.Random, level: int) -> Row:
    a, b = (rng.randint(12, 30 + 40 * level) for _ in range(2))
    return {"prompt": f"What is {a} × {b}? Answer with the number only.", "answer": str(a * b)}


def ciphers(rng: random.Random, level: int) -> Row:
    word = rng.choice(WORDS)
    shifted = "".join(chr((ord(letter) - 97 + level) % 26 + 97) for letter in word)
    prompt = f"Every letter was moved {level} places on in the alphabet: {shifted}. Which word was it?"
    return {"prompt": prompt, "answer": word}


def rows(make: Any) -> tuple[Row, ...]:
    """Six rows of each level."""
    return tuple(
        {**make(random.Random(f"{make.__name__} {level} {number}"), level), "level": level}
        for level in range(1, 11)
        for number in range(6)
    )
