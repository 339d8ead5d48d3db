"""Algorithms of control policies."""

import sys

import loomrl  # noqa: F401  # before torch, whose threads must not spin

# RLlib looks for a function that `smart_open` no longer has: in vain, and the import brings two clouds' clients.
_is_loaded = "smart_open" in sys.modules
sys.modules.setdefault("smart_open", None)  # type: ignore[arg-type]
import ray.rllib  # noqa: E402, F401

if not _is_loaded:
    del sys.modules["smart_open"]
