"""Real clients, unmodified, each in a process of `make clients`: a conversation with a tool, whole and streamed."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from loomrl.config import Sampling
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.policy import Voice
from loomrl.inference.torch.engine import TorchEngine
from loomrl.serving.call import ToolCall
from loomrl.serving.policy import Continuation
from loomrl.serving.recorder import MemoryRecorder
from loomrl.serving.speech import LanguageServedPolicy
from tests.inference.sample_models import tiny_forms, tiny_model, tiny_tokenizer
from tests.needs import CLIENTS, FRAMEWORKS, needs
from tests.serving.local_gateway import LocalGateway
from tests.serving.scripted import Adder

pytestmark = [pytest.mark.system, needs("the clients")]
SCRIPTS = Path(__file__).parent / "clients"
QUIET = {
    "AG2_TELEMETRY_DISABLED": "true",
    "ANONYMIZED_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "HAYSTACK_TELEMETRY_ENABLED": "false",
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MSWEA_SILENT_STARTUP": "1",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
    "PYTHONWARNINGS": "ignore",
}
"""Nothing is fetched, and nothing is told to anybody."""
ANSWERS = ["The sum is 5.", "The sum is 30."]
CONTEXT = 8192


class Agent(Adder):
    """Speaks to agents without tools of an API, too, in the words that they want."""

    def _said(self, continuation: Continuation) -> tuple[str, tuple[ToolCall, ...]]:
        text = continuation.messages[-1].text if continuation.messages else ""
        if dictated := re.search(r"<answer>\n(.*)\n</answer>", text, re.DOTALL):
            return dictated[1], ()
        if "[[ ## next_tool_name ## ]]" in text or "[[ ## answer ## ]]" in text:
            return _dspy(text), ()
        if "bash" in {tool.name for tool in continuation.tools}:
            return "Let me see.", (self._call("bash", {"command": _command(continuation)}),)
        return super()._said(continuation)


def _command(continuation: Continuation) -> str:
    """A shell's way to add."""
    last = continuation.messages[-1]
    if last.role == "tool":
        told = re.findall(r"\d+", last.text)[-1]
        return f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo The sum is {told}."
    asked = re.findall(r"\d+ \+ \d+", last.text)[-1]
    return f"echo $(({asked}))"


def _dspy(text: str) -> str:
    """An answer in fields: a step of an agent, or what it found."""
    a, b = map(int, re.findall(r"(\d+) \+ (\d+)", text)[-1])
    told = re.search(r"\[\[ ## observation_0 ## \]\]\n(\d+)", text)
    if "[[ ## next_tool_name ## ]]" not in text:
        fields = {"reasoning": "It was added.", "answer": f"The sum is {told[1] if told else '?'}."}
    elif told:
        fields = {"next_thought": "That is all.", "next_tool_name": "finish", "next_tool_args": "{}"}
    else:
        arguments = json.dumps({"a": a, "b": b})
        fields = {"next_thought": "Let me see.", "next_tool_name": "add", "next_tool_args": arguments}
    return "".join(f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in fields.items()) + "[[ ## completed ## ]]"


def speaker() -> LanguageServedPolicy:
    """A random model: only a form that holds makes its answers make sense."""
    engine = TorchEngine(tiny_model(positions=CONTEXT), slots=2, context=CONTEXT, forms=tiny_forms())
    voice = Voice(engine, ChatTemplate(tiny_tokenizer()), Sampling(temperature=0, max_tokens=2000), CONTEXT)
    return LanguageServedPolicy(voice, version="tiny/1")


@pytest.fixture
def policy() -> Agent:
    return Agent()


@pytest.fixture
async def endpoint_url(policy: Agent) -> AsyncIterator[str]:
    """A gateway with the endpoints `sum` and `tiny`."""
    tiny = speaker()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(tiny.close)
        gateway = await stack.enter_async_context(LocalGateway({"sum": policy, "tiny": tiny}, MemoryRecorder()))
        yield gateway.url


async def told(script: str, url: str, *, python: Path = CLIENTS) -> dict[str, Any]:
    """The last line that a client's script prints. Scripts of node find their packages where node stands."""
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()} | QUIET
    node = CLIENTS.parent / "node"
    program = [python, SCRIPTS / script] if script.endswith(".py") else [node, "--input-type=module", "-"]
    with (SCRIPTS / script).open("rb") as text:
        client = await asyncio.create_subprocess_exec(
            *program,
            url,
            stdin=text,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=CLIENTS.parent.parent,
        )
        out, log = await client.communicate()
    assert client.returncode == 0, log.decode()[-6000:]
    printed: dict[str, Any] = json.loads(out.splitlines()[-1])
    return printed


def continued(policy: Adder) -> list[bool]:
    """For each call of a conversation: whether the recorder knew its beginning, so that its ids were continued."""
    return [bool(asked.known_T.size) for asked in policy.asked if asked.tools]


def check_verdicts(verdicts: list[Any], count: int) -> None:
    """As many as were asked for, each in the form that was asked for."""
    assert len(verdicts) == count
    for verdict in verdicts:
        assert verdict.keys() == {"colour", "sure"}
        assert verdict["colour"] in ("red", "green", "blue")
        assert isinstance(verdict["sure"], bool)


@pytest.mark.parametrize(
    ("script", "conversations", "refused"),
    [
        ("openai_chat.py", 2, "modalities"),
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


IN_FRAMEWORKS = ("llama_index_agent.py", "semantic_kernel_agent.py", "crewai_crew.py", "aider_coder.py")
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("script", "conversations", "verdicts"),
    [
        ("openai_node.mjs", 4, 4),
        ("anthropic_node.mjs", 2, 2),
        ("ai_sdk.mjs", 8, 9),
        ("openai_agents_node.mjs", 4, 4),
        ("langgraph_node.mjs", 4, 4),
        ("instructor_extract.py", 0, 4),
        pytest.param("llm_conversation.py", 4, 4, marks=SLOW),
        pytest.param("dspy_program.py", 1, 0, marks=SLOW),
        pytest.param("haystack_agent.py", 4, 2, marks=SLOW),
        pytest.param("ag2_agent.py", 6, 6, marks=SLOW),
        pytest.param("google_adk_agent.py", 2, 2, marks=SLOW),
        pytest.param("mini_swe_agent.py", 1, 0, marks=SLOW),
        pytest.param("llama_index_agent.py", 2, 1, marks=[SLOW, needs("the frameworks")]),
        pytest.param("semantic_kernel_agent.py", 2, 1, marks=[SLOW, needs("the frameworks")]),
        pytest.param("crewai_crew.py", 1, 1, marks=[SLOW, needs("the frameworks")]),
        pytest.param("aider_coder.py", 1, 0, marks=[SLOW, needs("the frameworks")]),
    ],
)
async def test_client_with_its_own_defaults_calls_a_tool_and_gets_the_form_that_it_asks_for(
    script: str, conversations: int, verdicts: int, policy: Agent, endpoint_url: str
) -> None:
    printed = await told(script, endpoint_url, python=FRAMEWORKS if script in IN_FRAMEWORKS else CLIENTS)
    assert printed["answers"] == ANSWERS * conversations
    check_verdicts(printed["verdicts"], verdicts)


@pytest.mark.slow
async def test_agent_that_repeats_calls_as_text_holds_conversations_with_a_tool(
    policy: Agent, endpoint_url: str
) -> None:
    printed = await told("smolagents_agent.py", endpoint_url)
    assert printed["answers"] == ANSWERS * 2
    assert len(policy.asked) == 8
