"""Small bugs, inserted into source text one at a time: only the changed spot is rewritten, on one line."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice


@dataclass(frozen=True, slots=True)
class Mutant:
    """A source with one bug: its line, counted from 1, and its kind."""

    source: str
    line: int
    kind: str


@lru_cache(maxsize=512)
def mutants(source: str) -> tuple[Mutant, ...]:
    """Every mutant of this source, in the order of the text, including equivalent ones."""
    lines = source.split("\n")
    found: dict[str, Mutant] = {}
    for node in _list_spots(ast.parse(source)):
        for kind, before, after in _changes(node):
            if before.lineno != before.end_lineno:
                continue
            line = lines[before.lineno - 1]
            changed = line[: before.col_offset] + after + line[before.end_col_offset :]
            text = "\n".join([*lines[: before.lineno - 1], changed, *lines[before.lineno :]])
            if text != source and text not in found:
                found[text] = Mutant(text, before.lineno, kind)
    return tuple(found.values())


@lru_cache(maxsize=512)
def remains(source: str) -> tuple[str, ...]:
    """The source with one part taken away: a statement, a filter, a condition or one side of it."""
    found: list[str] = []
    for place, node in enumerate(ast.walk(ast.parse(source))):
        for way in range(sum(1 for _ in _removals(node))):
            tree = ast.parse(source)
            same = next(islice(ast.walk(tree), place, None))
            next(islice(_removals(same), way, None))()
            found.append(ast.unparse(tree))
    return tuple(dict.fromkeys(found))


def _removals(node: ast.AST) -> Iterator[Callable[[], None]]:
    """Ways to remove something from a node, in place."""
    if isinstance(node, ast.If | ast.IfExp):
        yield partial(setattr, node, "test", ast.Constant(True))
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield partial(setattr, node, "test", ast.Constant(False))
    if isinstance(node, ast.comprehension) and node.ifs:
        yield partial(setattr, node, "ifs", [])
    if isinstance(node, ast.BoolOp):
        for place in range(len(node.values)):
            yield partial(node.values.__delitem__, place)
    if isinstance(node, ast.FunctionDef | ast.For | ast.While | ast.If):
        for place, statement in enumerate(node.body):
            if not isinstance(statement, ast.ImportFrom | ast.Pass):
                yield partial(node.body.__setitem__, place, ast.Pass())


def is_omission(mutant: Mutant) -> bool:
    """True if a statement was removed, which a reader sees at once."""
    return mutant.source.split("\n")[mutant.line - 1].strip() == "pass"


Spot = ast.expr | ast.stmt
Change = tuple[str, Spot, str]
"""Kind of bug, the node to replace, and the text to put in its place."""


def _list_spots(tree: ast.Module) -> list[Spot]:
    """All nodes but docstrings and annotations, by their place in the text."""
    skipped = {id(part) for node in ast.walk(tree) for part in _descend(node)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt) and id(node) not in skipped]
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))


def _descend(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield from (node, node.value)
    if isinstance(node, ast.FunctionDef):
        annotations = [argument.annotation for argument in node.args.args] + [node.returns]
        yield from (part for annotation in annotations if annotation for part in ast.walk(annotation))
    if isinstance(node, ast.JoinedStr):
        yield from (part for part in ast.walk(node) if part is not node)


def _changes(node: ast.AST) -> Iterator[Change]:
    for kind, make in _OPERATORS:
        for before, after in make(node):
            yield kind, before, after


Edit = tuple[Spot, str]


def _comparison(node: ast.AST) -> Iterator[Edit]:
    """`<` becomes `<=` or `>`, `==` becomes `!=`, `in` becomes `not in`."""
    if isinstance(node, ast.Compare):
        for place, sign in enumerate(node.ops):
            for other in _COMPARED.get(type(sign), ()):
                signs = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                yield node, _inner(ast.Compare(node.left, signs, node.comparators))


def _arithmetic(node: ast.AST) -> Iterator[Edit]:
    """`+` becomes `-`, `*` becomes `+`, `//` becomes `%`; operands of what is not symmetric change places."""
    if isinstance(node, ast.BinOp):
        for other in _COMPUTED.get(type(node.op), ()):
            yield node, _inner(ast.BinOp(node.left, other(), node.right))
        if isinstance(node.op, ast.Sub | ast.FloorDiv | ast.Mod):
            yield node, _inner(ast.BinOp(node.right, node.op, node.left))
    if isinstance(node, ast.AugAssign):
        for other in _COMPUTED.get(type(node.op), ()):
            yield node, ast.unparse(ast.AugAssign(node.target, other(), node.value))


def _constant(node: ast.AST) -> Iterator[Edit]:
    """Numbers one too large or too small, the other truth value, text without its last letter."""
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node.value, int):
        yield node, str(node.value + 1)
        yield node, str(node.value - 1)
    elif isinstance(node.value, str) and node.value:
        yield node, repr(node.value[:-1])


def _condition(node: ast.AST) -> Iterator[Edit]:
    """A condition turned round, `and` for `or`, a lost `not`."""
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.IfExp):
        tests = [node.test]
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp):
        tests = [test for part in node.generators for test in part.ifs]
    for test in tests:
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield test, f"not {_inner(test)}"
    if isinstance(node, ast.BoolOp):
        yield node, _inner(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
    if isinstance(node, ast.UnaryOp):
        yield node, _inner(node.operand)


def _statement(node: ast.AST) -> Iterator[Edit]:
    """A statement that was forgotten, `continue` for `break`."""
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield node, "pass"
    if isinstance(node, ast.Assign) and _rebinds(node):
        yield node, "pass"
    if isinstance(node, ast.Break):
        yield node, "continue"
    if isinstance(node, ast.Continue):
        yield node, "pass"


def _rebinds(node: ast.Assign) -> bool:
    """True if a name gets a value computed from its old one, so that it is defined without this statement."""
    names = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
    return any(isinstance(target, ast.Name) and target.id in names for target in node.targets)


def _outcome(node: ast.AST) -> Iterator[Edit]:
    """The other branch's value, a truth value turned round."""
    if isinstance(node, ast.IfExp):
        yield node, _inner(ast.IfExp(node.test, node.orelse, node.body))
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Compare | ast.BoolOp):
        yield node.value, f"not {_inner(node.value)}"


