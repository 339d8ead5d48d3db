"""Submissions: the code block, the part of Python that it may use, and its readability."""

import ast
import builtins
import warnings
from collections.abc import Iterator

from loomrl.gym.answer import parse_fences

MAX_SOURCE = 16_000
"""Letters of a submission."""
MAX_NODES = 4_000
_TOO_DEEP = 60
"""Brackets inside brackets."""

IMPORTS = {
    "__future__": "annotations",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "collections": "Counter OrderedDict defaultdict deque",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
    "itertools": "accumulate chain combinations combinations_with_replacement compress count cycle dropwhile "
    "filterfalse groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest",
    "math": "ceil comb cos dist e exp factorial fabs floor gcd hypot inf isclose isqrt lcm log log10 log2 perm pi pow "
    "prod sin sqrt tan trunc",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits",
    "typing": "Any Callable Dict Iterable Iterator List Mapping Optional Sequence Set Tuple Union",
}
"""Module → names that may be imported from it."""
_KNOWN = {module: frozenset(names.split()) for module, names in IMPORTS.items()}
_BUILTIN_NAMES = (
    "__name__ False None True abs all any bin bool chr dict divmod enumerate filter float frozenset hex int isinstance "
    "iter len list map max min next oct ord pow print range repr reversed round set slice sorted str sum tuple "
    "zip ArithmeticError AssertionError Exception IndexError KeyError LookupError OverflowError RecursionError "
    "StopIteration TypeError ValueError ZeroDivisionError"
)
_BUILTINS = frozenset(_BUILTIN_NAMES.split())
_ATTRIBUTE_NAMES = (
    "add append appendleft bit_count bit_length capitalize clear copy count difference difference_update discard "
    "elements endswith extend extendleft find from_iterable fromkeys get index insert intersection intersection_update "
    "isalnum isalpha isdecimal isdigit isdisjoint islower isnumeric isspace issubset issuperset istitle isupper "
    "items join keys ljust lower lstrip maxlen most_common move_to_end partition pop popitem popleft remove "
    "removeprefix removesuffix replace reverse rfind rindex rjust rotate rpartition rsplit rstrip setdefault "
    "sort split splitlines startswith strip subtract swapcase symmetric_difference title total translate union "
    "update upper values zfill"
)
_ATTRIBUTES = frozenset(_ATTRIBUTE_NAMES.split())
_REFUSED = (
    ast.AsyncFor,
    ast.AsyncFunctionDef,
    ast.AsyncWith,
    ast.Await,
    ast.ClassDef,
    ast.MatchClass,
    ast.With,
)


def parse(source: str) -> ast.Module | None:
    """The syntax tree, or None if the text is invalid, too large or too deeply nested."""
    if len(source) > MAX_SOURCE or _depth(source) > _TOO_DEEP:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        return tree if sum(1 for _ in ast.walk(tree)) <= MAX_NODES else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def countable(source: str) -> str | None:
    """The source with one statement per line if it is in the subset, otherwise None."""
    tree = parse(source)
    if tree is None or next(_faults(tree), None):
        return None
    try:
        return ast.unparse(tree)
    except (RecursionError, ValueError):  # a number may be too long to be written in decimal
        return None


def refusal(source: str) -> str:
    """The first thing outside the subset, for a message."""
    tree = parse(source)
    return "it cannot be read" if tree is None else next(_faults(tree), "it cannot be read")


def _faults(tree: ast.Module) -> Iterator[str]:
    modules = _modules(tree)
    own = frozenset(name for node in ast.walk(tree) for name in _defined_names(node))
    for node in ast.walk(tree):
        if isinstance(node, _REFUSED):
            yield f"{type(node).__name__} is not allowed"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from _import_faults(node)
        elif isinstance(node, ast.Name) and not _may_name(node.id, own):
            yield f"the name {node.id[:40]!r} is not allowed"
        elif isinstance(node, ast.Attribute) and not _may_reach(node, modules):
            yield f"the attribute {node.attr[:40]!r} is not allowed"
    yield from (f"the name {name[:40]!r} is not allowed" for name in sorted(own) if not _may_name(name, own))


def _may_name(name: str, own: frozenset[str]) -> bool:
    """True for builtins on the list, and for names that only the code itself can define."""
    if name in _BUILTINS:
        return True
    return name in own and not name.startswith("__") and not hasattr(builtins, name)


def _modules(tree: ast.Module) -> dict[str, str]:
    """Local name → module, for `import math as m`."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }


def _import_faults(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        strangers = [alias.name for alias in node.names if alias.name not in _KNOWN]
        yield from (f"the module {name[:40]!r} is not allowed" for name in strangers)
        return
    known = _KNOWN.get(node.module or "", frozenset()) if node.level == 0 else frozenset()
    for alias in node.names:
        if alias.name not in known:
            yield f"{alias.name[:40]!r} may not be imported from {(node.module or '')[:40]!r}"


def _may_reach(node: ast.Attribute, modules: dict[str, str]) -> bool:
    if isinstance(node.value, ast.Name) and node.value.id in modules:
        known = _KNOWN.get(modules[node.value.id], frozenset())
        return node.attr in known or node.attr in _ATTRIBUTES
    return node.attr in _ATTRIBUTES


def _defined_names(node: ast.AST) -> Iterator[str]:
    """The names that this node defines."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield node.asname or node.name
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _depth(source: str) -> int:
    """The maximum possible nesting of brackets."""
    deepest = depth = 0
    for letter in source:
        if letter in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in ")]}":
            depth -= 1
    return deepest


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
    yield from _idle_imports(tree)


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
    yield from _crowding(node)


def _crowding(node: ast.AST) -> Iterator[str]:
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


def _idle_imports(tree: ast.Module) -> Iterator[str]:
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
