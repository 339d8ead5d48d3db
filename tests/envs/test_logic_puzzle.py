"""Logic puzzles have one solution; what it earns, what a fact costs, and what is neither."""

import re
import time
from dataclasses import replace
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.logic import LogicPuzzleEnvironment
from loomrl.envs.logic.formula import deduction, knights
from loomrl.envs.logic.grid import KINDS, grid, outline
from loomrl.envs.logic.ordering import ordering
from loomrl.envs.logic.puzzle import read_groups
from loomrl.errors import ConfigError

NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
FALSE = ("is off", "stays away", "is innocent", "is a knave")


def seeds(count, *levels):
    return [(level, seed) for level in levels for seed in range(count)]


def holds(sentence, true):
    """True if a sentence about yes-or-no facts holds where these facts, in lower case, are true."""

    def literal(text):
        return (text.split()[0].lower() in true) != text.endswith(FALSE)

    def number_of(names):
        return sum(name.lower() in true for name in re.split(r", | and ", names))

    if found := re.fullmatch(r"If (.+), then (.+)\.", sentence):
        return not all(map(literal, found[1].split(" and "))) or literal(found[2])
    if found := re.fullmatch(r"(.+) if (.+), and only then\.", sentence):
        return literal(found[1]) == all(map(literal, found[2].split(" and ")))
    if found := re.fullmatch(r"(.+), or (?:both|more of these)\.", sentence):
        return any(map(literal, re.split(r", | or ", found[1])))
    if found := re.fullmatch(r"Both or neither of (\w+) and (\w+) .+\.", sentence):
        return number_of(f"{found[1]} and {found[2]}") != 1
    if found := re.fullmatch(r"Of (.+), an (even|odd) number .*\.", sentence):
        return number_of(found[1]) % 2 == ("even", "odd").index(found[2])
    if found := re.fullmatch(r"(Exactly|At least|At most) (\w+) of (.+ and \w+) (?:is|are|comes?)\b.*\.", sentence):
        count = number_of(found[3])
        wanted = NUMBERS[found[2]]
        return {"Exactly": count == wanted, "At least": count >= wanted, "At most": count <= wanted}[found[1]]
    assert re.fullmatch(r"\w+ (?:is|comes|stays)[a-z ]*\.", sentence), sentence
    return literal(sentence.rstrip("."))


def said(sentence, true):
    """The same for what a knight or knave says, or for what is told."""
    speaker, quoted, words = sentence.rstrip('"').partition(': "')
    return holds(words, true) == (speaker.lower() in true) if quoted else holds(sentence, true)


def subsets(names):
    for taken in product((False, True), repeat=len(names)):
        yield {name.lower() for name, take in zip(names, taken, strict=True) if take}


def assert_unique_and_minimal(sentences, worlds, truth, holds):
    """Only the truth fits all sentences, and without any one of them something else fits too."""
    broken = [frozenset(i for i, text in enumerate(sentences) if not holds(text, world)) for world in worlds]
    assert [world for world, faults in zip(worlds, broken, strict=True) if not faults] == [truth]
    assert {next(iter(faults)) for faults in broken if len(faults) == 1} == set(range(len(sentences)))


@pytest.mark.parametrize(("make", "fits"), [(deduction, holds), (knights, said)])
@pytest.mark.parametrize(("level", "seed"), seeds(6, 1, 3, 5, 7))
def test_what_is_told_or_said_leaves_one_solution_and_nothing_can_be_left_out(level, seed, make, fits):
    puzzle = make(level, Random(seed), 1)
    _, *sentences, _ = puzzle.story.split("\n")
    truth = set(puzzle.solution.lower().split(", "))
    assert_unique_and_minimal(sentences, list(subsets(puzzle.shape[0])), truth, fits)


def rule(sentence, patterns):
    """The predicate of a sentence: `at` says which place each name has."""
    for pattern, holds in patterns.items():
        if found := re.fullmatch(pattern, sentence.rstrip(".")):
            return lambda at: holds(at, *found.groups())
    raise AssertionError(sentence)


def is_between(at, a, b, c):
    return min(at[b], at[c]) < at[a] < max(at[b], at[c])


