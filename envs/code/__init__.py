"""Code: functions to write, correct, speed up and review, graded outside the process that runs them."""

from loomrl.envs.code.environment import CodeEnvironment

__all__ = ["CodeEnvironment"]
