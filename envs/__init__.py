"""The environment pool, a folder per environment, and the four that are played by hand in a script or notebook."""

from loomrl.named import lazily

_DOORS = {
    "DialogueEnv": "loomrl.envs.manual",
    "LogicPuzzleEnv": "loomrl.envs.manual",
    "MemoryBufferEnv": "loomrl.envs.manual",
    "MetaReasoningEnv": "loomrl.envs.manual",
    "MultiAgentTaskEnvironment": "loomrl.envs.teamwork.parallel",
}

__all__ = list(_DOORS)
__getattr__, __dir__ = lazily("loomrl.envs", _DOORS)
