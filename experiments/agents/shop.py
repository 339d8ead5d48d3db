"""A shop's assistant: an ordinary program for OpenAI's API, with one tool. It knows nothing of LoomRL."""

import json
import os
from typing import Any

from openai import OpenAI

PRICE: Any = {
    "type": "function",
    "function": {
        "name": "price",
        "description": "The price of one item.",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
    },
}
RULES = "You work in a shop. Look every price up, then answer between <answer> and </answer>."
MOST_CALLS = 6


def look_up(prices: dict[str, int], arguments: str) -> str:
    """The tool's result; a mistake is told, not raised."""
    try:
        return str(prices[json.loads(arguments)["item"]])
    except (ValueError, KeyError, TypeError):
        return "There is no such item."


def main() -> None:
    """Answer the question of the task."""
    task = json.loads(os.environ["LOOM_TASK"])
    client = OpenAI()
    messages: list[Any] = [{"role": "system", "content": RULES}, {"role": "user", "content": task["question"]}]
    for _ in range(MOST_CALLS):
        answer = client.chat.completions.create(model="gpt-4.1-mini", messages=messages, tools=[PRICE])
        said: Any = answer.choices[0].message
        messages.append(said)
        if not said.tool_calls:
            break
        for call in said.tool_calls:
            result = look_up(task["prices"], call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print(said.content)


if __name__ == "__main__":
    main()
