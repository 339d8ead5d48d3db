"""Every family at every level: many different problems, solved by their own solutions, the same in every process."""

import re

import pytest

from loomrl.envs.math.answer import AnswerMatch, compare
from loomrl.envs.math.family import FAMILIES
from loomrl.envs.math.step import progress
from tests.envs.play_support import make_problem

LEVELS = range(1, 11)
SEEDS = 10


def test_areas_have_at_least_five_families():
    areas = [family.split(".")[0] for family in FAMILIES]
    for area in ("algebra", "calculus", "geometry", "statistics", "arithmetic"):
        assert areas.count(area) >= 5


@pytest.mark.parametrize("family", FAMILIES)
def test_the_worked_solution_is_right_and_its_steps_all_check(family):
    for level in LEVELS:
        for seed in range(SEEDS):
            problem = make_problem(family, level, seed)
            assert compare(problem.answer, problem.answer.text) is AnswerMatch.EQUAL, problem
            assert progress("\n".join(problem.steps), problem) == 1.0, problem


@pytest.mark.parametrize("family", FAMILIES)
def test_five_hundred_seeds_give_at_least_two_hundred_different_questions(family):
    for level in LEVELS:
        prompts = {make_problem(family, level, seed).prompt for seed in range(500)}
        assert len(prompts) >= 200, (family, level, len(prompts))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_single_answer_is_worth_guessing(family):
    for level in LEVELS:
        answers = [make_problem(family, level, seed).answer.text for seed in range(200)]
        assert max(map(answers.count, answers)) / len(answers) <= 0.15, (family, level)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_with_something_else_in_it_is_never_right(family):
    for level in LEVELS:
        answer = make_problem(family, level, 0).answer
        for tampered in (f"{answer.text} + 1", f"{answer.text}, 1", f"{answer.text} or 1", f"-({answer.text}) + 1", ""):
            if answer.kind in ("equation", "antiderivative") and tampered.endswith("+ 1"):
                continue
            assert compare(answer, tampered) is not AnswerMatch.EQUAL, (family, level, tampered)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_are_clean_text(family):
    for level in LEVELS:
        for seed in range(SEEDS):
            prompt = make_problem(family, level, seed).prompt
            assert not re.search(r"\+ -|- -|  |\b1x|\(\)|None|Fraction\(|\{|\}|'[A-Z]'", prompt), prompt
            assert prompt[0].isupper() or prompt[0].isdigit()
            assert prompt[-1] in ".?)", prompt


def test_the_answer_of_a_computation_stands_not_in_its_question():
    """Short numbers coincide with given ones now and then; a generator that leaks does it nearly always."""
    leaks = dict.fromkeys(FAMILIES, 0)
    for family in FAMILIES:
        for level in LEVELS:
            for seed in range(SEEDS):
                problem = make_problem(family, level, seed)
                leaks[family] += bool(
                    re.search(rf"(?<![\w/^.]){re.escape(problem.answer.text)}(?![\w/^])", problem.prompt)
                )
    assert {family: count for family, count in leaks.items() if count > 0.25 * 10 * SEEDS} == {}


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"calculus.limit"}))
def test_higher_levels_ask_for_more(family):
    """By the length of the worked solution; for limits it is the technique that changes, not the length."""

    def work(level):
        return sum(len("".join(make_problem(family, level, seed).steps)) for seed in range(20))

    assert work(9) + work(10) > work(1) + work(2)
