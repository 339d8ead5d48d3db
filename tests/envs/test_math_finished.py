"""Only a finished answer is paid: an honest one in any usual notation, not the question in other words."""

from random import Random

import pytest

from loomrl.envs.math import MathEnvironment
from loomrl.envs.math.answer import AnswerMatch, MathAnswer, compare
from loomrl.envs.math.family import FAMILIES
from loomrl.envs.math.form import Form
from loomrl.envs.math.hack import restate_answer
from loomrl.envs.math.notation import latex
from loomrl.envs.math.problem import custom_problem
from loomrl.envs.math.syntax import SyntaxNode, read
from loomrl.errors import ConfigError
from loomrl.gym.answer import TaggedAnswer
from loomrl.types import Task
from tests.envs.play_support import make_problem

PRODUCT = MathAnswer("13870")
FRACTION = MathAnswer("29/8", form=Form.LOWEST)
EXPANDED = MathAnswer("x^2 - 10x + 24", variables="x")
FACTORED = MathAnswer("(x - 4)(x - 6)", form=Form.FACTORED, variables="x")
SURD = MathAnswer("5√53", unit="cm")
ROOTS = MathAnswer("3 + √2, 3 - √2", "set", names=("x",))
SLOPE = MathAnswer("24x^2", form=Form.ANY, variables="x")
SOURCE = MathAnswer("15x^3", "antiderivative", form=Form.ANY, variables="x")
LINE = MathAnswer("y = -(6/5)x - 4/5", "equation", form=Form.ANY, variables="xy")
BELOW = MathAnswer("(-inf, 10)", "interval", names=("x",))

FINISHED = {
    PRODUCT: ["13870", "13,870", "13870.", "13870.0", "-(-13870)", "1387000%"],
    FRACTION: ["29/8", "3 5/8", r"3\frac{5}{8}", r"\dfrac{29}{8}", "(29/8)."],
    EXPANDED: ["24 - 10x + x**2", "x*x - 10*x + 24", "[x^2 - 10x + 24]", r"x^{2} - 10 \cdot x + 24"],
    FACTORED: ["(x-6)(x-4)", "(4-x)(6-x)", "-(x-4)(6-x)", r"\left(x-4\right)\cdot\left(x-6\right)"],
    SURD: ["5√53", "√1325", "5*sqrt(53) cm", "265/√53", "√53*5"],
    ROOTS: ["3 ± √2", "(6 ± √8)/2", "x = 3 + √2 or x = 3 - √2", "3 - sqrt(2), 3 + sqrt(2)"],
    SLOPE: ["24x^2", "24*x**2", "x^2*24", "24 x x", r"24x^{2}"],
    SOURCE: ["15x^3", "15x^3 + C", "15x^3 - 4", "15 x**3."],
    LINE: ["y = -1.2x - 0.8", "6x + 5y + 4 = 0", "y + 2 = -6/5 (x - 1)", "5(y - 4) = -6(x + 4)", "y = -6x/5 - 4/5"],
    BELOW: ["(-inf, 10)", "x < 10", "10 > x", r"(-\infty, 10.0)"],
}
UNFINISHED = {
    PRODUCT: [
        "146*95", "sqrt(146*95)^2", "((146*95)*1)^1", "sqrt(146*95)*sqrt(146*95)", "|146*95|", "13870*1",
        "√192376900",
        "(146*95*(π+1))/(π+1)", "146*95*π/π", "100(146*95)%", "13870/1", "27740/2", "138 95/1", "1387*10^1",
        "13870^1",
    ],
    FRACTION: ["17/4 - 5/8", "2 13/8", "58/16", "3 10/16", "3.625", "362.5%", "3 + 5/8", "29*8^(-1)", "14.5/4"],
    EXPANDED: [
        "(x-6)(x-4)", "sqrt((x-6)(x-4))^2", "(x-6)(x-4)/1", "x^2 - 6x - 4x + 24", "(2x^2 - 20x + 48)/2",
        "x^(1+1) - 10x + 24",
        "x^2 - 10x + 4*6", "(x-6)(x-4)(π+1)/(π+1)", "x^2 - 5*2x + 24", "x^2 - 20x/2 + 24", "((x-5)^2 - 1)",
    ],
    FACTORED: [
        "x^2 - 10x + 24", "sqrt(x^2 - 10x + 24)^2", "sqrt(x^2-10x+24)*sqrt(x^2-10x+24)", "(x-4)(x-6)(x+1)/(x+1)",
        "(x^2 - 10x + 24)^1*1", "(x-4)(x-6)^1*1^2", "(x-4)(x-2*3)", "((x-4)/2)(2x-12)", "(x^2 - 10x + 24)(x - x + 1)",
    ],
    SURD: ["√(22^2 + 29^2)", "√5√265", "√(1300 + 25)", "5√(50+3)", "√(1325)^1*1^1", "√(2650/2)", "1325/√1325*1"],
    ROOTS: ["3 ± √(9-7)", "(6 ± √(36-28))/2", "(6 ± 2√2)/2", "3 ± √2*1*1"],
    SLOPE: [
        "8*3x^2", "8*3*x^(3-1)", "24x^(3-1)", "48x^2/2", "8x^2(3 + x) - 8x^3", "24x^2(x+1)/(x+1)", "24√(x^2)^2",
        "8x^2(3 + 1/(x+1)) - 8x^2/(x+1)", "(2x)^2*6*1", "24x^2 + x - x", "24x^2*(sin(x)^2 + cos(x)^2)",
        "8x^2*tan(π/4)*3",
    ],
    SOURCE: ["45x^3/3", "45x^(2+1)/(2+1)", "15x^3 + 2 + 3", "sqrt(225x^6)", "30x^3/2 + C"],
    LINE: [
        "(y + 2)(-4 - 1) = (x - 1)(4 + 2)", "y + 2 = (4+2)/(-4-1) (x - 1)", "y = -(6/5)x - 2 + 6/5",
        "2y - y = -(6/5)x - 4/5",
        "y + 2 + 3 = -6/5 x - 4/5 + 5", "(y+2)^2 + 0 = 36/25 (x-1)^2",
    ],
    BELOW: ["x < 80/8", "(-inf, 65/8 + 15/8)", "x < √100", "8x < 80", "(-inf, 20/2)"],
}  # fmt: skip


