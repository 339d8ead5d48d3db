"""`pydantic-ai`: an agent with a tool over all three dialects, whole and streamed."""

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


EVENTS = []


async def heard(context, events):
    EVENTS.extend([event async for event in events])


async def streamed(agent, question, history):
    result = await agent.run(question, message_history=history, event_stream_handler=heard)
    return result.output, result.all_messages()


async def whole(agent, question, history):
    result = await agent.run(question, message_history=history)
    return result.output, result.all_messages()


async def main():
    url, answers = sys.argv[1], []
    openai = OpenAIProvider(base_url=f"{url}/v1", api_key="key")
    models = [
        OpenAIChatModel("sum", provider=openai),
        OpenAIResponsesModel("sum", provider=openai),
        AnthropicModel("sum", provider=AnthropicProvider(base_url=url, api_key="key")),
    ]
    for model in models:
        for ask in (whole, streamed):
            agent, history = Agent(model, instructions="Use the tool.", tools=[add]), []
            for question in ("What is 2 + 3?", "And 10 + 20?"):
                answer, history = await ask(agent, question, history)
                answers.append(answer)
    assert len(EVENTS) > 6 * len(models)
    print(json.dumps({"answers": answers}))


asyncio.run(main())
