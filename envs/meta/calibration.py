"""Questions that are answered with a confidence, knowable or only in part.

What is shown gives every value a probability. The value with the largest is the right answer; the confidence c is held
against the probability p of the value that was answered, by (c − p)²: Brier's score, less the part that is
unavoidable. So stating an honest belief is always best.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from random import Random

from loomrl.envs.meta.question import Mark, Questions
from loomrl.gym.generate import between, words

COLOURS = words("red blue green white black pink grey brown gold orange")
WITNESSES = words("Anna Ben Cara Dan Eva Finn Gina Hugo Ida Jan")
Chances = Mapping[str, Fraction]
"""The probability of every value that has one."""
TOLERANCE = 0.01
NEARLY_SURE = Fraction(9, 10)


_GIVEN = re.compile(
    r"([A-Za-z]+|-?[0-9]{1,15})(?: *[,;:|(] *| +)([0-9]{0,3}(?:\.[0-9]{1,6})|[0-9]{1,3}) ?(%|percent)?\)?\.?"
)


def _share(number: str, unit: str | None) -> float:
    """The probability that is meant: percent were asked for, so `40` is 0.4; only 0.4 and 1.0 can but be shares.

    No most probable value has less than one percent, so nothing that is right is lost by that.
    """
    value = float(number)
    return value if "." in number and value <= 1 and not unit else value / 100


@dataclass(frozen=True, slots=True)
class ConfidenceQuestion:
    """A question with one most probable answer; the answer says how probable it is, in percent."""

    prompt: str
    chances: Chances
    choices: tuple[str, ...]
    """For guessing."""
    tolerance: float = 1.0
    """Tolerance of the confidence in a right answer."""
    usage: str = "answer, probability in percent that it is right"

    @property
    def answer(self) -> str:
        """The most probable value, with its probability."""
        value = self.best
        return f"{value}, {float(100 * self.chances[value]):.4g}%"

    @property
    def best(self) -> str:
        """The most probable value."""
        return max(self.chances, key=lambda value: self.chances[value])

    def mark(self, text: str) -> Mark | None:
        """Right is the most probable value, within the tolerance; the loss is about the confidence alone."""
        found = _GIVEN.fullmatch(text.strip())
        confidence = _share(found[2], found[3]) if found else 2.0
        if found is None or confidence > 1:
            return None
        value = found[1].lower()
        gap = abs(confidence - float(self.chances.get(value, 0)))
        return Mark(value == self.best and gap <= self.tolerance, gap**2)

    def guess(self, rng: Random) -> str:
        """A value that occurs, and any confidence."""
        return f"{rng.choice(self.choices)}, {rng.randint(0, 100)}%"


Kind = Callable[[int, Random], ConfidenceQuestion]


def calibration(level: int, rng: Random) -> Questions:
    """Confidence in an answer: a sum, or one of the kinds of `evidence`; right is the most probable value."""
    return (_draw_question((_calculation, *_uncertain(level)), level, rng),)


def evidence(level: int, rng: Random) -> Questions:
    """Justified confidence: a bag, one bag of several, or witnesses; the probability must be right too."""
    question = _draw_question(_uncertain(level), level, rng)
    return (replace(question, tolerance=TOLERANCE, usage="answer, its probability (nearest percent)"),)


def _draw_question(kinds: Sequence[Kind], level: int, rng: Random) -> ConfidenceQuestion:
    """A question with one most probable value, which is certain or well short of it."""
    while True:
        question = rng.choice(kinds)(level, rng)
        first, second = sorted((*question.chances.values(), Fraction(0)), reverse=True)[:2]
        if first > second and (first == 1 or first < NEARLY_SURE):
            return question


def _uncertain(level: int) -> tuple[Kind, ...]:
    return (_bag,) if level < 4 else (_bag, _witnesses, _bags)


def _calculation(level: int, rng: Random) -> ConfidenceQuestion:
    """A calculation, of widely varying length."""
    text = str(first := rng.randint(2, 9 * level))
    value = first
    for _ in range(rng.randint(1, between(level, 1, 9))):
        number = rng.randint(2, 9 if level < 4 else 9 * level)
        sign = rng.choice("+-×" if number <= value else "+×")
        value = value + number if sign == "+" else value - number if sign == "-" else value * number
        text = f"({text}) {sign} {number}" if " " in text else f"{text} {sign} {number}"
    divisor = rng.randint(11, 19)
    if level > 1:
        text = f"the remainder of ({text}) divided by {divisor}"
        value = value % divisor
    return ConfidenceQuestion(f"What is {text}?", {str(value): Fraction(1)}, tuple(map(str, range(divisor))))


def _bag(level: int, rng: Random) -> ConfidenceQuestion:
    """A draw from a bag, whose content changes at higher levels."""
    colours = rng.sample(COLOURS, between(level, 5, 8))
    balls = [*colours, *rng.choices(colours[: len(colours) // 2 + 1], k=rng.choice((5, 15)) if level < 3 else 45)]
    rng.shuffle(colours)
    counts = {colour: balls.count(colour) for colour in colours}
    held = ", ".join(f"{count} {colour}" for colour, count in counts.items())
    changes = ""
    for _ in range(between(level, 0, 5)):
        colour, other = rng.sample(colours, 2)
        if rng.random() < 0.5 or not counts[colour]:
            number = rng.randint(1, 9)
            counts[colour] += number
            changes += f" {number} {colour} are added."
            continue
        moved = rng.randint(1, counts[colour])
        counts[colour] -= moved
        counts[other] += moved
        changes += f" {moved} {colour} are painted {other}."
    total = sum(counts.values())
    chances = {colour: Fraction(count, total) for colour, count in counts.items() if count}
    prompt = f"A bag holds balls: {held}.{changes} One is drawn. Which colour is most likely?"
    return ConfidenceQuestion(prompt, chances, tuple(colours))


def _bags(level: int, rng: Random) -> ConfidenceQuestion:
    """Bags of which one was chosen unseen; what was drawn from it tells something of which one, and of the next."""
    colours = rng.sample(COLOURS, 5)
    shares = [rng.randint(1, 4) for _ in range(between(level, 2, 4))]
    bags = [{colour: rng.randint(1, 6) for colour in colours} for _ in shares]
    drawn = [rng.choice(colours) for _ in range(between(level, 1, 4))]
    weights = [
        Fraction(share, sum(shares)) * prod(Fraction(bag[colour], sum(bag.values())) for colour in drawn)
        for share, bag in zip(shares, bags, strict=True)
    ]
    chances = {
        colour: sum((w * bag[colour] / sum(bag.values()) for w, bag in zip(weights, bags, strict=True)), Fraction(0))
        / sum(weights, Fraction(0))
        for colour in colours
    }
    held = " ".join(
        f"Bag {number} ({share} in {sum(shares)}): {', '.join(f'{count} {colour}' for colour, count in bag.items())}."
        for number, (share, bag) in enumerate(zip(shares, bags, strict=True), start=1)
    )
    prompt = (
        f"One bag was chosen, with the chances given. {held} Balls were drawn from it, each put back: "
        f"{', '.join(drawn)}. Which colour is most likely to be drawn next?"
    )
    return ConfidenceQuestion(prompt, chances, tuple(colours))


def _witnesses(level: int, rng: Random) -> ConfidenceQuestion:
    """Witnesses of a throw who name the true face with known probabilities."""
    faces = between(level, 6, 12)
    truth = rng.randint(1, 6)
    names = rng.sample(WITNESSES, between(level, 2, 7))
    told = {}
    for name in names:
        trust = rng.randrange(20, 75, 5)
        told[name] = trust, truth if rng.random() < trust / 100 else rng.randint(1, faces)
    weights = {
        str(face): prod(
            (
                Fraction(trust, 100) if said == face else Fraction(100 - trust, 100 * (faces - 1))
                for trust, said in told.values()
            ),
            start=Fraction(1),
        )
        for face in range(1, faces + 1)
    }
    total = sum(weights.values(), Fraction(0))
    heard = " ".join(f"{name} ({trust}%) says {said}." for name, (trust, said) in told.items())
    prompt = (
        f"A die with {faces} faces was thrown. Each witness names the true face with the probability given, and else "
        f"any other face, all alike. {heard} Which face is most likely?"
    )
    return ConfidenceQuestion(prompt, {face: weight / total for face, weight in weights.items()}, tuple(weights))
