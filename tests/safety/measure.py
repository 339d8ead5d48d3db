"""Recall, precision and harm of redaction on drawn texts."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from tests.safety.draw import Draw, Form, Planted

NEUTRAL = (
    "{}",
    "use {} please",
    "It is {}.",
    'x = "{}"',
    "f('{}')",
    "- {}",
    "| {} | yes |",
    "a, {}, b",
    "({})",
    "`{}`",
    '{{"value": "{}"}}',
    "first line\n{}\nlast line",
    "https://example.com/?x={}",
    "2026-03-12 06:25:01 INFO got {}",
)
"""Texts that say nothing about what is in them."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Of the secrets of a class: how many are gone, and the forms of those that are not."""

    gone: int
    count: int
    missed: Mapping[str, int]
    """By the form's number and an example."""

    @property
    def share(self) -> float:
        return self.gone / self.count


def classes(module: ModuleType) -> dict[str, Sequence[Form]]:
    """The lists of forms of a module, by name."""
    return {name.lower(): value for name, value in vars(module).items() if name.isupper() and isinstance(value, list)}


def planted(name: str, forms: Sequence[Form], each: int) -> list[tuple[int, Planted]]:
    """`each` texts of every form, with the form's number; a bare secret is put into some neutral text."""
    found = []
    for number, form in enumerate(forms):
        draw = Draw(f"{name}/{number}")
        for _ in range(each):
            one = draw.planted(form)
            if one.secrets == (one.text,):
                one = Planted(draw.random.choice(NEUTRAL).format(one.text), one.secrets)
            found.append((number, one))
    return found


def is_gone(secret: str, text: str) -> bool:
    """True if not even half of the secret is left."""
    size = min(len(secret), max(6, len(secret) // 2))
    return not any(secret[start : start + size] in text for start in range(len(secret) - size + 1))


def cleans(texts: Mapping[str, str], each: int) -> list[tuple[str, str]]:
    """`each` documents of every kind, with the kind."""
    return [(kind, Draw(f"{kind}/{number}").fill(texts[kind])) for kind in texts for number in range(each)]


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    """The same texts in another order, the same each time."""
    found = list(texts)
    random.Random(seed).shuffle(found)
    return found
