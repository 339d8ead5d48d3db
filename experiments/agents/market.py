"""Tasks for the agents of this folder: prices to look up, and what follows from them."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.serving.call import ToolCall
from loomrl.serving.wording import OPENING, write_call
from loomrl.types import Message

ITEMS = ("apples", "bread", "cheese", "dates", "eggs", "figs", "honey", "jam", "kale", "leeks", "milk", "nuts", "oil",
         "peas", "rice", "salt", "tea", "wine")  # fmt: skip


def change(level: int, rng: random.Random) -> dict[str, Any]:
    """One item, more from level 4 on, and the question what is left of 20."""
    items = rng.sample(ITEMS, 1 + (level - 1) // 3)
    prices = {item: rng.randint(1, 9) for item in items}
    return _row(f"Change of 20: {', '.join(items)}?", prices, 20 - sum(prices.values()))


def total(level: int, rng: random.Random) -> dict[str, Any]:
    """Two items, more from level 4 on, and the question what they cost together."""
    items = rng.sample(ITEMS, 2 + (level - 1) // 3)
    prices = {item: rng.randint(1, 4 + level) for item in items}
    return _row(f"Altogether: {', '.join(items)}?", prices, sum(prices.values()))


def price(level: int, rng: random.Random) -> dict[str, Any]:
    """The price of one item, which only the tool knows."""
    item = rng.choice(ITEMS)
    cost = rng.randint(10, 99)
    return _row(f"Price: {item}?", {item: cost}, cost)


def _row(question: str, prices: Mapping[str, int], answer: int) -> dict[str, Any]:
    return {"task": {"question": question, "prices": prices}, "answer": answer}


def oracle(task: Mapping[str, Any], conversation: Sequence[Message]) -> str:
    """Look the next price up; after the last one, answer."""
    asked = sum(message.content.count(OPENING) for message in conversation if message.role == "assistant")
    items = list(task["prices"])
    if asked < len(items):
        return write_call(ToolCall(id="", name="price", arguments=f'{{"item": "{items[asked]}"}}'))
    prices = [str(price) for price in task["prices"].values()]
    if task["question"].startswith("Price"):
        return f"<answer>{prices[0]}</answer>"
    if task["question"].startswith("Altogether"):
        return f"{' + '.join(prices)}\n<answer>{sum(map(int, prices))}</answer>"
    return f"{' - '.join(['20', *prices])}\n<answer>{20 - sum(map(int, prices))}</answer>"


def guess(task: Mapping[str, Any], rng: random.Random) -> str:
    """An answer without having looked all prices up."""
    return f"<answer>{rng.randint(2, 19)}</answer>"
