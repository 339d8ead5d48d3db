"""Dialogue: scripted partners with hidden goals, asked, bargained with, debated and helped over several turns."""

from loomrl.envs.dialogue.environment import DialogueEnvironment

__all__ = ["DialogueEnvironment"]
