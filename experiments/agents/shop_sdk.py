"""The same assistant, written with the OpenAI Agents SDK (`pip install openai-agents`). It knows nothing of LoomRL."""

import json
import os
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled

RULES = "You work in a shop. Look every price up, then answer between <answer> and </answer>."
TASK: dict[str, Any] = json.loads(os.environ["LOOM_TASK"])


def price(item: str) -> str:
    """The price of one item."""
    return str(TASK["prices"].get(item, "There is no such item."))


def main() -> None:
    """Answer the question of the task."""
    set_tracing_disabled(True)
    agent = Agent(name="Shop", instructions=RULES, model="gpt-4.1-mini", tools=[function_tool(price)])
    print(Runner.run_sync(agent, TASK["question"], max_turns=6).final_output)


if __name__ == "__main__":
    main()
