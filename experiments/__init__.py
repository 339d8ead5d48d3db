"""The composition root: the `loomrl` command, experiment files and benchmarks."""
