from tests.algorithms.conftest import ray_cluster

__all__ = ["ray_cluster"]
