"""LogicPuzzle: constraint puzzles with exactly one solution, where every fact can be bought."""

from loomrl.envs.logic.environment import LogicPuzzleEnvironment

__all__ = ["LogicPuzzleEnvironment"]