@pytest.mark.parametrize("answer", FINISHED)
def test_a_finished_answer_is_paid_and_an_unfinished_one_is_not(answer):
    assert [each for each in FINISHED[answer] if compare(answer, each) is not AnswerMatch.EQUAL] == []
    assert [each for each in UNFINISHED[answer] if compare(answer, each) is AnswerMatch.EQUAL] == []


IDLE = (
    "{0} + x - x", "x + {0} - x", "-x + {0} + x", "{0} + 2x - x - x", "{0} + sin(x) - sin(x)", "{0} - (x - x)",
    "({0} + x) - x", "{0} + x^2 + 3x - x^2 - 3x", "{0} + x(x + 1) - x^2 - x", "{0} + 1/(x+1) - 1/(x+1)",
    "({0} + x - x)*1",
    "{0} + sec(x) - sec(x)", "5x - 2x + {0} - 3x",
)  # fmt: skip


@pytest.mark.parametrize("family", ["calculus.derivative", "calculus.integral", "calculus.tangent", "geometry.line"])
def test_terms_that_cancel_each_other_are_unfinished_beside_any_truth(family):
    paid = []
    for level in range(1, 11):
        answer = make_problem(family, level, level).answer
        for pattern in IDLE:
            head, sign, body = answer.text.rpartition("= ")
            attempt = head + sign + pattern.format(body)
            if compare(answer, attempt) is AnswerMatch.EQUAL:
                paid.append(attempt)
    assert not paid


