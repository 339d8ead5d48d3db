"""A second, independent way to every answer: the question, as it is worded, solved by sympy."""

import re
import statistics
from fractions import Fraction

import pytest
import sympy
from sympy.parsing.sympy_parser import (
    convert_xor,
    implicit_multiplication_application,
    parse_expr,
    standard_transformations,
)

from tests.envs.play_support import make_problem

RULES = (*standard_transformations, convert_xor, implicit_multiplication_application)
SEEDS = 2
x, y = sympy.symbols("x y")


def parse(source):
    plain = source.replace("π", " pi ").replace("×", "*").replace("÷", "/")
    plain = re.sub(r"√(\d+)", r"sqrt(\1)", re.sub(r"√\(", "sqrt(", plain))
    names = {**{name: sympy.Symbol(name) for name in "xyztn"}, "e": sympy.E, "C": sympy.Symbol("C")}
    return parse_expr(plain, names, transformations=RULES)


def problems(family):
    return [(level, make_problem(family, level, seed)) for level in range(1, 11) for seed in range(SEEDS)]


def function(prompt):
    """The f(x) of a calculus question."""
    found = re.search(
        r"(?:[fy](?:\(x\))? = |Differentiate |Integrate |integral of |\d of )(.+?)"
        r"(?: with respect| at x| at the| where| on the| takes|\?|\. |\.$|, )",
        prompt,
    )
    return parse(found[1].removeprefix("f(x) = "))


@pytest.mark.parametrize("family", ["calculus.derivative", "calculus.integral"])
def test_derivatives_and_antiderivatives(family):
    for level, problem in problems(family):
        given, answer = function(problem.prompt), parse(problem.answer.text)
        source, slope = (given, answer) if family == "calculus.derivative" else (answer, given)
        for at in (0.37, 1.21):
            wanted = complex(slope.subs(x, at).evalf())
            gap = complex(sympy.diff(source, x).subs(x, at).evalf()) - wanted
            assert abs(gap) < 1e-6 * (1 + abs(wanted)), (level, problem)


@pytest.mark.parametrize("level_problem", problems("calculus.limit"), ids=lambda p: f"level {p[0]}")
def test_limits(level_problem):
    _, problem = level_problem
    found = re.search(
        r"(?:limit of (.+) as x approaches (\S+)\."
        r"|What does (.+) tend to as x -> (\S+)\?|lim \(x -> (\S+)\) of (.+?)\. )",
        problem.prompt,
    )
    source = found[1] or found[3] or found[6]
    target = found[2] or found[4] or found[5]
    at = sympy.oo if target == "infinity" else sympy.Integer(target)
    assert sympy.limit(parse(source), x, at) == sympy.Rational(problem.answer.text)


@pytest.mark.parametrize("level_problem", problems("calculus.area")[:12], ids=lambda p: f"level {p[0]}")
def test_definite_integrals(level_problem):
    _, problem = level_problem
    found = re.search(
        r"integral of (?:f\(x\) = )?(.+?) (?:from x = (-?\d+) to x = (-?\d+)|over the interval \[(-?\d+), (-?\d+)\])"
        r"|from (-?\d+) to (-?\d+) of \((.+)\) dx",
        problem.prompt,
    )
    source = found[1] or found[8]
    low = found[2] or found[4] or found[6]
    high = found[3] or found[5] or found[7]
    assert sympy.integrate(parse(source), (x, int(low), int(high))) == sympy.Rational(problem.answer.text)


@pytest.mark.parametrize("level_problem", problems("calculus.area")[12:], ids=lambda p: f"level {p[0]}")
def test_enclosed_areas(level_problem):
    _, problem = level_problem
    curves = re.findall(r"y = ([^?]+?)(?= and | enclose|\. Give|\.$|\?)", problem.prompt)
    upper = parse(curves[0])
    lower = parse(curves[1]) if len(curves) > 1 else sympy.Integer(0)
    low, high = sorted(sympy.solve(upper - lower, x))
    assert abs(sympy.integrate(upper - lower, (x, low, high))) == sympy.Rational(problem.answer.text)


@pytest.mark.parametrize("family", ["algebra.linear", "algebra.quadratic"])
def test_equations(family):
    for _, problem in problems(family):
        left, right = re.search(
            r"([-+\w^()/ ]+) = ([-+\w^()/ ]+)",
            re.sub(r"^.*?(Solve for \w: |Find \w if |Solve |satisfies |with |solutions of )", "", problem.prompt),
        ).groups()
        name = sympy.Symbol(problem.answer.names[0])
        roots = sympy.solve(parse(left) - parse(right), name)
        assert {sympy.nsimplify(root) for root in roots} == {parse(text) for text in problem.answer.text.split(",")}, (
            problem
        )


