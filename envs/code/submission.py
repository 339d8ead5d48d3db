"""Parsing of a policy's code: the last complete fenced block, of bounded size."""

import ast

from loomrl.envs.code.subset import MAX_SOURCE, parse
from loomrl.gym.answer import parse_fences

CODE_FORMAT = "Reply with the whole function in a ```python block."
NO_CODE = f"No complete ```python block of at most {MAX_SOURCE} letters was found. {CODE_FORMAT}"
_LANGUAGES = ("", "py", "python", "python3")


def parse_code(text: str) -> str | None:
    """The code of the last complete Python block, or None. Linear in the text.

    A last block that is never closed withdraws earlier ones.
    """
    code: str | None = None
    for block in parse_fences(text):
        if block.language in _LANGUAGES:
            code = None if block.content is None else block.content + "\n"
    return code if code is not None and len(code) <= MAX_SOURCE and code.strip() else None


def with_function(code: str, name: str) -> str:
    """The code with the method `name` of its only class as a function too, if it defines no such function."""
    tree = parse(code)
    if tree is None or any(name in _bound(statement) for statement in tree.body):
        return code
    owners = [each.name for each in tree.body if isinstance(each, ast.ClassDef) and name in _methods(each)]
    return f"{code.rstrip()}\n\n\n{name} = {owners[0]}().{name}\n" if len(owners) == 1 else code


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement of the module binds, roughly: more never hurts."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _methods(owner: ast.ClassDef) -> set[str]:
    return {each.name for each in owner.body if isinstance(each, ast.FunctionDef)}
