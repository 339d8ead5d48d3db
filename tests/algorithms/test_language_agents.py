"""Agents in rollouts: their demonstrations are what a policy sees, and their attempts are trajectories like others."""

import asyncio
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loomrl.algorithms.language.build import build_tokenizer
from loomrl.algorithms.language.corpus import conversations, demonstrations, play_agents, whole
from loomrl.config import WarmStart
from loomrl.errors import EpisodeError
from loomrl.gym.adapters.harness import Harness
from loomrl.inference.chat import ChatTemplate
from loomrl.serving.call import ChatMessage, ToolSpec
from loomrl.serving.wording import to_messages
from loomrl.types import Message

pytestmark = [pytest.mark.system, pytest.mark.skipif(sys.platform != "linux", reason="agents need Linux")]
MARKET = "loomrl.experiments.agents.market"
SETTINGS: dict[str, Any] = {
    "agent": {"python": "loomrl.experiments.agents.shop"},
    "tasks": {
        "total": {"generate": f"{MARKET}:total", "oracle": f"{MARKET}:oracle", "guess": f"{MARKET}:guess"},
    },
}


def draws(count: int) -> list[tuple[Harness, Any]]:
    harness = Harness(SETTINGS)
    return [(harness, harness.task("total", 1, seed)) for seed in range(count)]


def test_a_demonstration_is_the_conversation_of_the_agent_with_its_oracle() -> None:
    (said,) = asyncio.run(play_agents(draws(1), wrong=0.0, seed=0))[0]
    assert [message.role for message in said] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert '"name": "price"' in said[0].content, "the tools are told"
    row = draws(1)[0][0].row(draws(1)[0][1])
    assert [said[3].content, said[5].content] == [str(price) for price in row.task["prices"].values()]
    assert said[-1].content.endswith(f"<answer>{row.answer}</answer>")


def test_demonstrations_are_tokenised_as_the_gateway_renders_conversations() -> None:
    settings = WarmStart(tasks=3)
    told = list(islice(conversations(draws(3), settings, seed=0), 3))
    tokenizer = build_tokenizer([message.content for said in told for message in said], vocabulary=400)
    chat = ChatTemplate(tokenizer)
    for said, shown in zip(told, demonstrations(draws(3), settings, tokenizer, seed=0), strict=False):
        ids: list[int] = []
        heard = 0
        for index, message in enumerate(said):
            if message.role != "assistant":
                continue
            new = said[heard:index]
            prompt = chat.following(new).ids[1:] if ids else chat.opening(new).ids
            ids += [*prompt.tolist(), *chat.encode(message.content).tolist()]
            heard = index + 1
        assert shown.ids == ids
        assert np.sum(shown.mask) == sum(len(chat.encode(m.content)) for m in said if m.role == "assistant")


def test_guesses_take_the_place_of_the_oracle_and_equal_seeds_give_equal_demonstrations() -> None:
    guessed = asyncio.run(play_agents(draws(2), wrong=1.0, seed=0))
    assert all(len(said) == 3 and said[-1].content.startswith("<answer>") for (said,) in guessed)
    assert asyncio.run(play_agents(draws(2), wrong=1.0, seed=0)) == guessed
    assert asyncio.run(play_agents(draws(2), wrong=1.0, seed=1)) != guessed


FRAGILE = """
import json, os, sys, urllib.request
task = json.loads(os.environ["LOOM_TASK"])
body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "say"}]}).encode()
key = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, key))
sys.exit(3 if task["number"] in task["fails"] else 0)
"""


def say_number(task: Any, conversation: Any) -> str:
    return str(task["number"])


@pytest.mark.parametrize(("fails", "left"), [((), 10), ((4,), 9), ((4, 5), 0), (tuple(range(10)), 0)])
def test_a_failed_demonstration_is_left_out_up_to_a_share(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fails: tuple[int, ...], left: int
) -> None:
    (tmp_path / "agent.py").write_text(FRAGILE)
    rows = [{"task": {"number": number, "fails": fails}, "answer": number} for number in range(10)]
    tasks = {"say": {"items": rows, "held_out": 0.0, "oracle": f"{__name__}:say_number"}}
    harness = Harness({"agent": {"python": str(tmp_path / "agent.py")}, "tasks": tasks})
    drawn = [(harness, harness.task("say", 1, seed)) for seed in range(10)]
    if left:
        told = list(conversations(drawn, WarmStart(failed=0.1), seed=0))
        assert len(told) == left
        lines = [record.getMessage() for record in caplog.records if "demonstrations failed" in record.getMessage()]
        assert [line[:39] for line in lines] == (["1 of 10 demonstrations failed, the last"] if fails else [])
        assert not any("\n" in line for line in lines)
        return
    with pytest.raises(EpisodeError, match=f"{len(fails)} of 10 demonstrations failed, the last: say: .*status 3"):
        list(conversations(drawn, WarmStart(failed=0.1), seed=0))


def test_whole_conversations_are_those_that_none_continues() -> None:
    one, two, three = (Message("user", text) for text in "abc")
    assert whole([(one,), (one, two), (three,), (one, two)]) == ((one, two), (three,))


def test_the_words_of_tools_are_one_for_demonstrations_and_policies() -> None:
    tool = ToolSpec(name="price", description="A price.", parameters={"type": "object"})
    said = [ChatMessage(role="system", text="Rules."), ChatMessage(role="user", text="?")]
    assert to_messages(said, [tool], tool_role=True)[0].content.startswith("Rules.\n\n# Tools")
