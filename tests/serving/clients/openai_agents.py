"""`openai-agents`: an agent with a tool, over responses and over chat completions, whole and streamed."""

import asyncio
import json
import sys

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


async def streamed(agent, question, session):
    result = Runner.run_streamed(agent, question, session=session)
    async for _ in result.stream_events():
        pass
    return result.final_output


async def whole(agent, question, session):
    return (await Runner.run(agent, question, session=session)).final_output


async def main():
    answers = []
    async with AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="key", max_retries=0) as client:
        for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
            for ask in (whole, streamed):
                model = kind(model="sum", openai_client=client)
                agent = Agent(name="Adder", instructions="Use the tool.", tools=[add], model=model)
                session = SQLiteSession(f"{kind.__name__}-{ask.__name__}")
                for question in ("What is 2 + 3?", "And 10 + 20?"):
                    answers.append(await ask(agent, question, session))
    print(json.dumps({"answers": answers}))


asyncio.run(main())
