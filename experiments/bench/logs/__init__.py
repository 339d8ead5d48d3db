"""Benchmarks of learning from logs."""
