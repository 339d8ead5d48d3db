"""MetaReasoning: confidence, missing information, equal problems in other words, and broken chains."""

from loomrl.envs.meta.environment import MetaReasoningEnvironment

__all__ = ["MetaReasoningEnvironment"]
