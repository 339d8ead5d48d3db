"""MetaReasoning: how sure to be, what is not said, the same in other words, and where a chain breaks."""

from loomrl.envs.meta.environment import MetaReasoningEnvironment

__all__ = ["MetaReasoningEnvironment"]
