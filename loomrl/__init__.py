"""LoomRL trains agents with reinforcement learning on Ray, ships them behind a gate, and keeps learning."""

__version__ = "0.1.0"
