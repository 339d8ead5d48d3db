"""The composition root: the `loomrl` command, experiment files and benchmarks."""

import loomrl  # noqa: F401  # before torch, whose threads must not spin
