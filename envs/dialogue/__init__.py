"""Dialogue: scripted partners with hidden goals, for interviews, negotiations, debates and support over several
turns.
"""

from loomrl.envs.dialogue.environment import DialogueEnvironment

__all__ = ["DialogueEnvironment"]
