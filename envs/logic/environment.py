"""The LogicPuzzle environment: one puzzle, facts for sale, one attempt."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar

from pydantic import Field

from loomrl.envs.logic.formula import deduction, knights
from loomrl.envs.logic.grid import grid
from loomrl.envs.logic.ordering import ordering
from loomrl.envs.logic.puzzle import LogicPuzzle, WordPuzzle, attempt_hacks
from loomrl.envs.logic.template import (
    OUTSIDE,
    STATEMENTS,
    OutsideParameters,
    StatementParameters,
    outside_puzzle,
    statements,
)
from loomrl.gym.answer import COMMANDS, command_format, parse_command
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.generate import rng_of
from loomrl.types import Message, Observation, Task

PRICE = 0.25
"""Cost of a query."""
MOST_QUERIES = 2
VERBS = ("SOLVE", "QUERY")
FAMILIES: Mapping[str, Callable[[int, Random, int], WordPuzzle]] = {
    "deduction": deduction,
    "grid": grid,
    "knights": knights,
    "ordering": ordering,
}


class LogicPuzzleSettings(EnvironmentSettings):
    """Settings of LogicPuzzle."""

    max_steps: int = Field(8, ge=1)
    """Actions of an episode, those that were no command included."""


class LogicPuzzleEnvironment(BaseEnvironment):
    """A puzzle with exactly one solution, which its text determines. `SOLVE` ends it; `QUERY` buys a fact.

    An episode's reward is solved − price × queries: `correctness` is 1 for the solution, `efficiency` is minus the
    price of each query, at once and whether or not the puzzle is solved later. Success is that sum, and 0 without a
    solution: what was asked for is to solve the puzzle without being told. So few facts are for sale that they cannot
    make up the solution.
    """

    name = "LogicPuzzle"
    version = "1.2.0"
    families = tuple(FAMILIES)
    template_families: ClassVar[Mapping[str, Sequence[str]]] = {
        OUTSIDE: OutsideParameters.names(),
        STATEMENTS: StatementParameters.names(),
    }
    settings_class = LogicPuzzleSettings
    reward_range = (-PRICE * MOST_QUERIES, 1.0)
    guess_floor: ClassVar[Mapping[str, float]] = {"ordering": 0.13}
    """At the worst level, the success of buying every available fact and guessing the rest; elsewhere at most 0.1."""
    reward_parts = ("correctness", "efficiency")
    sources = ("loomrl.envs.logic", *COMMANDS, "loomrl.gym.generate", "loomrl.gym.adapters.reasoning_gym")

    _puzzle: LogicPuzzle
    _bought: tuple[str, ...] = ()

    async def reset(self, task: Task | None = None) -> Observation:
        """The puzzle, the price of a fact, and the commands."""
        task = self.task_or_random(task)
        self._bought = ()
        queries = 1 if task.level < 4 else MOST_QUERIES
        if task.family == OUTSIDE:
            self._puzzle = outside_puzzle(task, MOST_QUERIES)
        elif task.family == STATEMENTS:
            self._puzzle = statements(task, queries)
        else:
            self._puzzle = FAMILIES[task.family](task.level, rng_of(task), queries)
        return (Message("user", f"{self._puzzle.story}\n\n{self._commands()}"),)

    def _commands(self) -> str:
        puzzle = self._puzzle
        offer = f"QUERY: {puzzle.query} (price {PRICE}, at most {puzzle.queries})"
        return command_format([f"SOLVE: {puzzle.solve}", offer])

    async def step(self, action: str) -> Step:
        """Sell a fact, or judge a solution."""
        command = parse_command(action, VERBS)
        if command is None:
            return Step.say(f"No command was found. {self._commands()}")
        if command.verb == "QUERY":
            return self._query(command.line)
        solved = await self._puzzle.accepts(command.argument)
        if solved is None:
            return Step.say(f"That is no solution. SOLVE takes {self._puzzle.solve}.")
        # bought facts lower success too, or curricula would take a bought solution for a found one
        success = 1.0 - PRICE * len(self._bought) if solved else 0.0
        return Step.end(self.pay(success, correctness=float(solved)), solution=self._puzzle.solution)

    def _query(self, about: str) -> Step:
        """A fact for its price; what names no fact, or comes too late, costs nothing."""
        if len(self._bought) >= self._puzzle.queries:
            return Step.say("No query is left. SOLVE the puzzle.")
        fact = self._puzzle.tell(about)
        if fact is None:
            return Step.say(f"That cannot be queried. QUERY takes {self._puzzle.query}.")
        self._bought += (about,)
        return Step.say(fact, reward=self.pay(0.0, efficiency=-PRICE))

    def oracle(self) -> str:
        """The solution, without a query."""
        return f"SOLVE: {self._puzzle.solution}"

    def random_action(self, rng: Random) -> str:
        """A well-formed solution."""
        return f"SOLVE: {self._puzzle.guess(rng)}"

    def hacks(self) -> Sequence[str]:
        """Facts bought and the rest guessed, everything at once, the question given back, and words to the judge."""
        return attempt_hacks(self._puzzle, self._bought)
