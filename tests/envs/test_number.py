"""Numbers: the whole reply is the answer, and nothing is chosen from it."""

import pytest

from loomrl.envs.number import NumberEnvironment


@pytest.mark.parametrize("family", ["largest", "sorted"])
async def test_an_answer_is_right_alone_and_wrong_among_others(family: str) -> None:
    environment = NumberEnvironment()
    asked = await environment.reset(environment.task(family, 1, 7))
    question = asked[-1].text
    right = environment.oracle()
    others = [number for number in question.rpartition(":")[2].strip(" ?.").replace(" or", ",").split(", ") if number]
    for said in (right, f" {right}\n", f"**{right}**", f"The answer is {right}."):
        assert (await environment.step(said)).reward.success == 1, said
    wrong = [question, *others, f"{others[0]} or {right}", f"{right} {right}", f"not {right}", f"1{right}", ""]
    for said in {*wrong} - {right}:
        assert (await environment.step(said)).reward.success == 0, said
