"""The Game environment: one move per action, the opponent's reply in the answer, paid for winning."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from loomrl.envs.game.begin import FAMILIES, begin, can_be_foretold, missing_families
from loomrl.envs.game.play import (
    COMMAND,
    FORMAT,
    LISTED,
    VERB,
    GamePlay,
    list_hacks,
    list_moves,
    log_score,
    read_prediction,
)
from loomrl.envs.game.puzzles import PUZZLES
from loomrl.envs.game.setting import GameSettings, LeagueOpponent
from loomrl.gym.answer import COMMANDS, command_format, parse_command
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.opponent import SLIPS, LeagueSettings, Rival
from loomrl.types import Message, Observation, Task

STRATEGY_WEIGHT = 0.1
PREDICTION_WEIGHT = 0.1
TERSE = 2
"""Highest level whose prompts do not mention predictions."""


class GameEnvironment(BaseEnvironment):
    """Board games, chess and puzzles, from positions in which the policy can force a win, from either seat.

    A win is a success, a draw half of one. Parts of the reward: `correctness` is 1 or 0.5 for that; `strategic_depth`
    (at most 0.1) is the change of the position's value by a move, so that it sums to the final value minus the initial
    one; with a win `opponent_prediction` (at most 0.1) rewards predictions of the opponent's replies by their mean
    logarithmic score.
    """

    name = "Game"
    version = "1.2.0"
    families = FAMILIES
    settings_class: ClassVar[type[EnvironmentSettings]] = GameSettings
    reward_range = (-STRATEGY_WEIGHT, 1.2)
    reward_parts = ("correctness", "strategic_depth", "opponent_prediction")
    ceilings: ClassVar[Mapping[str, float]] = {"random": 0.1, "constant": 0.1, "hacking": 0.1}
    guess_floor: ClassVar[Mapping[str, float]] = {
        "board.breakthrough": 0.2,
        "board.clobber": 0.15,
        "board.connect_four": 0.25,
        "board.dots_and_boxes": 0.2,
        "board.hex": 0.2,
        "board.nim": 0.2,
        "board.othello": 0.25,
        "board.tictactoe": 0.3,
        "board.y": 0.15,
    }
    """Win rate of random moves over all levels: half against a random opponent, little against the others."""
    sources = ("loomrl.envs.game", *COMMANDS, "loomrl.gym.generate", "loomrl.gym.opponent")
    dependencies = ("open_spiel",)

    settings: GameSettings
    _play: GamePlay
    _rival: Rival | None = None

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        self.missing = missing_families(self.settings.stockfish)
        self.families = tuple(name for name in FAMILIES if name not in self.missing)  # type: ignore[misc]

    @property
    def league(self) -> LeagueSettings | None:
        """The league of the settings, if the opponent is one."""
        return self.settings.opponent if isinstance(self.settings.opponent, LeagueOpponent) else None

    def has_opponent(self, family: str) -> bool:
        """All but the puzzles have one."""
        return family not in PUZZLES

    def seat(self, opponent: Rival) -> None:
        """It plays instead of the opponent of the settings."""
        self._rival = opponent

    async def reset(self, task: Task | None = None) -> Observation:
        """The rules, the position, and how to move."""
        task = self.task_or_random(task)
        self._play = await begin(task, self, self.settings, self._rival)
        self._steps = self._misses = 0
        self._scores: list[float] = []
        self._worth = await self._play.worth() or 0.0
        foretold = can_be_foretold(self.settings, task, self._rival) and task.level > TERSE
        self._foretold = foretold and self.settings.predictions
        return (Message("user", f"{self._play.opening()}\n{self._format()}"),)

    async def step(self, action: str) -> Step:
        """Make the move, and return the reply; an illegal move is answered with the legal ones."""
        self._steps += 1
        command = parse_command(action, (COMMAND,))
        seen = await self._play.move(command.line) if command else None
        if seen is None or command is None:
            self._misses += 1
            lost = self._misses >= self.settings.patience
            return self._end(0.0) if lost else self._go_on(self._reminder(), 0.0)
        self._misses = 0
        self._score(command.reasoning)
        if self._play.outcome is not None:
            return self._end(self._play.outcome)
        worth = await self._play.worth()
        gained, self._worth = (0.0, self._worth) if worth is None else (worth - self._worth, worth)
        return self._go_on(seen, gained)

    def _go_on(self, seen: str, gained: float) -> Step:
        """A turn that is not the last; at the step limit the position's value is settled."""
        if self._steps >= self.settings.max_steps:
            return self._end(0.0)._replace(terminated=False, truncated=True)
        shaping = STRATEGY_WEIGHT * gained
        return Step.say(seen, reward=self.pay(0.0, strategic_depth=shaping))

    def _end(self, outcome: float) -> Step:
        shaping = STRATEGY_WEIGHT * (outcome - self._worth)
        foresight = sum(self._scores) / len(self._scores) if self._scores and outcome == 1 else 0.0
        reward = self.pay(
            outcome, correctness=outcome, strategic_depth=shaping, opponent_prediction=PREDICTION_WEIGHT * foresight
        )
        return Step.end(reward, outcome=outcome, **{SLIPS: self._play.slips})

    def _score(self, reasoning: str) -> None:
        """Score this turn's prediction, or its absence, unless the reply was forced."""
        answer = self._play.answer
        if not self._foretold or answer is None or len(answer.choices) < 2:
            return
        command = parse_command(reasoning, (VERB,))
        chances = read_prediction(command.line) if command else None
        self._scores.append(log_score(chances, answer.choices, answer.move) if chances else 0.0)

    def _format(self) -> str:
        usage = command_format((f"{COMMAND}: move",))
        if not self._foretold:
            return usage
        return f"{usage}\nOn the line before it you may predict the reply, for a bonus if you win:\n{FORMAT}"

    def _reminder(self) -> str:
        left = self.settings.patience - self._misses
        legal = list_moves(self._play.moves(), LISTED)
        return f"That is no legal move. {legal}\nReply with {COMMAND}: move. {left} more such replies lose the game."

    def oracle(self) -> str:
        """The best move that is known."""
        return f"{COMMAND}: {self._play.best()}"

    def random_action(self, rng: Random) -> str:
        """Any legal move."""
        return f"{COMMAND}: {rng.choice(self._play.moves())}"

    def hacks(self) -> Sequence[str]:
        """Attempts to be paid without playing well."""
        return list_hacks(self._play.moves(), self._foretold)
