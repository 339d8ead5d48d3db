"""`smolagents`: an agent that calls tools, whole and streamed. It ends with a tool of its own, `final_answer`."""

import json
import sys

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


answers = []
for stream in (False, True):
    model = OpenAIModel(model_id="sum", api_base=f"{sys.argv[1]}/v1", api_key="key")
    agent = ToolCallingAgent(tools=[add], model=model, stream_outputs=stream, verbosity_level=0, max_steps=4)
    for reset, question in ((True, "What is 2 + 3?"), (False, "And 10 + 20?")):
        answers.append(agent.run(question, reset=reset))
print()  # it has printed what it streamed
print(json.dumps({"answers": answers}))
