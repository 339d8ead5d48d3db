"""An agent of your own, and its tasks. LoomRL trains `main`, a program that asks a model over HTTP (docs/agents.md)."""

import json
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

import httpx


def main() -> None:
    """Answer the question of the task; what is printed is scored."""
    task = json.loads(os.environ["LOOM_TASK"])
    messages = [
        {"role": "system", "content": "Answer between <answer> and </answer>."},
        {"role": "user", "content": task["question"]},
    ]
    answer = httpx.post(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        headers={"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
        json={"model": "any", "messages": messages},
        timeout=60,
    )
    answer.raise_for_status()
    print(answer.json()["choices"][0]["message"]["content"])


def task(level: int, rng: random.Random) -> dict[str, Any]:
    """A task, which the agent sees, and its answer, which it does not. Or list them in a file: docs/agents.md."""
    a = rng.randint(1, 9 * level)
    b = rng.randint(1, 9)
    return {"task": {"question": f"{a} + {b} = ?", "numbers": [a, b]}, "answer": str(a + b)}


def oracle(task: Mapping[str, Any], conversation: Sequence[Any]) -> str:
    """The next text of a perfect model, for a model that begins from nothing."""
    return f"<answer>{sum(task['numbers'])}</answer>"


def guess(task: Mapping[str, Any], rng: random.Random) -> str:
    """A text of a model without skill."""
    return f"<answer>{rng.randint(2, 99)}</answer>"


if __name__ == "__main__":
    main()
