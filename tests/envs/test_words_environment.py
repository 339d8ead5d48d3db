"""The Language environment: what is asked follows from the task, what is paid, and what a judge may add."""

import asyncio
import sys

import pytest

from loomrl.envs.language import LanguageEnvironment
from loomrl.envs.language.question import chain, counting, lookup
from loomrl.errors import ConfigError
from loomrl.gym.generate import rng_of
from tests.envs.play_support import answer_queue, people

FAMILIES = LanguageEnvironment.families


async def open_task(family="qa.lookup", level=3, seed=0, **settings):
    environment = LanguageEnvironment(settings)
    (message,) = await environment.reset(environment.task(family, level, seed))
    return environment, message.content


async def sum_of(action, family="qa.lookup", level=3, seed=0):
    environment, _ = await open_task(family, level, seed)
    return (await environment.step(action)).reward


async def test_shaping_is_paid_with_full_success_alone():
    environment, _ = await open_task("summary", 5)
    tidy = environment.oracle()
    assert (await environment.step(tidy)).reward.total == pytest.approx(1.2)
    part = tidy.replace(tidy.split(". ")[-1], "</answer>")
    reward = await sum_of(part, "summary", 5)
    assert reward.total == reward.parts["correctness"] == reward.success < 1


async def test_a_question_without_its_answer_in_the_text_does_not_exist():
    environment = LanguageEnvironment()
    for family, make in (("qa.lookup", lookup), ("qa.chain", chain)):
        for seed in range(20):
            problem = make(6, rng_of(environment.task(family, 6, seed)))
            assert problem.answer in problem.prompt
            assert problem.answer in problem.guesses


def test_counting_agrees_with_the_text():
    environment = LanguageEnvironment()
    for seed in range(30):
        problem = counting(5, rng_of(environment.task("qa.counting", 5, seed)))
        text, _, asked = problem.prompt.rpartition(" What is newest counts. How many people live in ")
        newest = {}
        for sentence in text.split(". "):
            who, _, _, city, _, year = sentence.strip(".").split()
            newest[who] = max(newest.get(who, (0, "")), (int(year), city))
        assert sum(city == asked.strip("?") for _, city in newest.values()) == int(problem.answer)


async def test_without_babel_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel.dates", None)
    with pytest.raises(ConfigError, match=r"pip install 'babel"):
        await open_task("translation.date", 1)


@pytest.mark.parametrize(("choice", "worth"), [("incoherent", 0.0), ("coherent", 0.1)])
async def test_a_judge_says_how_coherent_a_right_answer_is(sqlite_url, choice, worth):
    environment, prompt = await open_task(**people(sqlite_url))
    step, asked = await asyncio.gather(environment.step(environment.oracle()), answer_queue(sqlite_url, choice))
    assert step.reward.parts["coherence"] == pytest.approx(worth)
    assert step.reward.success == 1
    assert step.info["verdict"] == choice
    assert prompt.startswith(asked.conversation[0].content)
    assert "<answer>" in asked.conversation[1].content


async def test_a_judge_is_not_asked_about_a_wrong_answer(sqlite_url):
    environment, _ = await open_task(**people(sqlite_url, timeout_s=0.2))
    assert (await environment.step("<answer>Nowhere</answer>")).reward.total == 0
