"""Engines shared by all runners of a run."""

from functools import partial

from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.origin import origin_of
from loomrl.config import VllmEngineConfig
from loomrl.inference.open import Opening
from loomrl.inference.vllm.fleet import Fleet, open_fleet


def shared_engines(config: LanguageConfig) -> Fleet | None:
    """The shared engines, ready to answer; None if every runner opens its own."""
    experiment, algorithm = config.experiment, config.algorithm
    if not isinstance(experiment.engine, VllmEngineConfig):
        return None
    opening = Opening(
        origin=config.origin,
        context=algorithm.model.context,
        slots=experiment.rollout.concurrency * max(1, experiment.rollout.actors),
        dtype=algorithm.model.dtype,
    )
    model = partial(origin_of, algorithm.model, artifact_url=experiment.artifact_url, built=config.built_name)
    return open_fleet(experiment.engine, opening, model=model, **experiment.placement.engine.options())


def with_client(config: LanguageConfig, fleet: Fleet) -> LanguageConfig:
    """A configuration through which runners find the fleet."""
    changed: LanguageConfig = config.copy(copy_frozen=False)
    changed.shared_engine = fleet.client()
    changed.freeze()
    return changed
