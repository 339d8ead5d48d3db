"""Real clients, unmodified, each in a process of `make clients`: a conversation with a tool, whole and streamed."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loomrl.serving.recorder import MemoryRecorder
from tests.needs import CLIENTS, needs
from tests.serving.local_gateway import LocalGateway
from tests.serving.scripted import Adder

pytestmark = [pytest.mark.system, needs("the clients")]
SCRIPTS = Path(__file__).parent / "clients"
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
    "PYTHONWARNINGS": "ignore",
}
"""Nothing is fetched, and nothing is told to anybody."""
ANSWERS = ["The sum is 5.", "The sum is 30."]


@pytest.fixture
def policy() -> Adder:
    return Adder()


@pytest.fixture
async def endpoint_url(policy: Adder) -> AsyncIterator[str]:
    """A gateway with one endpoint, `sum`."""
    async with LocalGateway({"sum": policy}, MemoryRecorder()) as gateway:
        yield gateway.url


async def told(script: str, url: str) -> dict[str, Any]:
    """The last line that a client's script prints."""
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()} | QUIET
    client = await asyncio.create_subprocess_exec(
        CLIENTS, SCRIPTS / script, url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    out, log = await client.communicate()
    assert client.returncode == 0, log.decode()[-6000:]
    printed: dict[str, Any] = json.loads(out.splitlines()[-1])
    return printed


def continued(policy: Adder) -> list[bool]:
    """For each call of a conversation: whether the recorder knew its beginning, so that its ids were continued."""
    return [bool(asked.known_T.size) for asked in policy.asked if asked.tools]


@pytest.mark.parametrize(
    ("script", "conversations", "refused"),
    [
        ("openai_chat.py", 2, "frequency_penalty"),
        ("openai_responses.py", 2, "previous_response_id"),
        ("anthropic_messages.py", 2, "thinking.type"),
        pytest.param("litellm_completion.py", 4, None, marks=pytest.mark.slow),
        pytest.param("openai_agents.py", 4, None, marks=pytest.mark.slow),
        pytest.param("langgraph_agent.py", 6, None, marks=pytest.mark.slow),
        pytest.param("pydantic_ai_agent.py", 6, None, marks=pytest.mark.slow),
    ],
)
async def test_client_holds_conversations_with_a_tool(
    script: str, conversations: int, refused: str | None, policy: Adder, endpoint_url: str
) -> None:
    printed = await told(script, endpoint_url)
    assert printed["answers"] == ANSWERS * conversations
    assert printed.get("refused") == refused
    assert continued(policy) == [False, True, True, True] * conversations


@pytest.mark.slow
async def test_agent_that_repeats_calls_as_text_holds_conversations_with_a_tool(
    policy: Adder, endpoint_url: str
) -> None:
    printed = await told("smolagents_agent.py", endpoint_url)
    assert printed["answers"] == ANSWERS * 2
    assert len(policy.asked) == 8
