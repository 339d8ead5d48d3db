"""Readability of a submission: a small, fixed set of findings, each of which costs a quarter of the mark."""

import ast
from collections.abc import Iterator

from loomrl.envs.code.subset import parse

LONGEST_LINE = 100
LONGEST_FUNCTION = 40
DEEPEST = 4
_MARK_LOST = 0.25


def readability(source: str) -> float:
    """1 for a source without findings, 0 for four and more, or for one that cannot be read."""
    tree = parse(source)
    if tree is None:
        return 0.0
    found = sum(1 for _ in findings(source, tree))
    return max(0.0, 1.0 - _MARK_LOST * found)


def findings(source: str, tree: ast.Module) -> Iterator[str]:
    """Readability problems, in words."""
    yield from _text_findings(source)
    for node in ast.walk(tree):
        yield from _node_findings(node)
        if isinstance(node, ast.FunctionDef):
            yield from _function_findings(node)
    yield from _unused_imports(tree)


def _text_findings(source: str) -> Iterator[str]:
    for number, line in enumerate(source.split("\n"), start=1):
        if len(line) > LONGEST_LINE:
            yield f"line {number} is longer than {LONGEST_LINE} letters"
        if "\t" in line:
            yield f"line {number} holds a tab"


def _node_findings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ExceptHandler) and node.type is None:
        yield "a bare except"
    if isinstance(node, ast.Global):
        yield "a global statement"
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        yield "an import of everything"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        yield "a lambda with a name"
    if isinstance(node, ast.Compare):
        sides = zip(node.ops, node.comparators, strict=True)
        if any(isinstance(op, ast.Eq | ast.NotEq) and _is_constant(side) for op, side in sides):
            yield "a comparison with None, True or False by =="
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in ("l", "O", "I"):
        yield f"the name {node.id}"
    yield from _crowded(node)


def _crowded(node: ast.AST) -> Iterator[str]:
    """Two statements on a line."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list) and isinstance(node, ast.stmt | ast.Module):
            lines = [statement.lineno for statement in block]
            if len(set(lines)) < len(lines) or (isinstance(node, ast.stmt) and node.lineno in lines):
                yield "two statements on one line"


def _function_findings(node: ast.FunctionDef) -> Iterator[str]:
    if any(isinstance(default, ast.List | ast.Dict | ast.Set) for default in node.args.defaults):
        yield "a default that can be changed"
    if node.end_lineno and node.end_lineno - node.lineno >= LONGEST_FUNCTION:
        yield f"a function of more than {LONGEST_FUNCTION} lines"
    if _nesting(node) > DEEPEST:
        yield f"blocks nested more than {DEEPEST} deep"
    stored = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    loops = {
        part.id
        for loop in ast.walk(node)
        if isinstance(loop, ast.For | ast.comprehension)
        for part in ast.walk(loop.target)
        if isinstance(part, ast.Name)
    }
    read = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    yield from (f"{name} is never read" for name in sorted(stored - loops - read) if not name.startswith("_"))


def _unused_imports(tree: ast.Module) -> Iterator[str]:
    read = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            yield from (f"{name} is imported and not used" for name in names if name not in read and name != "*")


def _nesting(function: ast.FunctionDef) -> int:
    """The depth of the deepest block, without recursion."""
    deepest = 0
    waiting: list[tuple[ast.AST, int]] = [(function, 0)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        for child in ast.iter_child_nodes(node):
            block = isinstance(child, ast.For | ast.While | ast.If | ast.With | ast.Try)
            chained = isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse
            waiting.append((child, depth + (block and not chained)))
    return deepest


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))
