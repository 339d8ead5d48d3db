"""Questions with a few possible answers."""

import random
from typing import ClassVar

from tests.gym.planted.base import Question


class Divides(Question):
    """Does one number divide another?"""

    families = ("small", "large")
    guess_floor: ClassVar[dict[str, float]] = {"small": 0.5, "large": 0.5}

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        divisor = rng.randint(3, 9) if family == "small" else rng.randint(11, 20 + level)
        multiple = divisor * rng.randint(3, 10 + 20 * level)
        self.truth = rng.choice(("yes", "no"))
        number = multiple if self.truth == "yes" else multiple + rng.randint(1, divisor - 1)
        return f"Is {number} divisible by {divisor}? Answer yes or no."

    def oracle(self) -> str:
        return self.truth

    def random_action(self, rng: random.Random) -> str:
        return rng.choice(("yes", "no"))


class Remainder(Divides):
    def grade(self, action: str) -> float:
        return float(self.truth in action.lower())


class Multiple(Divides):
    def grade(self, action: str) -> float:
        return float(action.strip().removesuffix(".").lower() == self.truth)


class Product(Question):
    """Multiple choice: a product among four numbers."""

    guess_floor: ClassVar[dict[str, float]] = {"default": 0.25}

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        a, b = (rng.randint(3, 10 + 9 * level) for _ in range(2))
        step = rng.choice((1, 2, 10))
        options = sorted(self.options(rng, a * b, step))
        self.letter = "ABCD"[options.index(a * b)]
        listed = "\n".join(f"{letter}) {option}" for letter, option in zip("ABCD", options, strict=True))
        return f"What is {a} × {b}?\n{listed}\nAnswer with a letter."

    def options(self, rng: random.Random, right: int, step: int) -> list[int]:
        """The right number and three others."""
        raise NotImplementedError

    def oracle(self) -> str:
        return self.letter

    def random_action(self, rng: random.Random) -> str:
        return rng.choice("ABCD")

    def grade(self, action: str) -> float:
        return float(action.strip().rstrip(").").upper() == self.letter)


class QuizNight(Product):
    def options(self, rng: random.Random, right: int, step: int) -> list[int]:
        return [right, right + step, right - step, right - 2 * step]


class QuizShow(Product):
    def options(self, rng: random.Random, right: int, step: int) -> list[int]:
        first = right - step * rng.randint(0, 3)
        return [first + step * place for place in range(4)]
