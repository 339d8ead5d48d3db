"""MemoryBuffer: what is noted today, and needed later."""

from loomrl.envs.memory.environment import MemoryBufferEnvironment

__all__ = ["MemoryBufferEnvironment"]
