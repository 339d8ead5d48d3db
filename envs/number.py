"""Short questions about numbers, answered by nothing but the answer: what a small pretrained chat model can learn."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from loomrl.gym.answer import undress
from loomrl.gym.base import BaseEnvironment, Step
from loomrl.gym.generate import listed, rng_of
from loomrl.types import Message, Observation, Task

QUESTIONS = {"largest": "Which is the largest: {}?", "sorted": "Sort from smallest to largest: {}."}
EXAMPLE = (7, 41, 23)


class NumberEnvironment(BaseEnvironment):
    """Numbers below 100, three at level 1 and one more with every level; the whole reply is the answer.

    An example question with its answer comes first. Its reply is read without marks and without `The answer is`, and
    nothing is chosen from it: one that names several numbers is wrong.
    """

    version = "0.1.0"
    families = tuple(QUESTIONS)
    reward_range = (0.0, 1.0)
    reward_parts = ("correctness",)
    guess_floor: ClassVar[Mapping[str, float]] = {"largest": 0.34}
    sources: ClassVar[tuple[str, ...]] = ("loomrl.gym.answer", "loomrl.gym.generate")

    _numbers: Sequence[int]
    _answer: str

    async def reset(self, task: Task | None = None) -> Observation:
        """The example, and the question."""
        task = self.task_or_random(task)
        self._numbers = rng_of(task).sample(range(1, 100), 2 + task.level)
        self._answer = _answer(task.family, self._numbers)
        return (
            Message("system", "Reply with the answer only."),
            Message("user", _ask(task.family, EXAMPLE)),
            Message("assistant", _answer(task.family, EXAMPLE)),
            Message("user", _ask(task.family, self._numbers)),
        )

    async def step(self, action: str) -> Step:
        """Right or wrong; text is compared, never evaluated."""
        right = float(undress(action) == self._answer)
        return Step.end(self.pay(right, correctness=right), answer=self._answer)

    def oracle(self) -> str:
        """The answer."""
        return self._answer

    def random_action(self, rng: Random) -> str:
        """One of the numbers."""
        return str(rng.choice(self._numbers))

    def hacks(self) -> tuple[str, ...]:
        """Several answers in one, the answer among others, and a denial of it."""
        named = listed([*map(str, self._numbers)], "or")
        return (named, f"{self._answer} or {self._numbers[0]}", f"not {self._answer}", "99", "")


def _ask(family: str, numbers: Sequence[int]) -> str:
    return QUESTIONS[family].format(listed([*map(str, numbers)], "or" if family == "largest" else "and"))


def _answer(family: str, numbers: Sequence[int]) -> str:
    return str(max(numbers)) if family == "largest" else ", ".join(map(str, sorted(numbers)))
