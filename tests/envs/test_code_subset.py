"""The part of Python that submissions may use, and values: when two are the same."""

import math
import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.code.bank import PATTERNS
from loomrl.envs.code.composition import ENDS, FILTERS, MACHINES, MAPS, NEIGHBOURS, ORDERS
from loomrl.envs.code.driver import show_value, write_value
from loomrl.envs.code.submission import countable, findings, parse, parse_code, readability, refusal, with_function
from loomrl.envs.code.value import fresh, same, says

ESCAPES = [
    "import sys",
    "import os.path",
    "from sys import settrace",
    "from math import *",
    "from . import x",
    "import math\nmath.__loader__",
    "import collections\ncollections.abc",
    "import collections as c\nc._sys",
    "getattr(1, 'x')",
    "global getattr\ngetattr(1, 'x')",
    "if 0:\n    getattr = 1\ngetattr(1, 'x')",
    "def f(getattr):\n    return getattr",
    "lambda eval: eval('1')",
    "try:\n    pass\nexcept ValueError as eval:\n    eval('1')",
    "def f(g):\n    return g.gi_frame.f_back",
    "def f(e):\n    return e.__traceback__.tb_frame",
    "match 1:\n    case int(real=x):\n        pass",
    "'{0.__class__}'.format(1)",
    "class A:\n    pass",
    "async def f():\n    pass",
    "__builtins__",
    "__import__('sys')",
    "from math import sqrt as __x",
    "exec('1')",
    "type(1)",
    "vars()",
    "open('x')",
    "breakpoint()",
    "with x:\n    pass",
    "memoryview(b'')",
]
BOMBS = {
    "a number too long to be written again": "x = 0x" + "f" * 15_000,
    "brackets": "(" * 8000 + ")" * 8000,
    "signs": "-" * 15_000 + "1",
    "nots": "not " * 3900 + "x",
    "lambdas": "lambda:" * 2200 + "1",
    "a sum": "1+" * 7900 + "1",
    "attributes": "a" + ".b" * 7900,
    "conditions": "x if x else " * 1200 + "x",
    "assignments": "x=" * 7000 + "1",
    "indents": "\n".join(" " * depth + "if x:" for depth in range(170)),
    "calls": "f" + "()" * 7000,
    "a long name": "x" * 15_900,
    "too long": "x = 1\n" * 3000,
    "a zero byte": "x = '\0'",
    "surrogates": "x = '\ud800'",
}


@pytest.mark.parametrize("source", ESCAPES)
def test_nothing_that_could_reach_the_counter_is_counted(source):
    assert countable(source) is None
    assert "not allowed" in refusal(source) or "may not be imported" in refusal(source)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_references_can_be_counted_and_read_well(pattern):
    problem = pattern.problem(Random(0))
    assert countable(problem.source) == problem.source
    assert readability(problem.source) == 1.0
    assert not problem.slow or countable(problem.slow)


@pytest.mark.parametrize(
    "source",
    [
        "import math as m\nfrom collections import Counter\ndef f(a):\n    return m.gcd(a, 2) + Counter([a])[a]",
        "from functools import lru_cache\n@lru_cache(None)\ndef f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)",
        "def f(xs):\n    try:\n        return xs.index(3)\n    except ValueError as error:\n        return str(error)",
        "from typing import List\ndef f(xs: List[int]) -> int:\n    def g(x):\n        return x\n    return g(1)",
        "def f(x):\n    match x:\n        case [a, *rest]:\n            return a\n        case {'k': v, **more}:\n"
        "            return v\n",
        "def f(xs):\n    yield from (x for x in xs if (y := x))",
    ],
)
def test_ordinary_code_can_be_counted(source):
    assert countable(source), refusal(source)


def test_every_reference_can_be_counted():
    steps = (*FILTERS, *MAPS, *ORDERS, *NEIGHBOURS, *MACHINES, *ENDS)
    sources = [step.draw_numbers(Random(0)).code.replace("return ", "x = ") for step in steps]
    assert [refusal(source) for source in sources if countable(f"items = []\n{source}") is None] == []


def test_statements_on_one_line_are_counted_one_by_one():
    assert countable("def f(a):\n    b = a; c = b; return c").count("\n") == 3


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", BOMBS)
def test_code_made_to_choke_the_parser_is_refused_soon(name):
    began = time.process_time()
    assert countable(BOMBS[name]) is None or parse(BOMBS[name]) is not None
    assert readability(BOMBS[name]) in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("x = 1; y = 2", "two statements"),
        ("if x: y = 2", "two statements"),
        ("try:\n    pass\nexcept:\n    pass", "bare except"),
        ("def f(a=[]):\n    return a", "default"),
        ("def f(a):\n    b = 1\n    return a", "b is never read"),
        ("import math", "math is imported"),
        ("x = y == None", "None"),
        ("f = lambda x: x", "lambda"),
        ("x = " + "1 + " * 40 + "1", "longer"),
        ("def f():\n    global x\n    x = 1\n    return x", "global"),
        ("l = 1", "the name l"),
        ("if a:\n    if a:\n        x = 1\n", ""),
        (
            "def f(a):\n    if a == 1:\n        return 1\n    elif a == 2:\n        return 2\n"
            "    elif a == 3:\n        return 3\n    elif a == 4:\n        return 4\n"
            "    elif a == 5:\n        return 6\n    return 7",
            "",
        ),
    ],
)
def test_what_a_reader_stumbles_over_is_found(source, finding):
    found = list(findings(source, parse(source)))
    assert any(finding in each for each in found) if finding else not found
    assert readability(source) == max(0, 1 - 0.25 * len(found))