def test_systems():
    for _, problem in problems("algebra.system"):
        names = [sympy.Symbol(name) for name in problem.answer.names]
        equations = re.findall(r"([-+\dxyz ]+) = (-?\d+(?:/\d+)?)", problem.prompt)
        found = sympy.solve([parse(left) - sympy.Rational(right) for left, right in equations], names)
        assert [found[name] for name in names] == [sympy.Rational(text) for text in problem.answer.text.split(",")], (
            problem
        )


@pytest.mark.parametrize("family", ["algebra.expand", "algebra.factor"])
def test_products(family):
    for _, problem in problems(family):
        source = re.search(
            r"(?:simplify|out|Write|Factor|factorization of) ([-+\dxy^() ]+?)(?: and| as|\.| completely| over)",
            problem.prompt,
        )[1]
        assert sympy.expand(parse(source) - parse(problem.answer.text)) == 0, problem
        if family == "algebra.factor":
            _, factors = sympy.factor_list(parse(source))
            assert (
                problem.answer.text.count("(") + problem.answer.text.startswith("x") + (")x" in problem.answer.text)
                <= sum(n for _, n in factors) + 1
            )


def test_inequalities():
    for _, problem in problems("algebra.inequality"):
        source = re.search(
            r"([-+\dx^()/ ]+ (?:<=|>=|<|>) [-+\dx^()/ ]+)", re.sub(r"^.*?(inequality |is |with )", "", problem.prompt)
        )[1]
        left, sign, right = re.split(r"(<=|>=|<|>)", source)
        relation = {"<": sympy.Lt, "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge}[sign](parse(left), parse(right))
        truth = sympy.EmptySet
        for part in problem.answer.text.split(" U "):
            low, high = (sympy.sympify(end.replace("inf", "oo")) for end in part[1:-1].split(","))
            truth = truth.union(sympy.Interval(low, high, part[0] == "(", part[-1] == ")"))
        assert relation.as_set() == truth, problem


def test_arithmetic():
    for family in ("arithmetic.sum", "arithmetic.product", "arithmetic.expression", "arithmetic.fraction"):
        for _, problem in problems(family):
            source = re.search(r"[-(]*\d[-+×÷/() \d]*", problem.prompt.replace("right: ", ""))[0]
            assert parse(source) == sympy.Rational(problem.answer.text), problem


def test_statistics_of_samples():
    for family, measure in (("statistics.mean", statistics.mean), ("statistics.median", statistics.median)):
        for level in range(1, 4):
            problem = make_problem(family, level, 1)
            listed = re.search(r"(-?\d+(?:, -?\d+)+)", problem.prompt)[1]
            values = [sympy.Rational(value) for value in listed.split(", ")]
            assert sympy.Rational(str(measure([Fraction(int(v)) for v in values]))) == sympy.Rational(
                problem.answer.text
            )
    for level in range(1, 11):
        problem = make_problem("statistics.variance", level, 2)
        values = [int(value) for value in re.search(r"(-?\d+(?:, -?\d+)+)", problem.prompt)[1].split(", ")]
        measure = getattr(
            statistics,
            ("p" if "population" in problem.prompt else "")
            + ("stdev" if "deviation" in problem.prompt else "variance"),
        )
        assert measure(values) == pytest.approx(float(parse(problem.answer.text)))


def test_areas_by_coordinates():
    for _, problem in problems("geometry.coordinates"):
        points = [(int(a), int(b)) for a, b in re.findall(r"\((-?\d+), (-?\d+)\)", problem.prompt)]
        assert abs(sympy.Polygon(*points).area) == sympy.Rational(problem.answer.text)


def test_tangents_and_lines():
    for _, problem in problems("calculus.tangent"):
        curve, at = (
            function(problem.prompt.removeprefix("The line y = mx + b")),
            sympy.Rational(re.search(r"x = (-?\d+(?:/\d+)?)", problem.prompt)[1]),
        )
        line = parse(problem.answer.text.removeprefix("y = "))
        assert curve.subs(x, at) == line.subs(x, at)
        assert sympy.diff(curve, x).subs(x, at) == sympy.diff(line, x)


def test_extrema():
    for level, problem in problems("calculus.extremum"):
        curve = function(problem.prompt)
        critical = sympy.solve(sympy.diff(curve, x), x)
        if level <= 3:
            assert sorted(critical) == sorted(map(int, problem.answer.text.split(",")))
            continue
        if level <= 7:
            curvature = sympy.diff(curve, x, 2)
            wanted = [p for p in critical if (curvature.subs(x, p) < 0) == ("maximum" in problem.prompt)]
            assert curve.subs(x, wanted[0]) == int(problem.answer.text)
            continue
        low, high = (
            map(int, re.search(r"\[(-?\d+), (-?\d+)\]|$", problem.prompt).groups())
            if "[" in problem.prompt
            else map(int, re.search(r"(-?\d+) <= x <= (-?\d+)", problem.prompt).groups())
        )
        values = [curve.subs(x, p) for p in (low, high, *(p for p in critical if low <= p <= high))]
        assert (max if "largest" in problem.prompt else min)(values) == int(problem.answer.text)
