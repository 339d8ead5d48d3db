"""mypy sees classes of RLlib, Tune and Serve as tests/stubs has them, and these name nothing that Ray lacks."""

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.algorithms.test_rllib_names import names_of_others

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
STUBS = Path(__file__).parent / "stubs"
FILES = {file: ast.parse(file.read_text()) for file in sorted(STUBS.rglob("*.pyi"))}
CLASSES = [(file, node) for file, tree in FILES.items() for node in tree.body if isinstance(node, ast.ClassDef)]
FUNCTIONS = [
    (file, node)
    for file, tree in FILES.items()
    for node in tree.body
    if isinstance(node, ast.FunctionDef) and node.name != "__getattr__"
]


def module(file: Path) -> str:
    return ".".join(file.relative_to(STUBS).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize(("file", "stub"), CLASSES, ids=[node.name for _, node in CLASSES])
def test_a_stub_names_nothing_that_the_class_lacks(file: Path, stub: ast.ClassDef) -> None:
    real = getattr(importlib.import_module(module(file)), stub.name)
    named = {ast.unparse(each.target) for each in stub.body if isinstance(each, ast.AnnAssign)}
    methods = [each for each in stub.body if isinstance(each, ast.FunctionDef)]
    assert named | {each.name for each in methods} <= names_of_others(real)
    bases = {ast.unparse(base).split(".")[-1] for base in stub.bases}
    assert bases <= {base.__name__ for base in real.__mro__}
    for method in methods:
        assert not foreign_arguments(method, getattr(real, method.name)), method.name


@pytest.mark.parametrize(("file", "stub"), FUNCTIONS, ids=[node.name for _, node in FUNCTIONS])
def test_a_stub_names_no_argument_that_the_function_lacks(file: Path, stub: ast.FunctionDef) -> None:
    assert not foreign_arguments(stub, getattr(importlib.import_module(module(file)), stub.name))


def foreign_arguments(stub: ast.FunctionDef, real: Any) -> set[str]:
    """Keywords that the stub has and the real one does not take."""
    if not callable(real):  # a property
        return set()
    taken = inspect.signature(real).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken):
        return set()
    return {each.arg for each in stub.args.kwonlyargs} - {each.name for each in taken}
