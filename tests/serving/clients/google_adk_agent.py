"""`google-adk`: an agent with a tool, whole and streamed, over litellm, and one with a schema."""

import asyncio

from asked import QUESTIONS, URL, Verdict, add, tell
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner


def model(name):
    return LiteLlm(model=f"openai/{name}", api_base=f"{URL}/v1", api_key="key")


async def told(runner, question, mode):
    """The last event's text."""
    events = await runner.run_debug(question, run_config=RunConfig(streaming_mode=mode), quiet=True)
    return "".join(part.text or "" for part in events[-1].content.parts)


async def main():
    answers, verdicts = [], []
    for mode in (StreamingMode.NONE, StreamingMode.SSE):
        adder = LlmAgent(name="adder", model=model("sum"), instruction="Use the tool.", tools=[add])
        runner = InMemoryRunner(adder)
        answers += [await told(runner, question, mode) for question in QUESTIONS]
        judge = LlmAgent(name="judge", model=model("tiny"), output_schema=Verdict)
        verdicts.append(Verdict.model_validate_json(await told(InMemoryRunner(judge), "Judge it.", mode)))
    tell(answers, verdicts)


asyncio.run(main())
