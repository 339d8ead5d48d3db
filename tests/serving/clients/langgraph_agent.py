"""`langchain-openai` and `langchain-anthropic` in a graph of `langgraph`, whole and streamed."""

import json
import sys
from typing import Annotated, TypedDict

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


class State(TypedDict):
    messages: Annotated[list, add_messages]


def graph_of(model):
    bound = model.bind_tools([add])
    graph = StateGraph(State)
    graph.add_node("model", lambda state: {"messages": [bound.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


def conversation(model, *, stream):
    graph, config, said = graph_of(model), {"configurable": {"thread_id": "1"}}, []
    for question in ("What is 2 + 3?", "And 10 + 20?"):
        given = {"messages": [("user", question)]}
        if stream:
            parts = list(graph.stream(given, config, stream_mode="messages"))
            assert len(parts) > 3
        else:
            graph.invoke(given, config)
        said.append(graph.get_state(config).values["messages"][-1].text)
    return said


url = sys.argv[1]
answers = []
for stream in (False, True):
    answers += conversation(ChatOpenAI(model="sum", base_url=f"{url}/v1", api_key="key"), stream=stream)
    responses = ChatOpenAI(model="sum", base_url=f"{url}/v1", api_key="key", use_responses_api=True)
    answers += conversation(responses, stream=stream)
    answers += conversation(ChatAnthropic(model="sum", base_url=url, api_key="key", max_tokens=200), stream=stream)
print(json.dumps({"answers": answers}))
