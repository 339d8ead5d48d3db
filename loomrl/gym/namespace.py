"""Environments under their Gymnasium names: `loomrl/<name>-v<major>`."""

import ast
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from gymnasium.envs.registration import register, registry

GROUP = "loomrl.environments"
"""Entry points by which packages announce their environments."""


def expose(name: str, version: str) -> str:
    """Let `gymnasium.make` and `make_vec` open this environment, and return its id. Imports nothing of it."""
    id = f"loomrl/{name}-v{version.partition('.')[0]}"
    if id not in registry:
        register(
            id,
            entry_point="loomrl.gym.facade:TextEnvironment",
            vector_entry_point="loomrl.gym.facade:TextVectorEnvironment",
            kwargs={"environment": name},
        )
    return id


def expose_announced() -> None:
    """Expose the environments that installed packages announce. Those without a readable version are left to
    `expose`.
    """
    for entry in importlib.metadata.entry_points(group=GROUP):
        version = read_version(entry.value)
        if version is not None:
            expose(entry.name, version)


def read_version(entry_point: str) -> str | None:
    """The `version = "…"` of a class, read from its source, also through `from … import …`.

    Importing it would take long, and would fail for a module whose own import led here.
    """
    module, _, name = entry_point.partition(":")
    path = _source(module)
    # Parsed, not imported: a module whose own import led here would fail.
    body = ast.parse(path.read_text(encoding="utf-8")).body if path else []
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return next(_versions(node), None)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return read_version(f"{node.module}:{alias.name}")
    return None


def _versions(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        named = any(isinstance(target, ast.Name) and target.id == "version" for target in targets)
        if named and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def _source(module: str) -> Path | None:
    """The file of a module; of its packages, none is imported."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin else None
    places = [Path(folder) for folder in spec.submodule_search_locations or ()]
    for depth, name in enumerate(rest, start=1):
        inside = [place / name for place in places]
        is_there = any(path.is_dir() or path.with_suffix(".py").is_file() for path in inside)
        places = inside if is_there else _find_mapped(".".join((top, *rest[:depth])), places)
    files = (path for place in places for path in (place.with_suffix(".py"), place / "__init__.py"))
    return next((path for path in files if path.is_file()), None)


def _find_mapped(package: str, places: list[Path]) -> list[Path]:
    """The folders of a package that an editable installation maps to another place than its parent's."""
    for finder in sys.meta_path:
        spec = finder.find_spec(package, [str(place) for place in places])
        if spec is not None and spec.submodule_search_locations:
            return [Path(folder) for folder in spec.submodule_search_locations]
    return []
