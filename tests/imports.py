"""Who imports whom, read off the files; and `pytest --reached-since REF`: only the tests that a change can reach."""

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOP = ("loomrl", "envs", "algorithms", "cluster", "experiments")
SOURCES = [path for top in TOP for path in sorted((ROOT / top).rglob("*.py"))]
ALWAYS = ("tests/test_architecture.py", "tests/test_docs.py")
"""They read the repository as a whole."""
NAME = re.compile(r"loomrl(\.\w+)+(:\w+)?")


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Absolute names of all that a file imports, inside functions too."""
    return tuple(_imports(ast.parse(path.read_text()), path))


def _imports(tree: ast.Module, path: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module(path: Path) -> tuple[str, ...]:
    """The name that a file is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts if parts[0] in ("loomrl", "tests") else ("loomrl", *parts)


def nearest(target: str, names: Mapping[str, Path]) -> str | None:
    """The module of ours that an imported name is, or is in."""
    return target if target in names else parent if (parent := target.rpartition(".")[0]) in names else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--reached-since REF`."""
    parser.addoption("--reached-since", metavar="REF", help="run only tests that a change since this commit can reach")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the files that import nothing that has changed."""
    since = config.getoption("--reached-since")
    if since is None:
        return
    reached = _reached({item.path for item in items}, _changed(since))
    left_out = [item for item in items if item.path not in reached]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.path in reached]


def _changed(since: str) -> set[Path]:
    """Files that differ from a commit, and new ones that git does not ignore."""
    tracked = ["git", "diff", "--name-only", since]
    untracked = ["git", "ls-files", "--others", "--exclude-standard"]
    names = [
        name
        for command in (tracked, untracked)
        for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    ]
    return {ROOT / name for name in names}


def _reached(tests: Set[Path], changed: Set[Path]) -> set[Path]:
    """The test files from which a changed file can be reached."""
    files = {path for path in changed if path.suffix == ".py"}
    # Data beside modules (SQL, pages, settings) is read by some module of its folder or of one above it.
    folders = {path.parent for path in changed - files if path.suffix != ".md"}
    graph = _graph()
    # Python runs a package's own file before every module in it.
    packages = {path.parent for path in files if path.name == "__init__.py"}
    touched = {
        path
        for path in graph
        if path in files
        or any(folder.is_relative_to(path.parent) for folder in folders)
        or any(path.is_relative_to(package) for package in packages)
    }
    readers: dict[Path, set[Path]] = {}
    for path, targets in graph.items():
        for target in targets:
            readers.setdefault(target, set()).add(path)
    waiting = list(touched)
    while waiting:
        fresh = readers.get(waiting.pop(), set()) - touched
        touched |= fresh
        waiting += fresh
    always = {ROOT / name for name in ALWAYS}
    return {path for path in tests if path in touched or path in always}


def _graph() -> dict[Path, set[Path]]:
    """Every file of ours with the files that it imports or names in a string, such as `"loomrl.envs.math:Math"`."""
    here = sorted((ROOT / "tests").rglob("*.py"))
    names = {".".join(module(path)).removesuffix(".__init__"): path for path in [*SOURCES, *here]}
    graph = {}
    for path in names.values():
        tree = ast.parse(path.read_text())
        found = [*_imports(tree, path), *_named(tree)]
        graph[path] = {names[near] for name in found if (near := nearest(name, names))}
        if path.is_relative_to(ROOT / "tests"):
            graph[path] |= {folder / "conftest.py" for folder in path.parents if (folder / "conftest.py") in here}
            graph[path].discard(path)
    return graph


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.match(r"loomrl(\.\w+)+(:\w+)?$", node.value)
        ):
            yield node.value.replace(":", ".")
