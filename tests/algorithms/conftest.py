import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _stop_what_was_built(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Algorithms that a test builds are stopped when it ends; one that has to end before does it itself."""
    if "ray.rllib" not in sys.modules:
        yield
        return
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

    built: list[Any] = []
    build = AlgorithmConfig.build_algo

    def build_algo(config: Any, *given: Any, **settings: Any) -> Any:
        built.append(build(config, *given, **settings))
        return built[-1]

    monkeypatch.setattr(AlgorithmConfig, "build_algo", build_algo)
    yield
    for algo in built:
        algo.stop()