PLACES = {
    r"If (.+), then (.+)": lambda at, a, b: not rule(a, PLACES)(at) or rule(b, PLACES)(at),
    r"(.+) or (.+), or both": lambda at, a, b: rule(a, PLACES)(at) or rule(b, PLACES)(at),
    r"(\w+) (?:is|came) in place (\d)": lambda at, a, p: at[a] == int(p),
    r"(\w+) (?:is|came) in place neither (\d) nor (\d)": lambda at, a, p, q: at[a] not in (int(p), int(q)),
    r"(\w+) (?:is directly left of|came directly before) (\w+)": lambda at, a, b: at[a] + 1 == at[b],
    r"(\w+) (?:is left of|came before) (\w+)": lambda at, a, b: at[a] < at[b],
    r"(\w+) (?:is next to|came directly before or after) (\w+)": lambda at, a, b: abs(at[a] - at[b]) == 1,
    r"(\w+) (?:is|came) somewhere between (\w+) and (\w+)": is_between,
    r"(\w+) and (\w+) are exactly (\d) places apart": lambda at, a, b, n: abs(at[a] - at[b]) == int(n),
}
HOUSES = {
    r"(\w+) is in house (\d)": lambda at, a, n: at[a] == int(n),
    r"(\w+) and (\w+) are in the same house": lambda at, a, b: at[a] == at[b],
    r"(\w+) and (\w+) are not in the same house": lambda at, a, b: at[a] != at[b],
    r"(\w+) is directly left of (\w+)": lambda at, a, b: at[a] + 1 == at[b],
    r"(\w+) is left of (\w+)": lambda at, a, b: at[a] < at[b],
    r"(\w+) is next to (\w+)": lambda at, a, b: abs(at[a] - at[b]) == 1,
    r"(\w+) is neither with nor next to (\w+)": lambda at, a, b: abs(at[a] - at[b]) > 1,
    r"(\w+) is two houses away from (\w+)": lambda at, a, b: abs(at[a] - at[b]) == 2,
}


def apply(predicate, world):
    return predicate(world)


@pytest.mark.parametrize(("level", "seed"), seeds(6, 1, 4, 6, 7))
def test_sentences_about_places_leave_one_order_and_none_can_be_left_out(level, seed):
    puzzle = ordering(level, Random(seed), 1)
    _, *sentences, _ = puzzle.story.split("\n")
    names = puzzle.solution.split(", ")
    places = range(1, len(puzzle.shape[0]) + 1)
    truth = dict(zip(names, places, strict=True))
    worlds = [dict(zip(names, order, strict=True)) for order in permutations(places)]
    assert_unique_and_minimal([rule(text, PLACES) for text in sentences], worlds, truth, apply)


@pytest.mark.parametrize(("level", "seed"), seeds(4, 1, 3, 4, 5))
def test_sentences_about_houses_leave_one_grid_and_none_can_be_left_out(level, seed):
    puzzle = grid(level, Random(seed), 1)
    _, *sentences, _ = puzzle.story.split("\n")
    groups = puzzle.solution.lower().split(", ")
    truth = {word: house for house, group in enumerate(groups, start=1) for word in group.split()}
    each = [
        [dict(zip(map(str.lower, words), order, strict=True)) for order in permutations(range(1, len(words) + 1))]
        for words in puzzle.shape
    ]
    worlds = [{word: place for kind in kinds for word, place in kind.items()} for kinds in product(*each)]
    assert_unique_and_minimal([rule(text.lower(), HOUSES) for text in sentences], worlds, truth, apply)


@pytest.mark.parametrize("level", [8, 9, 10])
def test_large_grids_have_one_solution_too(level):
    house, clues = outline(level, 3)
    size = len(house[0])
    kinds = len(house)
    words = [KINDS[kind][:size] for kind in list(KINDS)[:kinds]]
    flat = [word.lower() for row in words for word in row]
    kind_of = {word.lower(): number for number, row in enumerate(words) for word in row}
    rules = [
        (rule(f"{words[a][i]} {text.format(words[b][j])}".lower(), HOUSES), {words[a][i].lower(), words[b][j].lower()})
        for text, ((a, i), (b, j)) in clues
    ]

    def solutions(at):
        left = [word for word in flat if word not in at]
        if not left:
            return [at]
        word = max(left, key=lambda word: sum(word in about and len(about - at.keys()) == 1 for _, about in rules))
        taken = {place for other, place in at.items() if kind_of[other] == kind_of[word]}
        found = []
        for place in sorted(set(range(1, size + 1)) - taken):
            now = {**at, word: place}
            if all(holds(now) for holds, about in rules if word in about and about <= now.keys()):
                found += solutions(now)
        return found

    truth = {words[kind][item].lower(): place + 1 for kind, row in enumerate(house) for item, place in enumerate(row)}
    assert solutions({}) == [truth]


FAMILIES = LogicPuzzleEnvironment.families


async def open_task(family="ordering", level=5, seed=0, **parameters):
    environment = LogicPuzzleEnvironment()
    await environment.reset(replace(environment.task(family, level, seed), parameters=parameters))
    return environment


def words(environment):
    return environment.oracle().removeprefix("SOLVE: ").replace(",", "").split()


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_reward_is_solved_minus_price_times_queries(family):
    for queries in range(3):
        for solved in (True, False):
            environment = await open_task(family)
            bought = [await environment.step(f"QUERY: {word}") for word in words(environment)[:queries]]
            wrong = f"SOLVE: {environment.random_action(Random(1)).removeprefix('SOLVE: ')}"
            last = await environment.step(environment.oracle() if solved else wrong)
            assert sum(step.reward.total for step in (*bought, last)) == solved - 0.25 * queries
            assert last.reward.success == (1 - 0.25 * queries if solved else 0)


