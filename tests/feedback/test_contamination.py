"""What is too much like the gate's prompts is not trained on; the wording of a kind of task is no such likeness."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from loomrl.config import DataSelection
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.feedback.contamination import SuitePrompts, suite_prompts
from loomrl.feedback.dataset import freeze
from loomrl.gym.held_out import HELD_OUT_SEEDS
from loomrl.gym.registry import make
from loomrl.store import open_store
from loomrl.store.datasets import read_rows
from tests.feedback.served_support import store
from tests.feedback.test_dataset import session

FRAME = "Please compute the sum of the following two numbers and write nothing but the result : "


def test_equal_text_is_found_whatever_its_case_and_spaces() -> None:
    prompts = SuitePrompts(["What  is 2 + 2?"], ngram=13)
    assert prompts.holds(" what is\n2 + 2? ")
    assert not prompts.holds("What is 2 + 3?")


def test_words_in_a_row_that_one_prompt_has_alone_are_found_and_the_wording_of_all_is_not() -> None:
    prompts = SuitePrompts([f"{FRAME}{n} and {n + 1000}" for n in range(50)], ngram=13)
    assert prompts.holds(f"Hello! {FRAME.upper()}7 and 1007. Thanks")
    assert not prompts.holds(f"Hello! {FRAME}70 and 9000")
    assert not prompts.holds("7 and 1007")


@pytest.mark.parametrize("name", ["language_tiny", "language"])
def test_fresh_tasks_of_the_suites_kinds_are_kept_and_its_own_in_other_words_are_not(name: str, tmp_path: Path) -> None:
    suite = resolve_suite(name)
    environment = make("Math", suite.benchmarks[0].environment.settings)
    families, level = suite.benchmarks[0].environment.families, suite.benchmarks[0].levels[0]

    def ask(seeds: Iterable[int]) -> list[str]:
        tasks = [environment.task(family, level, seed) for family in families for seed in seeds]
        return [asyncio.run(environment.reset(task))[-1].content for task in tasks]

    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        prompts = suite_prompts(suite, db, ngram=13)
    fresh = ask(range(60))
    assert sum(map(prompts.holds, fresh)) <= 0.05 * len(fresh)
    own = [text for text in ask(range(HELD_OUT_SEEDS.start, HELD_OUT_SEEDS.start + 200)) if prompts.holds(text)]
    assert len(own) >= 50
    assert all(prompts.holds(f"Hello there! Please help me. {text} I thank you in advance.") for text in own)


def test_selection_with_a_suite_leaves_its_prompts_out(tmp_path: Path) -> None:
    suite = resolve_suite("language_tiny")
    environment = make("Math", suite.benchmarks[0].environment.settings)
    asked = asyncio.run(environment.reset(environment.task("calculus.integral", 2, HELD_OUT_SEEDS.start + 1)))
    store(tmp_path, "agent-7", [session("gate", asked[-1].content), session("own", "How do I boil an egg?")])
    selection = DataSelection.parse({"agents": ["7"], "suite": "language_tiny", "holdout": 0.0})
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        made = freeze(db, f"sqlite:///{tmp_path}/loom.db", selection, suite=suite, now=1.0)
        assert [row.trajectory for row in read_rows(db, made.id)] == ["own"]
    assert made.content["counts"] == {"suite": 1}
    assert made.content["suite"] == {"id": suite.id, "sha256": suite.sha256}
