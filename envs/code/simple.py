"""Simple wrong programs: one expression of the parameters, generated from their types.

`return 0`, `return words and words[0]`, `return sorted(items)[-1]`, `return len(text) + 1`: a policy would find any of
these that a task's tests let pass.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from loomrl.envs.code.problem import CRASH, Arguments, CodeProblem
from loomrl.envs.code.value import Value

Term = tuple[str, str]
"""A type, and an expression of it."""

MOST = 400
"""Programs per signature; most of their time is compilation, once per process."""
NUMBERS = 4
"""Numbers of a problem's own text that its simple programs know, as K0, K1 and so on."""

_CONSTANTS = {
    "int": "0; 1; -1; 2; K0; K1; K2; K3",
    "float": "0.0; 1.0; float(K0)",
    "bool": "False; True",
    "str": "''; ' '; 'a'",
}
_OF_ONE = {
    "int": {
        "int": "abs(x); -x; x + 1; x - 1; 2 * x; x * x; x // 2; x % 2; x % 10; x.bit_length(); len(str(x)); "
        "bin(x).count('1'); sum(map(int, str(abs(x)))); int(str(abs(x))[::-1])",
        "bool": "x > 0; x % 2 == 0; x % 2 == 1; x == K0; x > K0; x < K0; x % K0 == 0",
        "str": "str(x); bin(x)[2:]; hex(x)[2:]; str(x)[::-1]",
        "list[int]": "list(range(min(x, 99))); list(range(1, min(x, 99) + 1)); [int(u) for u in str(abs(x))]; [x]",
    },
    "bool": {"bool": "not x", "int": "int(x)"},
    "float": {"float": "abs(x); -x; float(round(x))"},
    "str": {
        "str": "x[:1]; x[-1:]; x[::-1]; x.upper(); x.lower(); x.title(); x.swapcase(); x.strip(); x[1:]; x[:-1]; "
        "x[::2]; ''.join(sorted(x)); ''.join(dict.fromkeys(x)); x + x; x + x[:1]; x + x[::-1]; x[0] * K0; "
        "x[0] * K0 + x",
        "int": "len(x); len(set(x)); x.count(' '); len(x.split()); x.count(x[:1]); sum(map(str.isupper, x)); "
        "len(x) - len(set(x)); max(map(x.count, x)); sum(u in 'aeiou' for u in x); int(x)",
        "bool": "bool(x); x == x[::-1]; x.isalpha(); x.islower(); len(set(x)) == len(x); len(x) > K0; len(x) % 2 == 0",
        "list[str]": "x.split(); list(x); list(dict.fromkeys(x)); sorted(x); sorted(x.split()); [x]",
        "list[tuple[str, int]]": "[(u, x.count(u)) for u in dict.fromkeys(x)]; [(u, 1) for u in x]",
        "tuple[int, int]": "(x.count('R') - x.count('L'), x.count('U') - x.count('D')); (len(x), 0)",
    },
    "list[T]": {
        "T": "x[0]; x[-1]; x[1]; x[len(x) // 2]; x and x[0]; max(x); min(x); sorted(x)[len(x) // 2]; sorted(x)[-2]; "
        "max(x, key=x.count); min(x, key=x.count); max(set(x), key=x.count)",
        "list[T]": "x[::-1]; sorted(x); sorted(x)[::-1]; x[1:]; x[:-1]; x[::2]; x[:1]; x[-1:]; x[:K0]; x[K0:]; "
        "list(dict.fromkeys(x)); sorted(set(x)); x[1:] + x[:1]; x[-1:] + x[:-1]; [u for u in x if x.count(u) > 1]; "
        "[u for u in x if x.count(u) == 1]",
        "int": "len(x); len(set(x)); len(x) - len(set(x)); max(map(x.count, x)); sum(x.count(u) > 1 for u in set(x)); "
        "sum(v > u for u, v in zip(x, x[1:])); sum(v == u for u, v in zip(x, x[1:])); len(x) * (len(x) - 1) // 2",
        "bool": "bool(x); x == sorted(x); len(set(x)) == len(x)",
        "list[int]": "[x.count(u) for u in x]; list(range(len(x)))",
        "list[bool]": "[x.count(u) > 1 for u in x]; [False] * len(x); [True] * len(x); [u == max(x) for u in x]",
        "list[list[T]]": "[x]; [[u] for u in x]; [sorted(x)]",
    },
    "list[int]": {
        "int": "sum(x); sum(x) // len(x); max(x) - min(x); sum(u > 0 for u in x); sum(u % 2 == 0 for u in x); "
        "sum(map(abs, x)); sum(u * u for u in x); sum(x[::2]); sum(x[::2]) - sum(x[1::2]); x[-1] - x[0]; "
        "max(v - u for u, v in zip(x, x[1:])); max(sum(x[:u]) for u in range(len(x) + 1))",
        "list[int]": "[u + 1 for u in x]; [abs(u) for u in x]; [u * u for u in x]; [u for u in x if u > 0]; "
        "[u for u in x if u % 2 == 0]; [u * K0 for u in x]; [u + K0 for u in x]; [u % K0 for u in x]; "
        "[u for u in x if u > K0]; [sum(x[:u + 1]) for u in range(len(x))]; [max(x[:u + 1]) for u in range(len(x))]; "
        "[v - u for u, v in zip(x, x[1:])]",
        "float": "sum(x) / len(x); float(sum(x)); float(max(x)); float(sorted(x)[len(x) // 2])",
        "list[bool]": "[u % 2 == 0 for u in x]; [u > 0 for u in x]",
    },
    "list[str]": {
        "str": "' '.join(x); ''.join(x); ','.join(x); ', '.join(x); ' and '.join(x); max(x, key=len); min(x, key=len)",
        "list[str]": "sorted(x, key=len); [u.upper() for u in x]; [u[::-1] for u in x]; [u for u in x if len(u) > K0]",
        "int": "sum(map(len, x)); max(map(len, x))",
        "dict[str, int]": "dict.fromkeys(x, 1); {u: len(u) for u in x}; {u: x.count(u) for u in x}",
        "list[int]": "[len(u) for u in x]",
    },
    "list[tuple[A, B]]": {
        "list[A]": "[u for u, v in x]",
        "list[B]": "[v for u, v in x]",
        "dict[A, B]": "dict(x)",
        "list[tuple[A, B]]": "sorted(x, key=lambda u: u[1])",
    },
    "list[list[T]]": {
        "list[T]": "sum(x, []); [u[0] for u in x]; [u[-1] for u in x]; [max(u) for u in x]; [min(u) for u in x]",
        "list[list[T]]": "[u[::-1] for u in x]; [list(u) for u in zip(*x)]; [sorted(u) for u in x]; "
        "[list(u)[::-1] for u in zip(*x)]; [list(u) for u in zip(*x)][::-1]",
        "list[int]": "[sum(u) for u in x]; [sum(u) for u in zip(*x)]; [len(u) for u in x]",
        "int": "sum(map(sum, x)); len(x) * len(x[0]); max(map(sum, x))",
    },
    "dict[A, B]": {
        "list[A]": "list(x); sorted(x)",
        "list[B]": "list(x.values())",
        "dict[B, A]": "{v: u for u, v in x.items()}",
        "dict[B, list[A]]": "{v: [u] for u, v in x.items()}",
        "int": "len(x)",
    },
    "tuple[A, B]": {"A": "x[0]", "B": "x[1]", "tuple[B, A]": "x[::-1]"},
}
"""Type of x → the types of expressions made of it, with their templates."""
_OF_TWO = {
    ("int", "int"): {
        "int": "x + y; x - y; x * y; x // y; x % y; max(x, y); min(x, y); abs(x - y)",
        "bool": "x > y; x == y; x % y == 0",
    },
    ("str", "str"): {
        "str": "x + y; max(x, y)",
        "int": "x.count(y); len(x) - len(y); abs(len(x) - len(y)); max(len(x), len(y)); x.find(y); "
        "sum(u in y for u in x); sum(u == v for u, v in zip(x, y)); sum(u != v for u, v in zip(x, y))",
        "bool": "y in x; x == y; x.startswith(y); x.endswith(y); set(x) <= set(y); len(x) == len(y)",
    },
    ("list[T]", "list[T]"): {
        "list[T]": "x + y; sorted(x + y); [u for u in x if u in y]; [u for u in x if u not in y]",
        "int": "len(set(x) & set(y)); sum(u in y for u in x); len(x) - len(y)",
    },
    ("list[T]", "T"): {
        "int": "x.count(y); x.index(y)",
        "bool": "y in x",
        "list[T]": "x + [y]; [u for u in x if u != y]",
    },
    ("list[T]", "int"): {
        "list[T]": "x[:y]; x[y:]; x[-y:]; x[y:] + x[:y]; x[-y:] + x[:-y]; x[::y]",
        "T": "x[y]; x[-y]; max(x[:y]); max(x[-y:])",
        "int": "sum(u < y for u in x); sum(u > y for u in x); sum(x[:y]); sum(x) // y; max(x) + y; len(x) // y",
    },
    ("str", "int"): {"str": "x[:y]; x[y:]; x[-y:]; x * min(y, 9)", "list[str]": "[x[:y], x[y:]]; [x]"},
}
"""Like `_OF_ONE`, with a second parameter or number y beside x."""


