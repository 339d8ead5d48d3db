"""Right answers in the notations people use; wrong, unfinished and evasive ones refused."""

import pytest

from loomrl.envs.math.answer import Answer, Match, compare
from loomrl.envs.math.form import Form

SUM = Answer("7")
LOWEST = Answer("-5/3", form=Form.LOWEST)
POLYNOMIAL = Answer("x^2 - 5x + 6", variables="x")
FACTORS = Answer("2(x - 2)(x - 3)", form=Form.FACTORED, variables="x")
ROOTS = Answer("2, -3", "set", names=("x",))
SURDS = Answer("1 + √2, 1 - √2", "set", names=("x",))
PAIR = Answer("2, -3", "tuple", names=("x", "y"))
RAYS = Answer("(-inf, 2] U (5, inf)", "interval", names=("x",))
SPAN = Answer("(2, 5]", "interval", names=("x",))
LINE = Answer("y = 2x + 3", "equation", form=Form.ANY, variables="xy")
SOURCE = Answer("x^3/3 + x", "antiderivative", form=Form.ANY, variables="x")
AREA = Answer("12π", unit="cm^2")
LENGTH = Answer("5√2", unit="cm")
BIG = Answer("1234567")
PRICE = Answer("45.5", unit="dollars")
TURN = Answer("40", unit="degrees")
SLOPE = Answer("2x*e^(3x) + 3x^2*e^(3x)", form=Form.ANY, variables="x")

RIGHT = {
    SUM: ["7", "7.0", "+7", "007", "$7$", r"\boxed{7}", r"\(7\)", "(7)", "-(-7)", "{7}"],
    LOWEST: ["-5/3", "5/-3", r"-\frac{5}{3}", r"\dfrac{-5}{3}", "-1 2/3", r"-1\frac{2}{3}", "−5/3", "(-5)/3"],
    POLYNOMIAL: ["x^2-5x+6", "6 − 5x + x²", r"x^{2}-5\cdot x+6", "x*x-5*x+6"],
    FACTORS: ["2(x-2)(x-3)", "2(3-x)(2-x)", "(x-2)·2·(x-3)", r"2\left(x-2\right)\left(x-3\right)"],
    ROOTS: ["{2, -3}", "-3, 2", "x = 2 or x = -3", r"\{-3, 2\}", r"x \in \{-3, 2\}", "2 and -3", "x=2; x=-3"],
    SURDS: ["1 ± √2", r"1 \pm \sqrt{2}", "1 + sqrt(2), 1 - sqrt(2)", "(2 ± √8)/2"],
    PAIR: ["(2, -3)", "2, -3", "x = 2, y = -3", "y = -3, x = 2", r"\left(2,-3\right)", "x = 2 and y = -3"],
    RAYS: [
        "(-∞, 2] ∪ (5, ∞)", r"(-\infty, 2] \cup (5, \infty)", "x <= 2 or x > 5", "x > 5 or x ≤ 2",
        "(5, inf) U (-inf, 2]", r"x \in (-\infty, 2] \cup (5, \infty)", r"x \le 2 \text{ or } x > 5",
    ],
    SPAN: ["(2, 5]", "2 < x <= 5", "5 ≥ x > 2", r"2 < x \leq 5"],
    LINE: ["y = 2x + 3", "2x - y + 3 = 0", "y - 3 = 2x", "4x + 6 = 2y"],
    SOURCE: ["x^3/3 + x", "x^3/3 + x + C", "1/3 x^3 + x - 7", r"\frac{x^3}{3} + x + C"],
    AREA: ["12π", "12 pi", "12π cm²", "12π cm^2", r"12\pi\ \text{cm}^2", "12π square centimeters", "π·12"],
    LENGTH: ["5√2", "√50", r"5\sqrt{2}", "5*sqrt(2) cm", "10/√2"],
    BIG: ["1234567", "1,234,567", "1{,}234{,}567"],
    PRICE: ["45.5", "$45.50", r"\$45.5", "45.50 dollars", "91/2"],
    TURN: ["40", "40°", r"40^\circ", "40 degrees"],
    SLOPE: ["x e^{3x} (2 + 3x)", "e^(3x)*(3x^2 + 2x)"],
}  # fmt: skip
WRONG = {
    SUM: [
        "3+4", "14/2", "√49", "2^3 - 1", "7*1", "7 + 0", "6", "-7", "7x", "x", "", "7 or 8", "6, 7, 8", "{7}{8}",
        "7 7", "NaN", "７", "7 cm", "seven", "7,000", "0..10", "[0, 10]", r"\boxed{6}\boxed{7}", "7=7",
        "9^9^9",
    ],
    LOWEST: ["-10/6", "-1.666666", "5/3", "-5", "-2 + 1/3", "-1.67"],
    POLYNOMIAL: ["(x-2)(x-3)", "x^2 - 2x - 3x + 6", "x^2 - 5x + 2·3", "x^2 - 5x", "y^2 - 5y + 6", "x^2 - 5x + 6 = 0"],
    FACTORS: ["2x^2 - 10x + 12", "2(x^2 - 5x + 6)", "(2x - 4)(x - 3)", "(x-2)(x-3)", "2(x-2)(x-3)·x/x"],
    ROOTS: ["2", "{2, -3, 4}", "-3, -2, -1, 0, 1, 2, 3", "±2", "x = x", "(x-2)(x+3) = 0", "all real numbers"],
    SURDS: ["1 + √2", "1 ± √3", "2.414, -0.414"],
    PAIR: ["(-3, 2)", "x = 2", "2, -3, 4", "x = 2, x = -3", "x = -3, y = 2"],
    RAYS: ["(-inf, 2) U (5, inf)", "(-inf, inf)", "x > 5", "[5, inf)", "(-inf, 1 + 1] U (5, inf)", "(-∞, 2] ∩ (5, ∞)"],
    SPAN: ["[2, 5]", "(2, 5)", "2 < x", "(5, 2]", "2, 5"],
    LINE: ["y = 2x", "0 = 0", "y = y", "2x + 3", "y = 2x + 3 = 0", "0*y = 0*x"],
    SOURCE: ["x^3/3 + 2x", "x^3/3 + x + Cx", "C", "x^2 + 1", "C = C"],
    AREA: ["12", "37.7", "12π cm", "12π m^2", "4·3·π", "12 * 3.14", "6π + 6π"],
    LENGTH: ["√(25+25)", "√(5^2+5^2)", "7.07", "5√2 m"],
    BIG: ["1234568", "12,34,567", "1 234 567", "1234567.0000000001"],
    PRICE: ["45", "45.5%", "91/2 euros"],
    TURN: ["40 cm", "140", "40π"],
    SLOPE: [r"\frac{d}{dx} x^2 e^{3x}", "2x*e^(3x)", "(x^2*e^(3x))'"],
}  # fmt: skip


@pytest.mark.parametrize(("answer", "attempt"), [(answer, each) for answer, group in RIGHT.items() for each in group])
def test_a_right_answer_is_right_in_every_usual_notation(answer, attempt):
    assert compare(answer, attempt) is Match.EQUAL


@pytest.mark.parametrize(("answer", "attempt"), [(answer, each) for answer, group in WRONG.items() for each in group])
def test_a_wrong_or_unfinished_answer_is_not_right(answer, attempt):
    assert compare(answer, attempt) is not Match.EQUAL
