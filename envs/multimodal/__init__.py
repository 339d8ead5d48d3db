"""Multimodal: questions about pictures drawn for them, so that the answer is known and text is no help."""

from loomrl.envs.multimodal.environment import MultimodalEnvironment

__all__ = ["MultimodalEnvironment"]
