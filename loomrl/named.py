"""Code by name: `pkg.module:attribute`, as entry points write it."""

import importlib
from typing import Any

from loomrl.errors import ConfigError


def named(entry_point: str, *, what: str) -> Any:
    """The object behind an entry point; `what` is the setting that named it, for the error if it is not there."""
    module, _, path = entry_point.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{what}={entry_point!r}: {error}. Write pkg.module:name; the package's folder must be importable: "
            "the current one, or one on PYTHONPATH."
        ) from error
    return found
