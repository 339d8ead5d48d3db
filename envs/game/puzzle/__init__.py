"""Puzzles for one player, each with the exact distance to its solution."""

from collections.abc import Callable, Mapping
from random import Random

from loomrl.envs.game.puzzle.hanoi import make_hanoi
from loomrl.envs.game.puzzle.jugs import make_jugs
from loomrl.envs.game.puzzle.lights import make_lights
from loomrl.envs.game.puzzle.riddle import Puzzle, Riddle
from loomrl.envs.game.puzzle.sliding import make_sliding

PUZZLES: Mapping[str, Callable[[int, Random], Puzzle]] = {
    "puzzle.hanoi": make_hanoi,
    "puzzle.jugs": make_jugs,
    "puzzle.lights": make_lights,
    "puzzle.sliding": make_sliding,
}
"""Family → what makes its puzzle of a level."""

__all__ = ["PUZZLES", "Puzzle", "Riddle"]