@pytest.mark.parametrize(
    ("text", "attempt"),
    [
        ("24x + 1", "12x + 12x + 1"), ("24x^2 - x", "25x^2 - x^2 - x"), ("7x^2 + 5x", "x(7x + 2) + 3x"),
        ("2x", "5x - 3x"),
        ("x^2 - 1", "(x + 1)(x - 1)"), ("9x^2 + 10x", "(3x + 5)*2x + 3x^2"),
    ],
)  # fmt: skip
def test_like_terms_may_stay(text, attempt):
    assert compare(MathAnswer(text, form=Form.ANY, variables="x"), attempt) is AnswerMatch.EQUAL


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
async def test_the_question_in_other_words_is_never_paid(count):
    environment = MathEnvironment()
    families = sorted(FAMILIES)
    paid = []
    for seed in range(count):
        rng = Random(seed)
        environment.ask(environment.task(families[seed % len(families)], rng.randint(1, 10), seed))
        attempt = restate_answer(environment._problem, rng)
        if (await environment.judge(TaggedAnswer("", attempt, False))).success:
            paid.append((environment._problem.prompt, attempt))
    assert not paid


@pytest.mark.parametrize("family", FAMILIES)
def test_an_honest_answer_is_right_in_any_order_and_notation(family):
    for level in range(1, 11):
        answer = make_problem(family, level, level).answer
        for attempt in notations(answer, Random(level)):
            assert compare(answer, attempt) is AnswerMatch.EQUAL, (answer, attempt)


def notations(answer, rng):
    """The truth as other people write it."""
    yield from (f"${answer.text}$", f" {answer.text} .", rf"\boxed{{{answer.text}}}", answer.text.replace(" ", ""))
    if answer.kind == "interval":
        return
    separator = " = " if answer.kind == "equation" else ", "
    around = "({})" if answer.kind == "tuple" else "{}"
    items = [read(item, answer.variables) for item in answer.text.split(separator.strip())]
    for show in (latex, plain):
        yield around.format(separator.join(show(item) for item in items))
        yield around.format(separator.join(show(reorder(item, rng)) for item in items))
    if answer.kind == "set":
        yield " or ".join(map(plain, rng.sample(items, len(items))))


def reorder(node, rng):
    parts = tuple(reorder(part, rng) for part in node.parts)
    if node.kind == "-" and rng.random() < 0.5:
        return SyntaxNode("+", (SyntaxNode("negate", (parts[1],)), parts[0]))
    swapped = node.kind in ("+", "*") and rng.random() < 0.5
    return node._replace(parts=parts[::-1] if swapped else parts)


def plain(node):
    if node.kind in ("number", "symbol"):
        return node.name
    shown = [plain(part) for part in node.parts]
    if node.kind == "negate":
        return f"(-{shown[0]})"
    if len(shown) == 1:
        return f"{node.kind}({shown[0]})"
    return f"({shown[0]}{node.kind.replace('^', '**')}{shown[1]})"


@pytest.mark.parametrize(
    ("answer", "kind", "right", "wrong"),
    [
        ("7*50/100", "value", ["3.5", "7/2", "3 1/2"], ["7*50/100", "350/100", "14/4"]),
        ("x/(x+1)", "value", ["x/(1+x)", r"\frac{x}{x+1}"], ["(x^2+x)/(x+1)^2", "2x/(2x+2)"]),
        ("3ln(2)", "value", ["ln(8)", "3 ln 2"], ["ln(2^3)", "ln(2)+ln(4)", "ln(4*2)"]),
        ("e^(2x)", "value", ["exp(2x)"], ["(e^x)^2", "e^x*e^x"]),
        ("1/2, 3", "tuple", ["(0.5, 3)"], ["(2/4, 3)", "(1/2, 1+2)"]),
    ],
)
def test_an_answer_of_a_template_is_finished_when_it_is_no_longer_than_given(answer, kind, right, wrong):
    problem = custom_problem(_of_template(answer, kind))
    assert [text for text in right if compare(problem.answer, text) is not AnswerMatch.EQUAL] == []
    assert [text for text in wrong if compare(problem.answer, text) is AnswerMatch.EQUAL] == []


def test_a_template_that_leaves_its_answer_unfinished_is_refused():
    with pytest.raises(ConfigError, match="every number worked out"):
        custom_problem(_of_template("1+1, 3", "tuple"))


def _of_template(answer, kind):
    parameters = {"prompt": "?", "answer": answer, "kind": kind, "variables": "x"}
    return Task("Math", "1.2.0", "custom", 1, 0, parameters)
