"""Grey box: what the source of an environment and of its reward function says. Candidates only, never alarms."""

import ast
import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from loomrl.gym.base import BaseEnvironment

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from re import _parser as sre  # type: ignore[attr-defined]

LONGEST_LITERAL = 80
OWN_WEIGHT = 100
"""Literals of the class itself come before those of its module's other classes."""
OWN = ("loomrl.gym", "abc", "builtins")


@dataclass(frozen=True, slots=True)
class Source:
    """Literals in the order of their promise, and names of variables and attributes."""

    literals: tuple[str, ...]
    names: tuple[str, ...]


def read_source(environment: BaseEnvironment) -> Source:
    """The literals and names of the modules that grade."""
    literals: dict[str, int] = {}
    names: dict[str, None] = {}
    own = {kind.__name__ for kind in type(environment).__mro__} | set(_functions(environment))
    for module in _modules(environment):
        try:
            tree = ast.parse(inspect.getsource(module))
        except (OSError, TypeError, SyntaxError):
            continue
        docs = _docstrings(tree)
        for top in tree.body:
            is_other = isinstance(top, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and top.name not in own
            _read(top, 0 if is_other else OWN_WEIGHT, docs, literals, names)
    ordered = sorted((each for each in literals if 0 < len(each) <= LONGEST_LITERAL), key=lambda each: -literals[each])
    matched = [sampled for each in ordered if (sampled := sample_pattern(each)).strip() and sampled != each]
    return Source(tuple(dict.fromkeys([*ordered[:20], *matched, *ordered[20:]])), tuple(names))


def _read(top: ast.AST, weight: int, docs: set[int], literals: dict[str, int], names: dict[str, None]) -> None:
    for node in ast.walk(top):
        if isinstance(node, ast.Constant) and id(node) not in docs:
            _add_literal(node.value, weight, literals)
        elif isinstance(node, ast.Compare | ast.Call):
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    literals[each.value] = literals.get(each.value, weight) + (
                        5 if isinstance(node, ast.Compare) else 1
                    )
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            names.update({f"self.{node.attr}": None} if weight else {})
        elif isinstance(node, ast.arg | ast.Name):
            names.update({node.arg if isinstance(node, ast.arg) else node.id: None} if weight else {})


def _functions(environment: BaseEnvironment) -> Iterator[str]:
    """Names of functions that the settings name."""
    for text in _texts(environment.settings.model_dump(mode="json")):
        yield text.rpartition(":")[2].rpartition(".")[2]


def _add_literal(value: Any, weight: int, literals: dict[str, int]) -> None:
    if isinstance(value, str) and value.strip():
        literals.setdefault(value, weight)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        literals.setdefault(str(value), weight)


def _docstrings(tree: ast.AST) -> set[int]:
    found = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            found.add(id(body[0].value))
        if isinstance(node, ast.Module | ast.ClassDef):
            found |= {id(each.value) for each in node.body if isinstance(each, ast.Expr)}
    return found


def _modules(environment: BaseEnvironment) -> Iterator[ModuleType]:
    """The modules of the class and of the functions that its settings name, and those beside them that they import."""
    seen: dict[str, ModuleType] = {}
    for kind in type(environment).__mro__:
        if not kind.__module__.startswith(OWN):
            seen[kind.__module__] = sys.modules[kind.__module__]
    for text in _texts(environment.settings.model_dump(mode="json")):
        name = text.partition(":")[0]
        if ":" in text or name in sys.modules:
            try:
                seen[name] = importlib.import_module(name)
            except Exception:  # noqa: BLE001 - a text with a colon need not name a module
                continue
    for module in list(seen.values()):
        folder = module.__name__.rpartition(".")[0]
        for each in vars(module).values():
            beside = sys.modules.get(getattr(each, "__module__", None) or "")
            if beside is not None and folder and beside.__name__.startswith(folder):
                seen.setdefault(beside.__name__, beside)
    yield from seen.values()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value[:50]:
            yield from _texts(each)


def sample_pattern(pattern: str) -> str:
    """The shortest text that a regular expression matches; empty for a text that is none."""
    if not any(mark in pattern for mark in "\\[(*+?^$|") or len(pattern) > 200:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _shortest(sre.parse(pattern))[:LONGEST_LITERAL]
    except Exception:  # noqa: BLE001 - most literals are no patterns
        return ""


def _shortest(parsed: Any) -> str:
    out = ""
    for kind, value in parsed:
        match str(kind):
            case "LITERAL":
                out += chr(value)
            case "ANY" | "NOT_LITERAL":
                out += "1"
            case "IN":
                out += _member(value)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, _, inner = value
                out += _shortest(inner) * max(least, 1)
            case "SUBPATTERN":
                out += _shortest(value[-1])
            case "BRANCH":
                out += _shortest(value[1][0])
    return out


def _member(members: Any) -> str:
    for kind, value in members:
        match str(kind):
            case "LITERAL":
                return chr(value)
            case "RANGE":
                return chr(value[0])
            case "CATEGORY":
                return {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}.get(str(value), "a")
            case "NEGATE":
                return "1"
    return ""
