"""A server that ranks attempts by a rule: real HTTP, and a key to sort by in place of the weights."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loomrl.config.rewards import RankPart
from tests.gym.rubric_support import FENCE, ScriptedJudge


@dataclass(frozen=True)
class Shown:
    """One request, as a model that follows the form reads it."""

    attempts: dict[str, str]
    """Texts of what the assistant said, by letter, in the order in which they are shown."""
    task: str
    outside: str
    """All that stands outside the quotations."""
    body: dict[str, Any]


Key = Callable[[str, int], float]
"""(text, place from 0) → the higher, the better; equal ones tie."""


class RankingJudge(ScriptedJudge):
    """Ranks by a key, with a reason for each."""

    def read(self, body):
        system, user = (message["content"] for message in body["messages"])
        (fence,) = set(FENCE.findall(system))
        quoted = re.findall(rf"(?:Attempt (\w+)|The task):\n{fence}\n(.*?)\n?{fence}", user, re.S)
        said = {letter: text for letter, text in quoted if letter}
        if "response_format" in body:
            properties = body["response_format"]["json_schema"]["schema"]["properties"]
            assert list(properties) == list(said), "one order in all places"
            assert properties["A"]["properties"]["rank"]["enum"] == list(range(1, len(said) + 1))
        texts = {letter: _said(text) for letter, text in said.items()}
        outside = system + re.sub(rf"{fence}.*?{fence}", "", user, flags=re.S)
        return Shown(texts, "".join(_said(text) for letter, text in quoted if not letter), outside, body)

    def say(self, asked):
        keys = {letter: self.rule(text, place) for place, (letter, text) in enumerate(asked.attempts.items())}
        return {
            letter: {"reason": f"{key:g} of {max(keys.values()):g}.", "rank": 1 + sum(k > key for k in keys.values())}
            for letter, key in keys.items()
        }

    def part(self, **more):
        """A ranking of this judge."""
        return RankPart.parse({"judge": {"url": self.url, "model": "m"}, "twice": 0.0} | more)


def _said(quoted):
    return "\n".join(line[2:] for line in quoted.splitlines() if line.startswith("| "))
