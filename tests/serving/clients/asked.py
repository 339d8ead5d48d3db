"""What the agents are asked, their tool, and the form of a structured answer."""

import json
import sys
from typing import Literal

from pydantic import BaseModel

URL = sys.argv[1]
QUESTIONS = ("What is 2 + 3?", "And 10 + 20?")


class Verdict(BaseModel, extra="forbid"):
    """A judgement."""

    colour: Literal["red", "green", "blue"]
    sure: bool


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


def tell(answers, verdicts):
    """The last line of a script."""
    print()
    print(json.dumps({"answers": answers, "verdicts": [verdict.model_dump() for verdict in verdicts]}))
