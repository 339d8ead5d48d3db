"""`ag2`: an agent with a tool over all three dialects, whole and streamed."""

import asyncio

from ag2 import Agent, tool
from ag2.config import AnthropicConfig, OpenAIConfig, OpenAIResponsesConfig
from asked import QUESTIONS, URL, Verdict, add, tell


async def main():
    answers, verdicts = [], []
    for kind, url in ((OpenAIConfig, f"{URL}/v1"), (OpenAIResponsesConfig, f"{URL}/v1"), (AnthropicConfig, URL)):
        for streaming in (False, True):
            server = {"base_url": url, "api_key": "key", "streaming": streaming}
            agent = Agent("adder", prompt="Use the tool.", config=kind(model="sum", **server), tools=[tool(add)])
            reply = agent
            for question in QUESTIONS:
                reply = await reply.ask(question)
                answers.append(reply.body)
            judge = Agent("judge", config=kind(model="tiny", **server), response_schema=Verdict)
            verdicts.append(await (await judge.ask("Judge it.")).content())
    tell(answers, verdicts)


asyncio.run(main())
