"""mypy sees RLlib's base classes as tests/stubs has them, and these name nothing that the installed Ray lacks."""

import ast
import importlib
from pathlib import Path

import pytest

from tests.algorithms.test_rllib_names import names_of_others

STUBS = Path(__file__).parent.parent / "stubs"
FILES = {file: ast.parse(file.read_text()) for file in sorted(STUBS.rglob("*.pyi"))}
CLASSES = [(file, node) for file, tree in FILES.items() for node in tree.body if isinstance(node, ast.ClassDef)]


def module(file: Path) -> str:
    return ".".join(file.relative_to(STUBS).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize(("file", "stub"), CLASSES, ids=[node.name for _, node in CLASSES])
def test_a_stub_names_nothing_that_the_class_lacks(file: Path, stub: ast.ClassDef) -> None:
    real = getattr(importlib.import_module(module(file)), stub.name)
    named = {ast.unparse(each.target) for each in stub.body if isinstance(each, ast.AnnAssign)}
    named |= {each.name for each in stub.body if isinstance(each, ast.FunctionDef)}
    assert named <= names_of_others(real)
    bases = {ast.unparse(base).split(".")[-1] for base in stub.bases}
    assert bases <= {base.__name__ for base in real.__mro__}
