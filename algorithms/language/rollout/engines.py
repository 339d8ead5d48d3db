"""Engines shared by all runners of a run."""

from functools import partial

from loomrl.algorithms.language.origin import origin_of
from loomrl.algorithms.language.resolved import Resolved
from loomrl.config import VllmEngineConfig
from loomrl.inference.open import Opening
from loomrl.inference.vllm.fleet import VllmFleet, open_fleet


def shared_engines(resolved: Resolved) -> VllmFleet | None:
    """The shared engines, ready to answer; None if every runner opens its own."""
    experiment = resolved.experiment
    algorithm = resolved.algorithm
    if not isinstance(experiment.engine, VllmEngineConfig):
        return None
    opening = Opening(
        origin=resolved.origin,
        context=algorithm.model.context,
        slots=experiment.rollout.concurrency * max(1, experiment.rollout.runners),
        dtype=algorithm.model.dtype,
        trust_remote_code=algorithm.model.trust_remote_code,
    )
    model = partial(origin_of, algorithm.model, artifact_url=experiment.artifact_url, built=resolved.built_name)
    return open_fleet(experiment.engine, opening, model=model, **experiment.placement.engine.options())
