"""Reward functions such as people bring from TRL."""

import asyncio
import time
from typing import Any


def is_right(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    return [float(said == right) for said, right in zip(completions, answer, strict=True)]


def told(prompts: list[Any], completions: list[Any]) -> float:
    """The last word of the last message is wanted."""
    return float(completions[0][0]["content"] == prompts[0][-1]["content"].split()[-1])


async def waits(completions: list[str]) -> float:
    await asyncio.sleep(0)
    return len(completions[0]) / 10


def hangs(completions: list[str]) -> float:
    time.sleep(0.2)
    return 1.0


def breaks(completions: list[str]) -> float:
    raise KeyError("column")


def says(completions: list[str]) -> str:
    return "good"


def runs_away(completions: list[str]) -> list[float]:
    return [float("nan")]
