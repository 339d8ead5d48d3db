"""The Code environment: what ends an episode, what is paid, and what is said."""

from random import Random

import pytest

from loomrl.envs.code import CodeEnvironment
from loomrl.envs.code.admission import FEWEST, MOST
from loomrl.envs.code.review import make_review
from loomrl.envs.code.task import FAMILIES, make_challenge
from loomrl.errors import ConfigError
from tests.envs.play_support import opener
from tests.needs import needs

SANDBOX = [
    pytest.mark.system,
    needs("a sandbox"),
]


open_task = opener(CodeEnvironment, "implement", 3, 1)


def block(code):
    return f"```python\n{code}\n```"


class TestInTheSandbox:
    pytestmark = SANDBOX

    @pytest.mark.parametrize("family", list(FAMILIES))
    @pytest.mark.parametrize("level", [1, 6, 10])
    async def test_the_reference_earns_everything(self, family, level):
        environment = await open_task(family, level)
        step = await environment.step(environment.oracle())
        assert step.reward.parts == {"correctness": 1.0, "efficiency": 0.1, "readability": 0.1}
        assert (step.reward.success, step.terminated) == (1.0, True)

    async def test_the_broken_function_is_no_correction(self):
        for seed in range(4):
            environment = await open_task("debug", 4, seed)
            prompt = make_challenge("debug", 4, seed).prompt
            step = await environment.step(block(prompt.split("```python\n")[1].split("\n```")[0]))
            assert (step.reward.total, step.terminated) == (0.0, True)

    async def test_ugly_and_wasteful_code_that_is_right_is_success_and_little_more(self):
        environment = await open_task("implement", 1, 0)
        source = make_challenge("implement", 1, 0).problem.source.replace("    return", "    x = 1; y = 2; return")
        wasteful = source.replace("x = 1;", "x = sum(1 for item in range(500));")
        step = await environment.step(block(wasteful + "\nimport math; import string"))
        assert step.reward.success == 1.0
        assert step.reward.parts["efficiency"] == 0.0
        assert step.reward.parts["readability"] < 0.05

    async def test_what_passes_hidden_tests_and_is_wrong_for_a_fresh_one_is_wrong(self):
        challenge = make_challenge("implement", 1, 0)
        known = {test.arguments: test.expected for test in (*challenge.examples, *challenge.hidden)}
        code = f"def {challenge.problem.name}(*args):\n    return {known!r}.get(args, 0)"
        steps = [await (await open_task("implement", 1, 0)).step(block(code)) for _ in range(2)]
        assert [step.reward.total for step in steps] == [0.0, 0.0]
        assert "wrong for f(" in steps[0].info["verdict"]
        assert steps[0].info == steps[1].info, "the same submission is judged by the same tests"

    async def test_code_whose_lines_cannot_be_counted_passes_but_earns_no_efficiency(self):
        environment = await open_task("implement", 1, 0)
        source = make_challenge("implement", 1, 0).problem.source
        step = await environment.step(block(f"import sys\n\n\n{source}\n\n\nsys.settrace(None)"))
        assert step.reward.parts == {"correctness": 1.0, "efficiency": 0.0, "readability": 0.1}

    async def test_code_that_cannot_be_counted_is_not_run_where_speed_is_asked_for(self):
        environment = await open_task("optimise", 1, 0)
        first = await environment.step(block(f"import sys\n{make_challenge('optimise', 1, 0).problem.source}"))
        assert "'sys' is not allowed" in first.observation[0].content
        assert not first.terminated
        assert (await environment.step(environment.oracle())).reward.success == 1.0

    async def test_feedback_tells_of_examples_only_and_only_while_attempts_are_left(self):
        environment = await open_task("implement", 1, 0, feedback=True, max_steps=3)
        challenge = make_challenge("implement", 1, 0)
        first = await environment.step(block("def f(a, b):\n    return 'wrong'"))
        told = first.observation[0].content
        assert "it returned 'wrong'" in told
        assert not any(f"{test.arguments[0]}, {test.arguments[1]}" in told for test in challenge.hidden)
        second = await environment.step(block("def f(a, b):\n    raise ValueError('oops')"))
        assert "ValueError: oops" in second.observation[0].content
        last = await environment.step(block("def f(a, b):\n    return 'wrong'"))
        assert (last.observation, last.terminated, last.reward.total) == ((), True, 0.0)

    async def test_a_second_attempt_after_feedback_can_succeed(self):
        environment = await open_task("implement", 1, 0, feedback=True)
        await environment.step(block("def f(a, b):\n    return None"))
        assert (await environment.step(environment.oracle())).reward.success == 1.0

    async def test_an_example_learnt_by_heart_is_not_enough(self):
        environment = await open_task("implement", 2, 0, feedback=True)
        challenge = make_challenge("implement", 2, 0)
        table = {test.arguments: test.expected for test in challenge.examples}
        code = f"def {challenge.problem.name}(*args):\n    return {table!r}[args]"
        step = await environment.step(block(code))
        assert (step.reward.total, step.terminated, step.observation) == (0.0, True, ())


