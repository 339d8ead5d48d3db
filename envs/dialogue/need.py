"""A guest's needs: slots with hidden values, and many ways of expressing one."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from loomrl.envs.language.wording import words
from loomrl.envs.language.world import HOME

DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
COLOURS = words("red green blue white black yellow purple orange brown grey pink silver")
FOODS = words("rice pasta fish soup salad pizza curry tofu beans lentils noodles dumplings")


@dataclass(frozen=True, slots=True)
class Slot:
    """Something to find out."""

    name: str
    values: tuple[str, ...]
    plain: tuple[str, ...]
    """Sentences with a placeholder for the value."""

    @property
    def is_number(self) -> bool:
        """True if values are numbers."""
        return self.values[0].isdecimal()


SLOTS = (
    Slot("city", HOME.values, ("I want to go to {}.", "It is {} for me.", "We are looking at {}.")),
    Slot(
        "budget", tuple(map(str, range(60, 400))), ("I can spend {}.", "No more than {}.", "It should cost {} at most.")
    ),
    Slot("nights", tuple(map(str, range(2, 41))), ("I stay {} nights.", "{} nights.", "It will be {} nights.")),
    Slot("guests", tuple(map(str, range(2, 30))), ("We are {} people.", "{} of us will come.", "A party of {}.")),
    Slot("day", DAYS, ("I arrive on {}.", "{} would be the day.", "Make it {}.")),
    Slot("colour", COLOURS, ("I like {} walls.", "{}, please.", "A {} room would be nice.")),
    Slot("food", FOODS, ("I would like {} for dinner.", "{} for dinner.", "We all love {}.")),
)
"""The first are the ones that are hardest to guess."""

Telling = Callable[[Random, Slot, str], str]


def plainly(rng: Random, slot: Slot, value: str) -> str:
    """`I want to go to Oslo.`"""
    return rng.choice(slot.plain).format(value)


def with_denial(rng: Random, slot: Slot, value: str) -> str:
    """`Not Rome, as last year. It is Oslo for me.`"""
    other = rng.choice([known for known in slot.values if known != value])
    said = plainly(rng, slot, value)
    pattern = rng.choice(("Not {}, as last year. {}", "My sister says {}, but I do not. {}", "{1} Certainly not {0}."))
    return pattern.format(other, said)


def by_reckoning(rng: Random, slot: Slot, value: str) -> str:
    """`Last time it was 4. This time it is 2 more.`, or the day after another one."""
    if slot.is_number:
        gap = rng.choice([step for step in range(-9, 10) if step and int(value) - step > 0])
        side = "more" if gap > 0 else "fewer" if slot.name in ("guests", "nights") else "less"
        return f"Last time the {slot.name} came to {int(value) - gap}. This time it is {abs(gap)} {side}."
    if slot.name == "day":
        gap = rng.randint(1, 6)
        before = DAYS[(DAYS.index(value) - gap) % 7]
        return f"{gap} day{'s' * (gap > 1)} after {before}."
    first, second, third = rng.sample([known for known in slot.values if known != value], 3)
    return f"First I thought of {first}, then of {second} or {third}, and in the end I took {value} after all."


def correction(slot: Slot, old: str, new: str) -> str:
    """`One thing has changed: …`"""
    return f" By the way, forget what I said about the {slot.name}: not {old}, but {new}."
