"""The gateway of attempts: a key each, the experiment's sampling, budgets, and versions that change meanwhile."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import numpy as np
import pytest

from loomrl.config import Sampling
from loomrl.gym.adapters.harness.session import Access, Budget
from loomrl.gym.episode import Attempt
from loomrl.serving.agents import AgentGateway, AgentSessions
from loomrl.serving.call import ChoiceClosed, Event, PromptOpened
from loomrl.serving.policy import Continuation
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.types import Task
from tests.serving.scripted import Speaker, tokens_drawn

ATTEMPT = Attempt(id="a", task=Task("Harness", "1.0.0", "words", 1, 0), group="a")


class Counting(Speaker):
    """Answers with one token, whose version is the number of the call; `refusals` come first."""

    about = replace(Speaker.about, number=0, context=100)

    def __init__(self, *refusals: Refusal) -> None:
        self.asked: list[Continuation] = []
        self.refusals = list(refusals)

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        self.asked.append(continuation)
        if self.refusals:
            raise self.refusals.pop(0)
        yield PromptOpened(ids_T=np.array([1, 2], np.int32))
        yield tokens_drawn([3], "x", versions=len(self.asked))
        yield ChoiceClosed(text="x", finish="stop")


async def say(access: Access, *words: str, key: str | None = None, **more: object) -> httpx.Response:
    messages = [{"role": ("user", "assistant")[index % 2], "content": word} for index, word in enumerate(words)]
    async with httpx.AsyncClient() as client:
        return await client.post(
            f"{access.openai_base_url}/chat/completions",
            json={"model": "gpt-anything", "messages": messages, **more},
            headers={"authorization": f"Bearer {key or access.api_key}"},
        )


def sessions(policy: Counting, sampling: Sampling | None = None) -> AgentSessions:
    return AgentSessions(AgentGateway(), lambda attempt: policy, sampling=sampling, rng=random.Random(0))


async def test_a_conversation_goes_on_in_its_tokens_and_each_says_which_version_drew_it() -> None:
    opened = sessions(policy := Counting())
    access = await opened.open(ATTEMPT, Budget())
    assert (await say(access, "a")).status_code == 200
    assert (await say(access, "a", "x", "b")).status_code == 200
    spoken = await opened.finish(access)
    assert policy.asked[1].known_T.tolist() == [1, 2, 3]
    assert [turn.tokens.versions_T.tolist() for turn in spoken.turns if turn.tokens] == [[-1, -1, 1], [-1, -1, 2]]


async def test_the_experiments_sampling_holds_whatever_an_agent_asks_for() -> None:
    opened = sessions(policy := Counting(), Sampling(temperature=1.0, max_tokens=7))
    access = await opened.open(ATTEMPT, Budget())
    await say(access, "a", temperature=0, top_p=0.1, top_k=3, max_tokens=500, seed=1)
    await say(access, "b", max_tokens=3)
    await opened.finish(access)
    drawn = [asked.drawing for asked in policy.asked]
    assert [(each.temperature, each.top_p, each.max_tokens) for each in drawn] == [(1.0, 1.0, 7), (1.0, 1.0, 3)]
    assert drawn[0].seed != drawn[1].seed
    assert drawn[0].odds is None


async def test_a_key_opens_its_own_attempt_only_and_none_after_its_end() -> None:
    opened = sessions(Counting())
    mine, other = await opened.open(ATTEMPT, Budget()), await opened.open(ATTEMPT, Budget())
    assert (await say(mine, "a", key="sk-guessed")).status_code == 401
    assert (await say(mine, "a", key=other.api_key)).status_code == 200, "it speaks in the session of its key"
    assert not (await opened.finish(mine)).turns
    assert (await say(other, "b")).status_code == 200
    assert len((await opened.finish(other)).turns) == 1
    with pytest.raises(httpx.ConnectError):
        await say(other, "c")


async def test_an_agent_may_speak_anthropics_dialect() -> None:
    opened = sessions(Counting())
    access = await opened.open(ATTEMPT, Budget())
    asked = {"model": "claude-anything", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}
    async with httpx.AsyncClient() as client:
        said = await client.post(
            f"{access.anthropic_base_url}/v1/messages", json=asked, headers={"x-api-key": access.api_key}
        )
    assert said.json()["content"][0]["text"] == "x"
    assert len((await opened.finish(access)).turns) == 1


@pytest.mark.parametrize(("again", "boundary"), [(False, "policy"), (True, None)])
async def test_a_policys_failure_counts_unless_it_answered_later(again: bool, boundary: str | None) -> None:
    opened = sessions(Counting(Refusal(RefusalCause.UNAVAILABLE, "the engine is gone")))
    access = await opened.open(ATTEMPT, Budget())
    assert (await say(access, "a")).status_code == 503
    if again:
        assert (await say(access, "a")).status_code == 200
    failure = (await opened.finish(access)).failure
    assert (failure.boundary if failure else None) == boundary


async def test_a_conversation_beyond_the_context_is_an_overrun() -> None:
    opened = sessions(Counting(Refusal(RefusalCause.TOO_LONG, "too long")))
    access = await opened.open(ATTEMPT, Budget())
    assert (await say(access, "a")).status_code == 400
    assert (await opened.finish(access)).overrun == "context"


async def test_parallel_calls_never_exceed_the_budget() -> None:
    opened = sessions(policy := Counting())
    access = await opened.open(ATTEMPT, Budget(calls=3))
    codes = sorted(response.status_code for response in await asyncio.gather(*(say(access, str(n)) for n in range(8))))
    assert codes == [200] * 3 + [429] * 5
    assert len(policy.asked) == 3
    assert (await opened.finish(access)).overrun == "calls"


def test_a_gateway_serves_one_event_loop_after_the_other() -> None:
    gateway = AgentGateway()

    async def once() -> int:
        opened = AgentSessions(gateway, lambda attempt: Counting())
        access = await opened.open(ATTEMPT, Budget())
        await say(access, "a")
        return len((await opened.finish(access)).turns)

    assert [asyncio.run(once()) for _ in range(2)] == [1, 1]
