"""MemoryBuffer: notes taken on one day, and needed later."""

from loomrl.envs.memory.environment import MemoryBufferEnvironment

__all__ = ["MemoryBufferEnvironment"]
