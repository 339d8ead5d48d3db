"""The MetaReasoning environment: thinking is free, twins are answered both, confidence costs where it is wrong."""

import pytest

from loomrl.envs.meta import MetaReasoningEnvironment

FAMILIES = MetaReasoningEnvironment.families


async def opened(family="verification", level=5, seed=0, **settings) -> MetaReasoningEnvironment:
    environment = MetaReasoningEnvironment(settings)
    await environment.reset(environment.task(family, level, seed))
    return environment


async def finished(environment):
    """The last step of an episode played by the oracle."""
    while not (step := await environment.step(environment.oracle())).terminated:
        pass
    return step


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_perfect_answer_earns_one_with_thoughts_or_without(family):
    for thoughts in (0, 3):
        environment = await opened(family)
        earned = [(await environment.step("THINK: step by step.")).reward.total for _ in range(thoughts)]
        step = await finished(environment)
        assert sum(earned) == 0.0
        assert step.reward.total == pytest.approx(1.0, abs=1e-6)
        assert step.reward.success == 1.0


@pytest.mark.parametrize("family", FAMILIES)
async def test_thinking_alone_earns_nothing_and_comes_to_an_end(family):
    environment = await opened(family)
    steps = [await environment.step(f"THINK: {environment.oracle().replace(':', ' ')}") for _ in range(6)]
    assert [step.observation[0].content for step in steps] == ["Go on."] * 3 + ["Now ANSWER."] * 3
    assert all(step.reward.total == step.reward.success == 0.0 and not step.terminated for step in steps)


@pytest.mark.parametrize("wrong", [(0,), (1,), (0, 1)])
async def test_twins_must_both_be_right(wrong):
    environment = await opened("bias", 3)
    first, second = [
        await environment.step("ANSWER: 987654321" if number in wrong else environment.oracle()) for number in range(2)
    ]
    assert first.observation[0].content.startswith("Second question.")
    assert (second.reward.total, second.reward.success, second.terminated) == (0.0, 0.0, True)


async def test_the_first_twin_earns_nothing_yet():
    environment = await opened("bias", 3)
    step = await environment.step(environment.oracle())
    assert (step.reward.total, step.reward.success, step.terminated) == (0.0, 0.0, False)


async def test_confidence_costs_brier_whether_the_answer_is_right_or_wrong():
    environment = await opened("calibration", 1, 0)
    value, _, _ = environment.oracle().removeprefix("ANSWER: ").partition(",")
    for confidence, total in ((100, 1.0), (50, 1 - 0.05), (0, 0.8)):
        await environment.reset(environment.task("calibration", 1, 0))
        assert (await environment.step(f"ANSWER: {value}, {confidence}%")).reward.total == pytest.approx(total)
    for confidence, total in ((100, -0.2), (50, -0.05), (0, 0.0)):
        await environment.reset(environment.task("calibration", 1, 0))
        step = await environment.step(f"ANSWER: {int(value) + 1}, {confidence}%")
        assert (step.reward.total, step.reward.success) == (pytest.approx(total), 0.0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "action", ["", "It is 7.", "ANSWER:", "ANSWER: I do not know", "So I answer: 7", "ANSWER: 1e3", "ANSWER: ٧"]
)
async def test_what_has_not_the_form_is_told_the_form_and_costs_nothing(family, action):
    environment = await opened(family)
    step = await environment.step(action)
    assert "ANSWER:" in step.observation[0].content
    assert (step.reward.total, step.terminated) == (0.0, False)
    assert (await finished(environment)).reward.success == 1.0


async def test_a_thought_that_mentions_an_answer_is_no_answer_but_a_command_after_it_is():
    environment = await opened()
    assert not (await environment.step(f"THINK: perhaps {environment.oracle()}?")).terminated
    assert (await environment.step(f"THINK: perhaps\n{environment.oracle()}")).reward.success == 1.0
