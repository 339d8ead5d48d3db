"""The bank: references are right by a second way, tests kill small bugs, and composed problems are worth asking."""

import ast
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.envs.code.admission import draw_tests, fresh_tests, kills, make_suite, wrong_programs
from loomrl.envs.code.bank import PATTERNS
from loomrl.envs.code.composition import compose
from loomrl.envs.code.mutation import mutants, remains
from loomrl.envs.code.problem import CRASH, CodeProblem, run
from loomrl.envs.code.simple import MOST as MOST_SIMPLE
from loomrl.envs.code.simple import simple_programs
from loomrl.envs.code.task import FAMILIES, bug, make_challenge
from loomrl.envs.code.value import Value, same

MANY_TURNS = 200_000


def draw_problem(pattern, seed):
    rng = Random(f"{pattern.name} {seed}")
    return pattern.problem(rng), rng


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_problem_is_said_in_words_and_leaves_no_number_open(pattern):
    problem, _ = draw_problem(pattern, 0)
    for name in pattern.constants:
        assert f"{{{name}}}" not in problem.prompt + problem.source + problem.slow
    assert problem.source == ast.unparse(ast.parse(problem.source))
    assert problem.source.startswith(problem.head)


@pytest.mark.parametrize("pattern", PATTERNS[::3], ids=lambda pattern: pattern.name)
def test_hidden_tests_of_a_problem_kill_every_wrong_program_that_any_input_kills(pattern):
    problem, rng = draw_problem(pattern, 1)
    suite = make_suite(problem, rng)
    assert suite.killed >= 5
    assert suite.missed == 0


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_hidden_tests_kill_what_any_of_very_many_inputs_can_kill(pattern):
    for seed in range(3):
        problem, rng = draw_problem(pattern, seed)
        suite = make_suite(problem, rng)
        later = draw_tests(problem, Random(f"later {seed}"), 1000)
        for program, _ in wrong_programs(problem):
            if not any(kills(test, program, problem) for test in (*suite.examples, *suite.hidden)):
                assert sum(kills(test, program, problem) for test in later) <= 0.01 * len(later)


@pytest.mark.parametrize("pattern", [pattern for pattern in PATTERNS if pattern.slow], ids=lambda pattern: pattern.name)
def test_the_slow_way_of_a_problem_gives_the_same(pattern):
    problem, rng = draw_problem(pattern, 2)
    for _ in range(10):
        arguments = problem.inputs(rng)
        expected = run(problem.source, problem.name, arguments)
        assert same(expected, run(problem.slow, problem.name, arguments, most_turns=MANY_TURNS)), arguments


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [pattern for pattern in PATTERNS if pattern.slow], ids=lambda pattern: pattern.name)
def test_what_large_inputs_give_cannot_be_guessed(pattern):
    problem, rng = draw_problem(pattern, 4)
    inputs = [problem.large_inputs(rng) for _ in range(24)]
    given_values = [repr(run(problem.source, problem.name, each, most_turns=10**7)) for each in inputs]
    assert max(given_values.count(value) for value in given_values) <= 6


def test_composed_problems_are_admitted_and_no_step_of_them_is_idle_and_no_two_are_alike():
    admitted = 0
    prompts = set()
    for number in range(20):
        rng = Random(f"{number}")
        problem = compose(1 + number % 10, rng)
        prompts.add(problem.prompt)
        assert CRASH not in [run(problem.source, problem.name, problem.inputs(rng)) for _ in range(20)]
        admitted += make_suite(problem, rng).is_admitted
    assert admitted >= 14
    assert len(prompts) == 20


def test_simple_programs_return_what_the_signature_says():
    problem = CodeProblem("f", "words: list[str], k: int -> str", "", "def f(words, k):\n    return words[7]", ())
    programs = {program.expression: program for program in simple_programs(problem)}
    assert programs["(words and words[0])"].run((["a", "b"], 1)) == "a"
    assert programs["(words[7])"].run((["a"], 1)) is CRASH
    assert programs["(words[k])"].run((["a", "b"], 1)) == "b"
    assert len(programs) > 100


def test_remains_are_the_source_with_one_part_taken_away():
    source = "def f(a):\n    if a > 2 and a < 5:\n        return 1\n    return [b for b in a if b]"
    bodies = {text.partition("\n")[2] for text in remains(source)}
    assert "    if a > 2:\n        return 1\n    return [b for b in a if b]" in bodies
    assert "    if False:\n        return 1\n    return [b for b in a if b]" in bodies
    assert "    if a > 2 and a < 5:\n        pass\n    return [b for b in a if b]" in bodies
    assert "    if a > 2 and a < 5:\n        return 1\n    return [b for b in a]" in bodies
    assert "    if a > 2 and a < 5:\n        return 1\n    pass" in bodies


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = a <= b", "x = a > b"}),
        ("x = a - b", {"x = a + b", "x = b - a"}),
        ("x = 3", {"x = 4", "x = 2"}),
        ("x = not a", {"x = a"}),
        ("x = a and b", {"x = a or b"}),
        ("x = range(n)", {"x = range(n + 1)", "x = range(n - 1)"}),
        ("x = max(a)", {"x = min(a)"}),
        ("x = 'ab'", {"x = 'a'"}),
        ("x += y", {"x -= y", "pass"}),
        ("x = a if b else c", {"x = (c if b else a)", "x = a if not b else c"}),
    ],
)
def test_a_mutant_is_one_small_slip(source, expected):
    assert {mutant.source for mutant in mutants(source)} == expected