def test_deep_nesting_is_found():
    source = "def f(a):\n" + "".join(" " * 4 * depth + "for x in a:\n" for depth in range(1, 6)) + " " * 24 + "return x"
    assert any("nested" in each for each in findings(source, parse(source)))


BLOCK = "```python\nx = 1\n```"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (BLOCK, "x = 1\n"),
        (f"Some thoughts.\n{BLOCK}\nDone.", "x = 1\n"),
        (f"{BLOCK}\n```py\nx = 2\n```", "x = 2\n"),
        ("```\nx = 3\n```", "x = 3\n"),
        (f"{BLOCK}\n```text\nnot code\n```", "x = 1\n"),
        (f"{BLOCK}\n```python\nx = 2", None),
        ("x = 1", None),
        ("```python x = 1```", None),
        ("```python\n\n```", None),
        ("", None),
        ("```python\n" + "x" * 16_001 + "\n```", None),
    ],
)
def test_the_last_complete_block_is_the_code(text, code):
    assert parse_code(text) == code


SOLUTION = "class Solution:\n    def f(self, x):\n        return x\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        ("  ```python\n  if a:\n    x = 1\n  ```", "if a:\n  x = 1\n"),
        ("````python\nx = '```'\n````\n", "x = '```'\n"),
        (f"{BLOCK}\n~~~python\nx = 2", None),
    ],
)
def test_fences_may_be_of_either_kind_and_indented(text, code):
    assert parse_code(text) == code


def test_the_method_of_the_only_class_that_has_it_is_the_function():
    code = with_function(SOLUTION, "f")
    names = {}
    exec(code, names)
    assert names["f"](3) == 3


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    return x\n",
        f"{SOLUTION}f = Solution().f\n",
        SOLUTION.replace("f(", "g("),
        "class A(",
        SOLUTION * 2,
    ],
)
def test_code_that_needs_no_alias_stays_as_it_is(code):
    assert with_function(code, "f") == code


KEYS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
VALUES = st.recursive(
    KEYS | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_a_value_is_written_as_its_copy_is(value):
    assert same(value, fresh(value))
    assert write_value(value) == write_value(fresh(value))
    assert "\n" not in show_value(value)


@given(VALUES, VALUES)
def test_values_are_written_alike_if_they_are_the_same_and_only_then(one, other):
    for mine, theirs in ((one, other), ([one, other], [other, one]), ({1: one, 2: other}, {2: other, 1: one})):
        exact = "-0.0" not in repr(one) + repr(other)  # 0.0 in value, and written apart
        assert says(write_value(mine).encode(), write_value(theirs).encode()) == same(mine, theirs) or not exact
        near = says(write_value(mine).encode(), write_value(theirs).encode(), tolerance=1e-6)
        assert near == same(mine, theirs, tolerance=1e-6) or not exact


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (1, 1.0),
        ([1], (1,)),
        ("1", 1),
        (None, False),
        ({1: 2}, {True: 2}),
        ([[1]], [[True]]),
        ({"a": 1}, {"a": 1.0}),
        ("", None),
        ([], None),
        (math.nan, math.nan),
    ],
)
def test_values_that_python_calls_equal_are_not_the_same_in_another_type(one, other):
    assert not same(one, other, tolerance=1e-6)


def test_an_object_that_equals_everything_is_not_the_same_and_cannot_be_encoded():
    class Any(int):
        def __eq__(self, other):
            return True

        __hash__ = None

    assert not same(3, Any(3))
    with pytest.raises(TypeError, match="Any was returned"):
        write_value(Any(3))


def test_floats_may_be_off_by_the_tolerance_and_no_more():
    assert same(0.1 + 0.2, 0.3, tolerance=1e-9)
    assert not same(0.1 + 0.2, 0.3)
    assert not same(1.0, 1.001, tolerance=1e-9)


@pytest.mark.parametrize(
    "text", [b"", b"f", b"i1", b"f1_", b"f1\nf1", b"f" + b"1" * 40, b"f0x1", b"f\xff", b"fnan", b"f-1"]
)
def test_text_that_writes_another_value_or_none_is_wrong(text):
    assert not says(text, b"f1.0", tolerance=1e-6)


def test_what_is_shown_is_short_ascii():
    assert show_value("\ud800é") == r"'\ud800\xe9'"
    assert len(show_value([1] * 1000)) < 200
    assert show_value(10**5000).startswith("(")
