"""Every family at every level, and the true steps of a solution."""

import re
import time

import pytest

from loomrl.envs.math.answer import AnswerMatch, MathAnswer, compare
from loomrl.envs.math.family import FAMILIES
from loomrl.envs.math.problem import MathProblem
from loomrl.envs.math.step import progress
from tests.envs.play_support import make_problem

LEVELS = range(1, 11)
SEEDS = 3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_worked_solution_is_right_and_its_steps_all_check_and_its_prompt_is_clean_and_gives_nothing_away(family):
    """Short numbers coincide with given ones now and then; a generator that leaks does it nearly always."""
    leaks = 0
    for level in LEVELS:
        for seed in range(SEEDS):
            problem = make_problem(family, level, seed)
            text = problem.answer.text
            prompt = problem.prompt
            assert compare(problem.answer, text) is AnswerMatch.EQUAL, problem
            assert progress("\n".join(problem.steps), problem) == 1.0, problem
            assert not re.search(r"\+ -|- -|  |\b1x|\(\)|None|Fraction\(|\{|\}|'[A-Z]'", prompt), prompt
            assert prompt[0].isupper() or prompt[0].isdigit()
            assert prompt[-1] in ".?)", prompt
            leaks += bool(re.search(rf"(?<![\w/^.]){re.escape(text)}(?![\w/^])", prompt))
    assert leaks <= 0.25 * 10 * SEEDS


@pytest.mark.parametrize("family", FAMILIES)
def test_questions_are_many_and_no_single_answer_is_worth_guessing(family):
    for level in (1, 4, 7, 10):
        problems = [make_problem(family, level, seed) for seed in range(120)]
        answers = [problem.answer.text for problem in problems]
        assert len({problem.prompt for problem in problems}) >= 100, (family, level)
        assert max(map(answers.count, answers)) / len(answers) <= 0.15, (family, level)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_with_something_else_in_it_is_never_right(family):
    for level in LEVELS:
        answer = make_problem(family, level, 0).answer
        for tampered in (f"{answer.text} + 1", f"{answer.text}, 1", f"{answer.text} or 1", f"-({answer.text}) + 1", ""):
            if answer.kind in ("equation", "antiderivative") and tampered.endswith("+ 1"):
                continue
            assert compare(answer, tampered) is not AnswerMatch.EQUAL, (family, level, tampered)


SUM = MathProblem("Compute 12 + 30 - 5.", MathAnswer("37"), ("12 + 30 = 42", "42 - 5 = 37"))
LINEAR = MathProblem(
    "Solve 2x + 3 = 11.", MathAnswer("4", names=("x",)), ("11 - 3 = 8", "2x = 8", "8 / 2 = 4"), ({"x": "4"},)
)


@pytest.mark.parametrize(
    ("problem", "reasoning"),
    [
        (SUM, "12 + 30 = 42\n42 - 5 = 37"),
        (SUM, "First I add: 12 + 30 = 42. Then 42 − 5 = 37."),
        (SUM, r"We have $12 + 30 = 42$, so \(42 - 5 = 37\)."),
        (SUM, "12 + 30 - 5 = 42 - 5 = 37"),
        (LINEAR, "2x + 3 = 11\n2x = 11 - 3 = 8\nx = 8/2 = 4"),
        (LINEAR, "With x = 4: 2·4 + 3 = 11, and 8 / 2 = 4"),
    ],
)
def test_a_sound_solution_earns_everything(problem, reasoning):
    assert progress(reasoning, problem) == 1.0


