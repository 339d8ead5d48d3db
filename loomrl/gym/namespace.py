"""Environments under their Gymnasium names: `loomrl/<name>-v<major>`."""

import ast
import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
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
            vector_entry_point="loomrl.gym.vector:TextVectorEnvironment",
            kwargs={"environment": name},
        )
    return id


def expose_announced() -> None:
    """Expose the environments that installed packages announce. Those without a readable version are left to
    `expose`.
    """
    for entry in importlib.metadata.entry_points(group=GROUP):
        version = declared_version(entry.value)
        if version is not None:
            expose(entry.name, version)


def declared_version(entry_point: str) -> str | None:
    """The `version = "…"` of a class, read from its source, also through `from … import …`.

    Importing it would take long, and would fail for a module whose own import led here.
    """
    module, _, name = entry_point.partition(":")
    path = _source(module)
    body = ast.parse(path.read_text(encoding="utf-8")).body if path else []
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return next(_versions(node), None)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return declared_version(f"{node.module}:{alias.name}")
    return None


def _versions(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        named = any(isinstance(target, ast.Name) and target.id == "version" for target in targets)
        if named and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def _source(module: str) -> Path | None:
    """The file of a module, found without importing its packages."""
    parts = module.split(".")
    folders: Sequence[str] | None = None
    spec = None
    for depth in range(len(parts)):
        found = (finder.find_spec(".".join(parts[: depth + 1]), folders) for finder in sys.meta_path)
        spec = next(filter(None, found), None)
        folders = spec.submodule_search_locations if spec else None
        if folders is None:
            break
    if spec is None or spec.name != module or not spec.has_location or spec.origin is None:
        return None
    return Path(spec.origin)
