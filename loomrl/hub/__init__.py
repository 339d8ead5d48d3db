"""The Trajectory API: a durable queue between runners and learners. Start with `open_hub`."""

from loomrl.hub.hub import EVERYTHING, EnvironmentStats, GroupPlan, Hub, HubStats, Lease, Ready, Selection
from loomrl.hub.open import open_hub

__all__ = [
    "EVERYTHING",
    "EnvironmentStats",
    "GroupPlan",
    "Hub",
    "HubStats",
    "Lease",
    "Ready",
    "Selection",
    "open_hub",
]