async def test_a_fact_is_true_and_says_where_the_word_belongs():
    environment = await open_task("ordering", 5)
    first, *_, last = words(environment)
    assert (await environment.step(f"QUERY: {last}")).observation[0].content.endswith("in place 5.")
    assert (await environment.step(f"QUERY: {first.upper()}.")).observation[0].content.endswith("in place 1.")


async def test_no_more_is_sold_than_the_prompt_says_and_the_same_again_costs_again():
    environment = await open_task("grid", 5)
    (prompt,) = await environment.reset(environment.task("grid", 5, 0))
    assert "(price 0.25, at most 2)" in prompt.content
    word = words(environment)[0]
    rewards = [(await environment.step(f"QUERY: {word}")).reward.total for _ in range(4)]
    assert rewards == [-0.25, -0.25, 0.0, 0.0]


@pytest.mark.parametrize(
    "action",
    [
        "",
        "I do not know.",
        "SOLVE:",
        "SOLVE: nobody",
        "QUERY: everything",
        "QUERY: Anna, Ben",
        "solve: Anna",
        "SOLVE Anna",
    ],
)
async def test_what_is_no_command_costs_nothing_and_is_answered(action):
    environment = await open_task("knights", 5)
    step = await environment.step(action)
    assert (step.reward.total, step.terminated, step.truncated) == (0.0, False, False)
    assert "SOLVE" in step.observation[0].content or "QUERY" in step.observation[0].content


@pytest.mark.parametrize("joint", [" ", ", ", "; ", " > ", " -> ", " | ", ", and "])
async def test_an_order_may_be_written_in_many_ways(joint):
    environment = await open_task("ordering")
    assert (await environment.step(f"SOLVE: {joint.join(words(environment)).upper()}")).reward.success == 1.0


async def test_places_may_be_numbered_but_not_wrongly():
    environment = await open_task("grid", 5)
    groups = environment.oracle().removeprefix("SOLVE: ").split(", ")
    turned = [" ".join(reversed(group.split())) for group in groups]
    right = ", ".join(f"{place}. {group}" for place, group in enumerate(turned, start=1))
    wrong = ", ".join(f"{place}. {group}" for place, group in enumerate(turned, start=2))
    assert not (await environment.step(f"SOLVE: {wrong}")).terminated
    assert (await environment.step(f"SOLVE: {right}")).reward.success == 1.0


async def test_a_set_has_each_name_once_and_all_of_them():
    names = words(await open_task("deduction", 5))
    assert len(names) > 1
    for attempt in (names[1:], [*names, names[0]]):
        environment = await open_task("deduction", 5)
        assert (await environment.step(f"SOLVE: {', '.join(attempt)}")).reward.success == 0.0
    environment = await open_task("deduction", 5)
    assert (await environment.step(f"SOLVE: {' and '.join(reversed(names))}")).reward.success == 1.0


async def test_lookalike_letters_are_other_letters():
    environment = await open_task("ordering", 5)
    lookalike = environment.oracle().translate(
        {ord("a"): "\u0430", ord("e"): "\u0435", ord("i"): "\u0456", ord("o"): "\u043e"}
    )
    assert (await environment.step(lookalike)).reward.success == 0.0


@pytest.mark.parametrize("text", [",", "1. ,", " ,", "a", "1", "house 1: ", "\u0661", "- ", "\u00bd"])
def test_no_text_takes_long_to_read(text):
    began = time.process_time()
    read_groups(text * (16_000 // len(text)))
    assert time.process_time() - began < 0.05


@given(st.text("aZ 1.,;:)->[\u0661\u00e9\n", max_size=60))
def test_any_text_is_read_or_refused(text):
    groups = read_groups(text)
    assert groups is None or all(isinstance(word, str) for group in groups for word in group)


@pytest.mark.parametrize("dataset", ["mini_sudoku", "futoshiki"])
async def test_a_template_brings_safe_puzzles_of_reasoning_gym(dataset):
    pytest.importorskip("reasoning_gym", reason="needs reasoning-gym: pip install 'loomrl[reasoning-gym]'")
    environment = await open_task("reasoning_gym", 2, 7, dataset=dataset)
    fact = await environment.step("QUERY: 1")
    assert fact.observation[0].content == f"Entry 1 is {words(environment)[0]}."
    step = await environment.step(environment.oracle())
    assert (step.reward.total, step.reward.success) == (1.0, 0.75)
    assert environment.random_action(Random(0)).startswith("SOLVE: ")


async def test_a_template_with_an_unknown_data_set_names_the_known():
    with pytest.raises(ConfigError, match="mini_sudoku"):
        await open_task("reasoning_gym", dataset="mini_sudok")
