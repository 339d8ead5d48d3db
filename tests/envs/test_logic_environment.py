"""The LogicPuzzle environment: what a solution earns, what a fact costs, and what is neither."""

import time
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.logic import LogicPuzzleEnvironment
from loomrl.envs.logic.puzzle import read_groups
from loomrl.errors import ConfigError

FAMILIES = LogicPuzzleEnvironment.families


async def opened(family="ordering", level=5, seed=0, **parameters) -> LogicPuzzleEnvironment:
    environment = LogicPuzzleEnvironment()
    await environment.reset(replace(environment.task(family, level, seed), parameters=parameters))
    return environment


def words(environment):
    return environment.oracle().removeprefix("SOLVE: ").replace(",", "").split()


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_reward_is_solved_minus_price_times_queries(family):
    for queries in range(3):
        for solved in (True, False):
            environment = await opened(family)
            bought = [await environment.step(f"QUERY: {word}") for word in words(environment)[:queries]]
            wrong = f"SOLVE: {environment.random_action(Random(1)).removeprefix('SOLVE: ')}"
            last = await environment.step(environment.oracle() if solved else wrong)
            assert sum(step.reward.total for step in (*bought, last)) == solved - 0.25 * queries
            assert last.reward.success == (1 - 0.25 * queries if solved else 0)


async def test_a_fact_is_true_and_says_where_the_word_belongs():
    environment = await opened("ordering", 5)
    first, *_, last = words(environment)
    assert (await environment.step(f"QUERY: {last}")).observation[0].content.endswith("in place 5.")
    assert (await environment.step(f"QUERY: {first.upper()}.")).observation[0].content.endswith("in place 1.")


async def test_no_more_is_sold_than_the_prompt_says_and_the_same_again_costs_again():
    environment = await opened("grid", 5)
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
    environment = await opened("knights", 5)
    step = await environment.step(action)
    assert (step.reward.total, step.terminated, step.truncated) == (0.0, False, False)
    assert "SOLVE" in step.observation[0].content or "QUERY" in step.observation[0].content


async def test_a_wrong_solution_ends_the_episode():
    environment = await opened("ordering", 5)
    names = words(environment)
    step = await environment.step(f"SOLVE: {', '.join(reversed(names))}")
    assert (step.reward.total, step.terminated) == (0.0, True)
    assert (await opened("ordering", 5)).oracle() == environment.oracle()


@pytest.mark.parametrize(
    "form", ["{}", "{}.", "[{}]", "**{}**", "{}\nbecause they must"], ids=["bare", "point", "list", "bold", "reason"]
)
async def test_a_solution_may_be_dressed(form):
    for family in FAMILIES:
        environment = await opened(family)
        solution = environment.oracle().removeprefix("SOLVE: ")
        assert (await environment.step(f"SOLVE: {form.format(solution)}")).reward.success == 1.0


@pytest.mark.parametrize("joint", [" ", ", ", "; ", " > ", " -> ", " | ", ", and "])
async def test_an_order_may_be_written_in_many_ways(joint):
    environment = await opened("ordering")
    assert (await environment.step(f"SOLVE: {joint.join(words(environment)).upper()}")).reward.success == 1.0


async def test_places_may_be_numbered_but_not_wrongly():
    environment = await opened("grid", 5)
    groups = environment.oracle().removeprefix("SOLVE: ").split(", ")
    turned = [" ".join(reversed(group.split())) for group in groups]
    right = ", ".join(f"{place}. {group}" for place, group in enumerate(turned, start=1))
    wrong = ", ".join(f"{place}. {group}" for place, group in enumerate(turned, start=2))
    assert not (await environment.step(f"SOLVE: {wrong}")).terminated
    assert (await environment.step(f"SOLVE: {right}")).reward.success == 1.0


async def test_a_set_has_each_name_once_and_all_of_them():
    names = words(await opened("deduction", 5))
    assert len(names) > 1
    for attempt in (names[1:], [*names, names[0]]):
        environment = await opened("deduction", 5)
        assert (await environment.step(f"SOLVE: {', '.join(attempt)}")).reward.success == 0.0
    environment = await opened("deduction", 5)
    assert (await environment.step(f"SOLVE: {' and '.join(reversed(names))}")).reward.success == 1.0


async def test_lookalike_letters_are_other_letters():
    environment = await opened("ordering", 5)
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
    environment = await opened("reasoning_gym", 2, 7, dataset=dataset)
    fact = await environment.step("QUERY: 1")
    assert fact.observation[0].content == f"Entry 1 is {words(environment)[0]}."
    step = await environment.step(environment.oracle())
    assert (step.reward.total, step.reward.success) == (1.0, 0.75)
    assert environment.random_action(Random(0)).startswith("SOLVE: ")


async def test_a_template_with_an_unknown_data_set_names_the_known():
    with pytest.raises(ConfigError, match="mini_sudoku"):
        await opened("reasoning_gym", dataset="mini_sudok")