@dataclass(frozen=True, slots=True)
class Simple:
    """One simple program, which raises where its expression does."""

    template: str
    function: Callable[..., Value]
    numbers: tuple[int, ...]

    @property
    def expression(self) -> str:
        """The returned expression, with its numbers."""
        return re.sub(r"\bK(\d)\b", lambda found: str(self.numbers[int(found[1])]), self.template)

    def run(self, arguments: Arguments) -> Value:
        """The expression's value, or CRASH. It changes no argument."""
        try:
            return self.function(*self.numbers, *arguments)
        except Exception:  # noqa: BLE001 – most of them raise for something
            return CRASH


def simple_programs(problem: CodeProblem, most: int = MOST) -> list[Simple]:
    """Simple programs of the problem's signature: the simplest of all, and an even share of the others."""
    known = sorted({int(number) for number in re.findall(r"\b\d+\b", problem.source)} - {0, 1, 2})
    numbers = (*known, 3, 5, 7, 10)[:NUMBERS]
    return [Simple(text, function, numbers) for text, function in _functions(problem.signature, most)]


@lru_cache(maxsize=128)
def _functions(signature: str, most: int) -> tuple[tuple[str, Callable[..., Value]], ...]:
    """Expressions of the returned type, each with its function of the known numbers and the arguments."""
    types, returned = _parameters(signature)
    simplest, others = _terms(types)
    texts = list(dict.fromkeys(text for kind, text in simplest if kind == returned))
    rest = list(dict.fromkeys(text for kind, text in others if kind == returned and text not in texts))
    texts += rest[:: max(1, -(-len(rest) // max(1, most - len(texts))))]
    head = ", ".join([*(f"K{place}" for place in range(NUMBERS)), *types])
    functions = eval("[" + ",\n".join(f"lambda {head}: {text}" for text in texts) + "]")  # noqa: S307 – made here
    return tuple(zip(texts, functions, strict=True))


def _parameters(signature: str) -> tuple[dict[str, str], str]:
    """The types of the parameters by name, and the type that is returned."""
    (function,) = ast.parse(f"def f({signature.replace('->', ') ->', 1)}: pass").body
    assert isinstance(function, ast.FunctionDef)
    assert function.returns is not None
    types = {each.arg: ast.unparse(each.annotation) for each in function.args.args if each.annotation}
    return types, ast.unparse(function.returns)


def _terms(types: dict[str, str]) -> tuple[list[Term], list[Term]]:
    """Constants, parameters and expressions of these; then expressions of those."""
    given = [(kind, name) for name, kind in types.items()]
    constants = [(kind, text) for kind, texts in _CONSTANTS.items() for text in texts.split("; ")]
    beside = [*given, *(term for term in constants if term[1].startswith("K"))]
    first = [*_apply_unary(given), *_apply_binary(given, beside)]
    return [*constants, *given, *first], [*_apply_unary(first), *_apply_binary(first, beside)]


def _apply_unary(terms: Sequence[Term]) -> Iterator[Term]:
    """All that can be made of one of them."""
    for kind, text in terms:
        for pattern, made in _OF_ONE.items():
            bound = _bound(pattern, kind)
            if bound is not None:
                yield from _fill_template(made, bound, {"x": text})


def _apply_binary(terms: Sequence[Term], others: Sequence[Term]) -> Iterator[Term]:
    """All that can be made of one of them and one of the others."""
    for kind, text in terms:
        for other_kind, other in others:
            for (pattern, beside), made in _OF_TWO.items():
                bound = _bound(pattern, kind)
                if bound is not None and text != other and _bound(beside, other_kind, bound) is not None:
                    yield from _fill_template(made, bound, {"x": text, "y": other})


def _fill_template(made: dict[str, str], bound: dict[str, str], texts: dict[str, str]) -> Iterator[Term]:
    for kind, templates in made.items():
        concrete = _replace_words(kind, bound)
        for template in templates.split("; "):
            yield concrete, f"({_replace_words(template, texts)})"


def _replace_words(text: str, words: dict[str, str]) -> str:
    return re.sub(r"\b[A-Zxy]\b", lambda found: words.get(found[0], found[0]), text)


@lru_cache(maxsize=4096)
def _shape(pattern: str) -> re.Pattern[str]:
    letters = re.sub(r"\\?\b([ABT])\b", r"(?P<\1>.+)", re.escape(pattern))
    return re.compile(letters)


def _bound(pattern: str, kind: str, already: dict[str, str] | None = None) -> dict[str, str] | None:
    """The types bound to a pattern's letters, or None if the type does not match."""
    found = _shape(_replace_words(pattern, already or {})).fullmatch(kind)
    if found is None or any(part.count("[") != part.count("]") for part in found.groups()):
        return None
    return {**(already or {}), **found.groupdict()}
