"""A game of two: the policy moves, the opponent replies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from loomrl.envs.game.board import BoardGame
from loomrl.envs.game.notation import plain
from loomrl.envs.game.opponent import Opponent, OpponentTurn
from loomrl.envs.game.play import FEW, OpponentReply, list_moves
from loomrl.envs.game.solver import PositionJudge, outcome
from loomrl.envs.game.spiel import BoardState


@dataclass(frozen=True, slots=True)
class Setup:
    """The initial state of a match."""

    board: BoardGame
    rules: str
    state: BoardState
    judge: PositionJudge
    opponent: Opponent
    most: int | None = None
    """Maximum number of moves for the policy to win."""


class GameMatch:
    """A match in progress; the player to move in the first position is the policy.

    Its randomness follows from `chance` and the moves so far.
    """

    def __init__(self, setup: Setup, chance: str) -> None:
        self.outcome: float | None = None
        self.answer: OpponentReply | None = None
        self._setup = setup
        self._chance = chance
        self._board = setup.board
        self._state = setup.state.clone()
        self._seat = self._state.current_player()
        self._left = setup.most
        self._begins = True
        self._greeted = False

    @property
    def slips(self) -> int:
        """Random moves made for the opponent."""
        return self._setup.opponent.slips

    def opening(self) -> str:
        """The rules, the policy's side, and the position."""
        return self._introduce(self._seat)

    def moves(self) -> Sequence[str]:
        """The legal moves as they are written."""
        return list(self._legal())

    def best(self) -> str:
        """The judge's move."""
        return self._board.spell(self._state, self._setup.judge.best(self._state))

    async def worth(self) -> float | None:
        """The judge's value; a match begins in a won position."""
        return 1.0 if self._begins else await self._setup.judge.value(self._state, self._seat)

    async def move(self, text: str) -> str | None:
        """Make the move, then those of the opponent until it is the policy's turn again or the game is over."""
        action = self._legal().get(plain(text))
        if action is None:
            return None
        self.answer = None
        self._begins = False
        told = [self._apply(action)]
        if self._left is not None:
            self._left -= 1
        while not self._over() and self._state.current_player() != self._seat:
            told.append(await self._reply(told))
        self._settle()
        return "\n".join([*told[1:], self._show()])

    async def _reply(self, told: Sequence[str]) -> str:
        """One move of the opponent, in words."""
        other = 1 - self._seat
        legal = self._legal()
        words = f"{told[-1]}\n{self._show()}" if self._greeted else self._introduce(other)
        self._greeted = True
        action = await self._setup.opponent.reply(OpponentTurn(self._state, legal, words, self._rng("reply")))
        self.answer = self.answer or OpponentReply(self._board.spell(self._state, action), list(legal))
        return self._apply(action)

    def _apply(self, action: int) -> str:
        side = self._board.sides[self._state.current_player()]
        move = self._board.spell(self._state, action)
        self._state.apply_action_with_legality_check(action)
        return f"{side} plays {move}."

    def _legal(self) -> Mapping[str, int]:
        """In random order: OpenSpiel's own order lists the foremost pawns first."""
        actions = self._state.legal_actions()
        # an order of strength would give the best move away
        self._rng("order").shuffle(actions)
        return {self._board.spell(self._state, action): action for action in actions}

    def _rng(self, use: str) -> Random:
        """Randomness that follows from the task and all moves so far."""
        return Random(f"{self._chance} {use} {self._state.history()}")

    def _over(self) -> bool:
        return self._state.is_terminal() or self._left == 0

    def _settle(self) -> None:
        if not self._over():
            return
        ended = self._state.is_terminal() and not self._board.repeats(self._state)
        self.outcome = (outcome(self._state, self._seat) + 1) / 2 if ended else 0.0

    def _introduce(self, seat: int) -> str:
        goal = "" if self._left is None else f" Win within {self._left} moves, and without repetition."
        return f"{self._setup.rules} You are {self._board.sides[seat]}.{goal}\n{self._show()}"

    def _show(self) -> str:
        """The position, with its legal moves if they are few."""
        lines = [self._board.show(self._state)]
        moves = self.moves()
        if 0 < len(moves) <= FEW:
            lines.append(list_moves(moves, FEW))
        return "\n".join(lines)
