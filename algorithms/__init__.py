"""Learning algorithms."""

import loomrl  # noqa: F401  # before torch, whose threads must not spin
