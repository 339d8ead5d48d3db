"""`haystack`: an agent with a tool, whole and streamed, over chat and over responses, and a structured generator."""

from asked import QUESTIONS, URL, Verdict, add, tell
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

answers, verdicts = [], []
for kind in (OpenAIChatGenerator, OpenAIResponsesChatGenerator):

    def generator(name, kind=kind, **options):
        return kind(model=name, api_base_url=f"{URL}/v1", api_key=Secret.from_token("key"), **options)

    for callback in (None, lambda chunk: None):
        agent = Agent(
            chat_generator=generator("sum"),
            tools=[create_tool_from_function(add)],
            system_prompt="Use the tool.",
            streaming_callback=callback,
        )
        messages = []
        for question in QUESTIONS:
            messages = agent.run(messages=[*messages, ChatMessage.from_user(question)])["messages"][1:]
            answers.append(messages[-1].text)
    form = "response_format" if kind is OpenAIChatGenerator else "text_format"
    judge = generator("tiny", generation_kwargs={form: Verdict})
    verdicts.append(Verdict.model_validate_json(judge.run("Judge it.")["replies"][0].text))
tell(answers, verdicts)
