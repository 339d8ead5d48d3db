"""Games against an opponent, and puzzles: one move per action, won or not."""

from loomrl.envs.game.environment import GameEnvironment

__all__ = ["GameEnvironment"]
