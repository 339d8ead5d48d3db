"""`semantic-kernel`: an agent with a plugin, whole and streamed, and structured output."""

import asyncio

from asked import QUESTIONS, URL, Verdict, add, tell
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.functions import KernelArguments, kernel_function


class Plugin:
    """Sums."""

    add = staticmethod(kernel_function(add))


def service(name):
    return OpenAIChatCompletion(ai_model_id=name, async_client=AsyncOpenAI(base_url=f"{URL}/v1", api_key="key"))


async def main():
    answers = []
    for stream in (False, True):
        agent = ChatCompletionAgent(
            service=service("sum"), name="Adder", instructions="Use the tool.", plugins=[Plugin()]
        )
        thread = None
        for question in QUESTIONS:
            if stream:
                parts = [part async for part in agent.invoke_stream(question, thread=thread)]
                answers.append("".join(str(part) for part in parts).removeprefix("Let me see."))
                thread = parts[-1].thread
            else:
                answer = await agent.get_response(question, thread=thread)
                answers.append(str(answer))
                thread = answer.thread
    settings = KernelArguments(OpenAIChatPromptExecutionSettings(response_format=Verdict))
    judge = ChatCompletionAgent(service=service("tiny"), name="Judge", arguments=settings)
    verdict = await judge.get_response("Judge it.")
    tell(answers, [Verdict.model_validate_json(str(verdict))])


asyncio.run(main())
