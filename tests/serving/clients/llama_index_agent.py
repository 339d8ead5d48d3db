"""`llama-index`: an agent with a tool, whole and streamed, and a structured model."""

import asyncio

from asked import QUESTIONS, URL, Verdict, add, tell
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike


def model(name):
    """It wants to be told what a server that it does not know can do."""
    return OpenAILike(
        model=name, api_base=f"{URL}/v1", api_key="key", is_chat_model=True, is_function_calling_model=True
    )


async def main():
    answers = []
    for streaming in (False, True):
        agent = FunctionAgent(tools=[add], llm=model("sum"), system_prompt="Use the tool.", streaming=streaming)
        context = Context(agent)
        for question in QUESTIONS:
            answers.append((await agent.run(question, ctx=context)).response.content)
    judge = model("tiny").as_structured_llm(Verdict)
    # Not streamed: it then offers the form as a tool.
    tell(answers, [judge.chat([ChatMessage("Judge it.")]).raw])


asyncio.run(main())
