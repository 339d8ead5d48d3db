"""Measurements behind the figures in docs/benchmarks.md."""
