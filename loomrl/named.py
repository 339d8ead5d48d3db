"""Code by name: `pkg.module:attribute`, as entry points write it."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from loomrl.errors import ConfigError, did_you_mean


def named(entry_point: str, *, what: str) -> Any:
    """The object behind an entry point; `what` is the setting that named it, for the error if it is missing."""
    module, _, path = entry_point.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except AttributeError as error:
        raise ConfigError(f"{what}={entry_point!r}: {error}.{_names_in(module, path)}") from error
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{what}={entry_point!r}: {error}. Write pkg.module:name; the package's folder must be importable: "
            "the current one, or one on PYTHONPATH."
        ) from error
    return found


def _names_in(module: str, path: str) -> str:
    """A sentence with what a module defines, or how an entry point is written."""
    if not path:
        return " Write pkg.module:name."
    found = sys.modules[module]
    own = [name for name, value in vars(found).items() if getattr(value, "__module__", None) == found.__name__]
    return f" It defines {', '.join(own) or 'nothing'}.{did_you_mean(path, own)}"


def lazily(package: str, doors: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose public names are loaded when first used: name → module."""

    def fetch(name: str) -> Any:
        if name not in doors:
            known = ", ".join(sorted(doors))
            raise AttributeError(f"module {package!r} has no attribute {name!r}. Known: {known}.")
        module, _, other = doors[name].partition(":")
        return getattr(importlib.import_module(module), other or name)

    return fetch, lambda: sorted(doors)
