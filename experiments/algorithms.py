"""The one place where an experiment's algorithm is opened, and Ray with it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loomrl.config import CustomAlgorithm, Experiment
from loomrl.named import named


def open_algorithm(experiment: Experiment, *, run: str | None = None) -> Any:
    """The RLlib configuration of the experiment; `build_algo()` makes the algorithm."""
    if isinstance(experiment.algorithm, CustomAlgorithm):
        return named(experiment.algorithm.entry_point, what="algorithm.entry_point").of(experiment, run=run)
    from algorithms.language.config import LanguageConfig

    return LanguageConfig.of(experiment, run=run)


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
