"""No text costs more than a few milliseconds, and none raises."""

import random
import time

import pytest

from loomrl.envs.math.answer import MathAnswer, compare
from loomrl.envs.math.form import Form

LIMIT_S = 0.005
"""On a machine that counts to 150,000 in the same time; `best_of` makes slower ones comparable."""
ANSWERS = [
    MathAnswer("7"),
    MathAnswer("3/4", form=Form.LOWEST),
    MathAnswer("(x - 2)(x - 3)", form=Form.FACTORED, variables="x"),
    MathAnswer("2, -3", "set", names=("x",)),
    MathAnswer("2, -3", "tuple", names=("x", "y")),
    MathAnswer("(-inf, 2] U (5, inf)", "interval", names=("x",)),
    MathAnswer("y = 2x + 3", "equation", form=Form.ANY, variables="xy"),
    MathAnswer("x^3/3 + x", "antiderivative", form=Form.ANY, variables="x"),
    MathAnswer("12π", unit="cm^2"),
]
TEXTS = [
    "(x+1)^60", "((x+1)^9)^6", "sqrt(" * 24 + "x" + ")" * 24, "√99999989+" * 40 + "1", "√99999989*" * 40 + "1",
    "9" * 30 + "^60", "9^9^9^9", "(" * 200 + "1" + ")" * 200, "-" * 399 + "1", "1/" * 190 + "2", "x^" * 150 + "2",
    "{" * 400, r"\frac" * 80, r"\frac{1}{" * 40 + "2" + "}" * 40, "sin(6 sin(6 sin(6x)))", "sin(6x)^6*cos(6x)^6",
    "e^(" * 20 + "x" + ")" * 20, "+".join(f"1/(x+{k})" for k in range(1, 20)),
    "1/(1/(1/(1/(x+1)+1/(x+2))+1/(x+3))+1/(x+4))", "1," * 199 + "1", "1 or " * 79 + "1", "1±" * 100 + "1",
    "U".join(["(1,2)"] * 60), "<".join("x" * 190), "x in " * 70, "((x+√2)^9+√3)^9", "(x+√2+√3+√5+√7)^9",
    "sqrt((x+sqrt((x+sqrt((x+1)^5+1))^5+1))^5+1)", "xy" * 190, "|" * 300, "%" * 300, r"\text{" * 60 + "}" * 60,
    "$" * 400, "\\" * 400, r"\boxed{" * 50 + "}" * 50, "2 1/2 " * 60, "=x" * 150, "5 cm^2 " * 50, "°" * 300, "1e999",
    "NaN", "∞", "𝟛", "٣", " " * 399, "\x00" * 100, "\ud800", "1" * 200_000, "(" * 200_000, r"\frac{" * 50_000,
    " " * 200_000 + "x", "cm" * 100_000, "f(x)" * 95 + "= 1", "(x)" * 130 + "= 1", "the " * 99 + "is 1",
    "P(" * 130 + ")= 1",
    "f'(x) = " * 49 + "1",
    "⁴" * 399, "½" * 399, "**1** " * 66, "x: " * 130, "1 ≈ " * 99, "12π ≈ 37.7 cm" * 30, "}{" * 199 + "=",
    "a" * 390 + "= 1", "'" * 399, "x - x + " * 49 + "x",
    "1,234" * 79, "1\u2009" * 199, "(((((((x)))))))= 1" * 20, "so " * 130,
    "answer is " * 39, "[" * 199 + "]" * 199 + "= 1", r"\text{" * 60, "C + " * 99 + "C",
    "{x|" * 130, "x = 1\n- " * 40, "sin = " * 60,
]  # fmt: skip


def best_of(times, answer, attempt):
    """The shortest of several measurements of processor time: what the work needs, not what the machine is or does."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        compare(answer, attempt)
        spent = time.process_time() - start
        if spent < LIMIT_S:
            return spent
        best = min(best, spent * LIMIT_S / max(LIMIT_S, counting()))
    return best


def counting():
    start = time.process_time()
    total = 0
    for number in range(150_000):
        total += number
    return time.process_time() - start


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.kind)
def test_a_text_made_to_be_slow_is_not(answer):
    slow = {text[:40]: spent for text in TEXTS if (spent := best_of(4, answer, text)) > LIMIT_S}
    assert not slow


def test_random_texts_are_never_slow_and_never_raise():
    rng = random.Random(7)
    pieces = [
        "x",
        "y",
        "1",
        "2",
        "9",
        "60",
        "+",
        "-",
        "*",
        "/",
        "^",
        "(",
        ")",
        "{",
        "}",
        "\\frac",
        "\\sqrt",
        "sin",
        "cos",
        "ln",
        "e^",
        "√",
        "π",
        ",",
        "or",
        "U",
        "[",
        "]",
        "(x+1)",
        "^9",
        "sqrt(",
        "=",
        "<",
        "±",
        "%",
        "|",
    ]
    for _ in range(3000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 120)))
        assert best_of(4, rng.choice(ANSWERS), text) < LIMIT_S, text


def test_random_nested_expressions_are_never_slow_and_never_raise():
    rng = random.Random(8)

    def nest(depth):
        if not depth:
            return rng.choice(["x", "2", "√3", "π", "(x+1)", "7/3", "√99999941"])
        pattern = rng.choice(
            ["({}+{})", "({}*{})", "({}/{})", "({})^7", "√({})", "sin({})", "e^({})", "ln({})", "({}-{})"]
        )
        return pattern.format(*(nest(depth - 1) for _ in range(pattern.count("{}"))))

    for _ in range(2000):
        text = nest(rng.randint(2, 6))
        assert best_of(4, rng.choice(ANSWERS), text) < LIMIT_S, text
