"""The one place where an experiment's algorithm is opened, and Ray with it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loomrl.config import SAC, AnyExperiment, ControlExperiment, CustomAlgorithm, Weave
from loomrl.named import named


def open_algorithm(experiment: AnyExperiment, *, run: str | None = None) -> Any:
    """The RLlib configuration of the experiment; `build_algo()` makes the algorithm."""
    if isinstance(experiment.algorithm, CustomAlgorithm):
        return named(experiment.algorithm.entry_point, what="algorithm.entry_point").of(experiment, run=run)
    if isinstance(experiment, ControlExperiment):
        return _control(experiment, run)
    from algorithms.language.config import LanguageConfig

    return LanguageConfig.of(experiment, run=run)


def _control(experiment: ControlExperiment, run: str | None) -> Any:
    if isinstance(experiment.algorithm, SAC):
        from algorithms.sac import SACConfig

        return SACConfig.of(experiment, run=run)
    if isinstance(experiment.algorithm, Weave):
        from algorithms.weave import WeaveConfig

        return WeaveConfig.of(experiment, run=run)
    from algorithms.ppo import PPOConfig

    return PPOConfig.of(experiment, run=run)


@contextmanager
def ray_running(cpus: int) -> Iterator[None]:
    """A Ray to work in: the one that is there (a job, a cluster in RAY_ADDRESS), else one of our own for the block."""
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    alone = "RAY_ADDRESS" not in os.environ
    started: dict[str, Any] = {"num_cpus": max(cpus, os.cpu_count() or 1), "include_dashboard": False} if alone else {}
    ray.init(log_to_driver=False, logging_level="ERROR", **started)
    try:
        yield
    finally:
        ray.shutdown()
