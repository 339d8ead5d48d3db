"""The Math environment: what ends an episode, what is paid, and what is not."""

import pytest

from loomrl.envs.math import MathEnvironment
from loomrl.errors import ConfigError
from tests.envs.play_support import make_problem, opener

pytestmark = pytest.mark.system

EXAMPLES = [("arithmetic.sum", 5), ("algebra.quadratic", 8), ("calculus.derivative", 10), ("statistics.conditional", 6)]


open_task = opener(MathEnvironment, "arithmetic.sum", 5)


@pytest.mark.parametrize(("family", "level"), EXAMPLES)
async def test_a_worked_solution_earns_everything(family, level):
    environment = await open_task(family, level)
    step = await environment.step(environment.oracle())
    assert step.reward.parts == {"correctness": 1.0, "logical_progression": pytest.approx(0.2), "format": 0.05}
    assert (step.reward.success, step.terminated, step.truncated) == (1.0, True, False)
    assert step.reward.total == pytest.approx(environment.reward_range[1])


async def test_a_right_answer_alone_is_success_and_no_more():
    environment = await open_task()
    answer = make_problem("arithmetic.sum", 5, 0).answer.text
    step = await environment.step(f"<answer>{answer}</answer>")
    assert (step.reward.total, step.reward.success) == (1.0, 1.0)


async def test_sound_steps_and_tidy_form_are_worth_nothing_with_a_wrong_answer():
    environment = await open_task()
    steps = environment.oracle().split("<answer>")[0]
    step = await environment.step(f"{steps}<answer>123456789</answer>")
    assert (step.reward.total, step.reward.success, step.terminated) == (0.0, 0.0, True)


async def test_a_missing_answer_gets_a_reminder_until_the_attempts_are_used_up():
    environment = await open_task(max_steps=3)
    steps = [await environment.step("It is 5.") for _ in range(3)]
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False), (False, False), (False, True)]
    assert "<answer>" in steps[0].observation[0].content
    assert all(step.reward.total == 0.0 for step in steps)


async def test_a_right_answer_after_a_reminder_counts_but_earns_no_format():
    environment = await open_task()
    await environment.step("I forgot the tags.")
    step = await environment.step(environment.oracle())
    assert step.reward.success == 1.0
    assert step.reward.parts["format"] == 0.0


async def test_a_function_that_we_do_not_compute_gets_a_second_opinion():
    async def success(answer):
        environment = await open_task("calculus.derivative", 6, 0)
        return (await environment.step(f"<answer>{answer}</answer>")).reward.success

    assert make_problem("calculus.derivative", 6, 0).answer.text == "4x*cos(-2x) + 4x^2*sin(-2x)"
    assert await success(r"\frac{4x}{\sec(2x)} - 4x^2 \sin 2x") == 1.0
    assert await success(r"\frac{4x}{\sec(2x)}") == 0.0


@pytest.mark.parametrize(
    "text",
    [
        r"\frac{d}{dx} f", r"\int f dx", r"\sum_{k=1}^{9} k", "f'(x)", r"D(x^2)", r"\cosh(9^{9^9})",
        r"\cosh(0) \cdot 3x^2", r"\sec(x) \cdot 2 \cdot 3", r"2(3 + \tanh(x)) - 2\tanh(x)", r"\sin(\arcsin(x))",
    ],
)  # fmt: skip
async def test_the_second_opinion_is_not_asked_to_solve_the_problem(text, monkeypatch):
    async def refuse(answer, attempt):
        raise AssertionError(f"asked about {attempt}")

    monkeypatch.setattr("loomrl.envs.math.environment.verify", refuse)
    environment = await open_task("calculus.derivative", 1, 0)
    assert (await environment.step(f"<answer>{text}</answer>")).reward.success == 0.0


async def test_the_question_says_how_to_answer():
    environment = MathEnvironment()
    (message,) = await environment.reset(environment.task("geometry.circle", 4, 1))
    assert message.role == "user"
    assert "<answer>" in message.content
    assert "pi" in message.content


def test_an_unknown_family_is_refused_with_the_nearest_known():
    with pytest.raises(ConfigError, match=r"algebra\.linear"):
        MathEnvironment().task("algebra.linaer", 1, 0)