def _bound(node: ast.AST) -> Iterator[Edit]:
    """A range or a slice that ends one too late or too early."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        bounds = [node.args[0] if len(node.args) == 1 else node.args[1]]
    elif isinstance(node, ast.Slice):
        bounds = [bound for bound in (node.lower, node.upper) if bound]
    else:
        return
    for bound in bounds:
        if not isinstance(bound, ast.Constant | ast.UnaryOp):
            yield bound, f"{ast.unparse(bound)} + 1"
            yield bound, f"{ast.unparse(bound)} - 1"


def _call(node: ast.AST) -> Iterator[Edit]:
    """Another function of the same kind: `min` for `max`, `all` for `any`."""
    if isinstance(node, ast.Call):
        name = node.func
        if isinstance(name, ast.Name) and name.id in _CALLED:
            yield name, _CALLED[name.id]
        if isinstance(name, ast.Attribute) and name.attr in _CALLED:
            yield name, f"{ast.unparse(name.value)}.{_CALLED[name.attr]}"


_OPERATORS: tuple[tuple[str, Callable[[ast.AST], Iterator[Edit]]], ...] = (
    ("comparison", _comparison),
    ("arithmetic", _arithmetic),
    ("constant", _constant),
    ("condition", _condition),
    ("statement", _statement),
    ("outcome", _outcome),
    ("bound", _bound),
    ("call", _call),
)
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.FloorDiv: (ast.Mod,),
    ast.Mod: (ast.FloorDiv,),
    ast.BitXor: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
"""No operator makes numbers grow faster than the one that it replaces."""
_CALLED = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "upper": "lower",
    "lower": "upper",
    "startswith": "endswith",
    "endswith": "startswith",
    "lstrip": "rstrip",
    "rstrip": "lstrip",
    "append": "extend",
    "popleft": "pop",
    "bisect_left": "bisect_right",
    "bisect_right": "bisect_left",
    "keys": "values",
    "isdigit": "isalpha",
    "isalpha": "isdigit",
    "isupper": "islower",
    "islower": "isupper",
}


def _inner(node: ast.expr) -> str:
    """The text of an expression that may become part of another."""
    return f"({ast.unparse(node)})" if isinstance(node, ast.IfExp) else ast.unparse(node)
