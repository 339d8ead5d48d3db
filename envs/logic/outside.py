"""Puzzles of reasoning-gym's safe data sets, by task template. They need the extra `reasoning-gym`.

templates:
  - {name: sudoku, environment: LogicPuzzle, family: reasoning_gym, levels: {1: {}}, parameters: {dataset: mini_sudoku}}
"""

import re
from collections.abc import Sequence
from random import Random

from loomrl.errors import ConfigError, unknown
from loomrl.gym.adapters.reasoning_gym import PREFIX, ReasoningGymEnvironment
from loomrl.gym.answer import TaggedAnswer
from loomrl.schema import Config
from loomrl.types import Task

FAMILY = "reasoning_gym"
DATASETS: Sequence[str] = ("cryptarithm", "futoshiki", "kakurasu", "mini_sudoku", "sudoku")
"""Those whose answer is a filled grid or an assignment, each part of which is a fact."""


class _Parameters(Config):
    """The parameters in a template of this family."""

    dataset: str
    template: str = ""


PARAMETERS = tuple(name for name in _Parameters.model_fields if name != "template")


class OutsidePuzzle:
    """An item of a data set, judged by the data set's own scorer. The facts are the entries of its solution."""

    solve = "the answer, over as many lines as it needs"
    query = "number of an entry, counted row by row from 1"

    def __init__(self, dataset: str, task: Task, queries: int) -> None:
        self._environment = ReasoningGymEnvironment()
        self.story = self._environment.ask(self._environment.task(PREFIX + dataset, task.level, task.seed))
        self.solution = self._environment.oracle().removeprefix("<answer>").removesuffix("</answer>")
        self._entries = re.findall(r"\w+(?:=\w+)?", self.solution)
        self.queries = queries

    async def accepts(self, attempt: str) -> bool:
        """True if the data set gives its full score."""
        return (await self._environment.judge(TaggedAnswer("", attempt, tidy=False))).success == 1.0

    def tell(self, about: str) -> str | None:
        """The entry with this number."""
        number = int(about) if about.isascii() and about.isdecimal() and len(about) < 4 else 0
        if not 1 <= number <= len(self._entries):
            return None
        return f"Entry {number} is {self._entries[number - 1]}."

    def guess(self, rng: Random) -> str:
        """The entries in another order."""
        return " ".join(rng.sample(self._entries, len(self._entries)))

    def agrees(self, attempt: str, about: str) -> bool:
        """Nothing is known of attempts at other people's puzzles."""
        return True


def outside_puzzle(task: Task, queries: int) -> OutsidePuzzle:
    """The puzzle of a task made by a template; a data set that is not offered here is a ConfigError."""
    given = _Parameters.parse(dict(task.parameters), origin="parameters of a task template of LogicPuzzle")
    if given.dataset not in DATASETS:
        raise ConfigError("dataset " + unknown("name", given.dataset, DATASETS))
    return OutsidePuzzle(given.dataset, task, queries)
