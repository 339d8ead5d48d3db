from tests.algorithms.conftest import control_environments, ray_cluster

__all__ = ["control_environments", "ray_cluster"]
