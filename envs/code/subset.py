"""The subset of Python in which line counts are reliable: code in it cannot reach the counter that runs beside it.

Names, attributes and imports must be on lists. So no frame, module or trace function is reachable, nor any way to
compile text. Before counting, code is rewritten with one statement per line. Work inside builtins is not counted; large
inputs and the sandbox's deadline bound it.
"""

import ast
import builtins
import warnings
from collections.abc import Iterator

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
    own = frozenset(name for node in ast.walk(tree) for name in _given_names(node))
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


def _given_names(node: ast.AST) -> Iterator[str]:
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