@pytest.fixture
def no_sandbox(monkeypatch):
    """One could be had, and it is an error to open it."""

    def refuse():
        raise AssertionError("a sandbox was opened")

    monkeypatch.setattr("loomrl.envs.code.environment.which", lambda program: "/usr/bin/env")
    monkeypatch.setattr("loomrl.envs.code.environment.open_sandbox", refuse)


@pytest.mark.usefixtures("no_sandbox")
async def test_without_code_there_is_a_reminder_until_the_attempts_are_used_up():
    for family in CodeEnvironment.families:
        environment = CodeEnvironment({"max_steps": 2})
        await environment.reset(environment.task(family, 1, 0))
        steps = [await environment.step("I do not know.") for _ in range(2)]
        assert [(step.terminated, step.truncated) for step in steps] == [(False, False), (False, True)]
        assert all(step.reward.total == 0 and step.observation for step in steps)


async def test_the_wrong_line_is_found_or_not():
    for level in (1, 3, 10):
        review = make_review(level, 0)
        for line in review.candidates:
            environment = await open_task("review", level, 0)
            step = await environment.step(f"Let me see. <answer>{line}</answer>")
            assert step.reward.success == float(line == review.line)
            assert step.terminated


async def test_naming_many_lines_finds_none():
    environment = await open_task("review", 5, 2)
    for hack in environment.hacks():
        await environment.reset(environment.task("review", 5, 2))
        assert (await environment.step(hack)).reward.total == 0 or hack.endswith(
            f"<answer>{max(make_review(5, 2).candidates)}</answer>"
        )


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("level", [1, 5, 10])
def test_every_task_has_hidden_tests_that_its_prompt_does_not_show(family, level):
    challenge = make_challenge(family, level, 7)
    assert FEWEST <= len(challenge.hidden) <= MOST
    assert len(challenge.examples) == 2
    assert challenge.problem.source not in challenge.prompt
    shown = {repr(test.arguments) for test in challenge.examples}
    assert not shown & {repr(test.arguments) for test in challenge.hidden}


async def test_without_a_sandbox_nothing_runs_and_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    environment = CodeEnvironment()
    with pytest.raises(ConfigError, match="apt-get install bubblewrap"):
        await environment.reset(environment.task("implement", 1, 0))


@pytest.mark.usefixtures("no_sandbox")
async def test_random_actions_are_functions_with_the_right_name():
    environment = CodeEnvironment()
    await environment.reset(environment.task("implement", 4, 0))
    actions = {environment.random_action(Random(seed)) for seed in range(15)}
    name = make_challenge("implement", 4, 0).problem.name
    assert len(actions) > 5
    assert all(f"def {name}(" in action for action in actions)