def test_docstrings_annotations_and_texts_of_f_strings_are_no_place_for_bugs():
    source = "def f(a: list[1]) -> tuple[2]:\n    'Some 3.'\n    return f'{a:4}'"
    assert mutants(source) == ()


def test_fresh_tests_are_equal_for_equal_submissions_only():
    problem, _ = draw_problem(PATTERNS[0], 0)
    first = fresh_tests(problem, "def f(): pass")
    assert first == fresh_tests(problem, "def f(): pass")
    assert first != fresh_tests(problem, "def f(): pass ")


def test_a_suite_whose_tests_miss_a_bug_is_not_admitted():
    problem = CodeProblem(
        "f", "a: int -> int", "", "def f(a: int) -> int:\n    return 5", (lambda rng: rng.randint(0, 9),)
    )
    assert not make_suite(problem, Random(0)).is_admitted, "a constant passes all its tests"


def test_a_mutant_that_never_ends_is_stopped():
    assert run("def f(n):\n    while n > 0:\n        n += 1\n    return n", "f", (1,)) is CRASH
    assert run("def f(n):\n    return f(n)", "f", (1,)) is CRASH


def test_running_leaves_the_arguments_as_they_were():
    arguments = ([1, [2]],)
    run("def f(items):\n    items[1].append(3)\n    return items", "f", arguments)
    assert arguments == ([1, [2]],)


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(1, 10))
def test_a_bug_fails_a_test_and_shows_no_trace(seed, level):
    rng = Random(seed)
    problem = compose(level, rng)
    suite = make_suite(problem, rng)
    mutant = bug(problem, rng, suite.hidden)
    if mutant is None:
        return
    assert mutant.source == ast.unparse(ast.parse(mutant.source))
    assert any(not same(t.expected, run(mutant.source, problem.name, t.arguments)) for t in suite.hidden)


FEW = MOST_SIMPLE
MANY = 3_000
"""Simple programs of a task; admission tries the few."""
PAIRS = 40
"""Programs with two bugs."""

Wrong = tuple[str, Callable[..., Value]]
"""A program's text, and the program."""


def wrong_answers(challenge, rng, simple):
    """More than admission knows: also two bugs at once, bugs in what the prompt shows, and what other tasks ask for."""
    problem = challenge.problem
    first = [mutant.source for mutant in mutants(problem.source)]
    sources = [*first, *remains(problem.source)]
    for source in rng.choices(first, k=PAIRS):
        sources.append(rng.choice(mutants(source) or mutants(problem.source)).source)
    if "```python\n" in challenge.prompt and not problem.slow:
        shown = challenge.prompt.split("```python\n")[1].split("\n```")[0]
        sources += [shown, *(mutant.source for mutant in mutants(shown)), *remains(shown)]
    for pattern in PATTERNS:
        if pattern.signature == problem.signature:
            sources.append(pattern.problem(rng).source.replace(f"{pattern.name}(", f"{problem.name}("))
    for source in dict.fromkeys(sources):
        yield source, lambda arguments, source=source: run(source, problem.name, arguments)
    for program in simple_programs(problem, simple):
        yield program.expression, program.run


def survey(kind, *, seeds, inputs, simple=MANY):
    """Programs tried, those that pass, fresh inputs, and what passes though some input shows that it is wrong."""
    tried = passed = judged = 0
    found = []
    for level in range(1, 11):
        for seed in range(seeds):
            challenge = make_challenge(kind, level, 50_000 + seed)
            problem = challenge.problem
            later = draw_tests(problem, Random(f"later {kind} {level} {seed}"), inputs)
            judged += len(later)
            for text, program in wrong_answers(challenge, Random(seed), simple):
                tried += 1
                if any(kills(test, program, problem) for test in (*challenge.examples, *challenge.hidden)):
                    continue
                if any(kills(test, program, problem) for test in fresh_tests(problem, text)):
                    continue
                passed += 1
                against = [test for test in later if kills(test, program, problem)]
                if against:
                    found.append(f"{level} {seed} {problem.prompt!r}: {text!r}, as {against[0]} shows ({len(against)})")
    return tried, passed, judged, found


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_wrong_program_passes(kind):
    tried, _, judged, found = survey(kind, seeds=1, inputs=100, simple=FEW)
    assert tried > 1_000
    assert judged > 500
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_no_wrong_program_passes_by_twenty_thousand_fresh_inputs(kind):
    tried, passed, judged, found = survey(kind, seeds=8, inputs=400)
    print(f"{kind}: {tried} programs tried, {passed} pass, {judged} fresh inputs, {len(found)} of them are wrong")
    assert judged >= 20_000
    assert found == []
