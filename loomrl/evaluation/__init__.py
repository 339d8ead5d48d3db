"""Evaluation of policies, with confidence intervals."""

from loomrl.named import lazily

_DOORS = {"EvaluationPipeline": "loomrl.experiments.notebook.pipeline"}

__all__ = list(_DOORS)
__getattr__, __dir__ = lazily("loomrl.evaluation", _DOORS)