@pytest.mark.parametrize(
    "reasoning",
    [
        "",
        "I just know it.",
        "37 = 37",
        "x = x",
        "37 + 0 = 37",
        "1 * 37 = 37\n37/1 = 37\n37^1 = 37",
        "12 + 30 = 30 + 12",
        "1 = 1\n2 = 2\n3 = 3",
        "1 + 1 = 2\n2 + 2 = 4\n3 + 3 = 6",
        "100 + 1 = 101\n101 + 1 = 102",
        "12 + 1 = 13\n30 + 1 = 31",
        "12 + 30 = 43",
        "f(12) = 37",
        "answer = 37",
        "0 * 12 = 0 * 37",
        "12 - 12 + 37 = 37",
        "37 * 12 / 12 = 37",
        "30 + 7 = 37",
        "12 + 5 = 37 - 20",
        "37 - 12 = 25",
        "37 + 5 = 42",
        "2 * 37 = 74",
        "sqrt(37^2) = 37",
        "x + x = 2x",
        "12x = 37x - 25x",
        "12 + 30 - 5 = 12 + 30 - 5",
        "12 + 30 - 5 = 30 + 12 - 5",
    ],
)
def test_what_says_nothing_about_the_question_earns_nothing(reasoning):
    assert progress(reasoning, SUM) == 0.0


def test_the_equation_of_the_question_is_no_step_nor_is_its_solution_in_disguise():
    for line in ("2x + 3 = 11", "2x = x + 4", "x + 3 = 4 + 3", "2x = 2 * 4", "x = 4", "8 = 2x + 0", "4 + 4 = 2 * 4"):
        assert progress(line, LINEAR) == 0.0, line


@pytest.mark.parametrize("family", FAMILIES)
def test_a_line_that_is_true_everywhere_is_no_step_anywhere(family):
    for level in (1, 4, 7, 10):
        problem = make_problem(family, level, level)
        given = re.findall(r"\d+", problem.prompt)
        result = re.findall(r"\d+", problem.answer.text)
        a = (result or given)[0]
        n = given[-1]
        lines = [
            "1 = 1", "5 = 5", "2 + 2 = 4", "0 = 0", "x = x", "x + x = 2x", "x - x = 0", f"{a} = {a}", f"{a} + 0 = {a}",
            f"{a} - {n} + {n} = {a}", f"{a} * 1 = {a}", f"sqrt({a}^2) = {a}", f"{a} = {a} + {n} - {n}", f"{a}x = {a}x",
            f"x = {problem.answer.text}", f"{problem.answer.text} = {problem.answer.text}", problem.prompt,
        ]  # fmt: skip
        for line in {*lines} - {*problem.steps}:
            assert progress(line, problem) == 0.0, (problem, line)
        assert progress("\n".join([*lines, *problem.steps]), problem) <= progress("\n".join(problem.steps), problem)


def test_a_step_said_twice_counts_once():
    assert progress("42 - 5 = 37\n" * 30, SUM) == progress("42 - 5 = 37", SUM)
    swapped = "42 - 5 = 37\n37 = 42 - 5\n42 - 5 + 0 = 37"
    assert progress(swapped, SUM) == progress("42 - 5 = 37", SUM)


def test_false_steps_among_true_ones_cost_their_share():
    assert progress("12 + 30 = 42\n42 - 5 = 37\n2 + 2 = 5\n3 + 3 = 7", SUM) == pytest.approx(0.5)


def test_fewer_steps_than_half_a_solution_earn_less():
    problem = make_problem("arithmetic.sum", 10, 0)
    assert 0 < progress(problem.steps[-1], problem) < 0.5
    assert progress("\n".join(problem.steps), problem) == 1.0


def test_a_step_holds_only_at_a_solution_of_the_problem():
    assert progress("11 - 3 = 8\n2x = 8\n8/2 = 4", LINEAR) == 1.0
    assert progress("11 - 3 = 8\n2x = 10\n8/2 = 4", LINEAR) < 1.0


def test_a_long_text_full_of_steps_is_read_only_in_part():
    start = time.process_time()
    progress("(x+1)^40 = (x+1)^39 * (x+1)\n" * 2000, LINEAR)
    progress("sqrt(99999941) + 12 = 99999941/√99999941 + 12\n" * 2000, SUM)
    assert time.process_time() - start < 0.2
