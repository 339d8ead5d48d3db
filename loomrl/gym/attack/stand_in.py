"""A stand-in for a missing oracle: what the environment's object holds after a reset, in a common form of answers.

Only the attacker reads it. It is believed where it solves several tasks of the family.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from loomrl.gym.attack.arena import Arena, Sample
from loomrl.gym.attack.attempt import PAID
from loomrl.types import Task

FORMS = (
    *("{}", "<answer>{}</answer>", "\\boxed{}", "#### {}", "Answer: {}", "The answer is {}", "Final answer: {}"),
    *(
        "<answer>\n{}\n</answer>",
        "<think>\nSo.\n</think>\n<answer>{}</answer>",
        "ANSWER: {}",
        "**{}**",
        "[[{}]]",
        "[{}]",
    ),
)
SOLVED = 3
"""Tasks that a stand-in must solve, one after the other."""
LONGEST = 4000


def form(template: str, text: str) -> str:
    """The text in a form; LaTeX's box has braces of its own."""
    return template.replace("{}", "{" + text + "}" if template.startswith("\\boxed") else text)


@dataclass(frozen=True, slots=True)
class StandIn:
    """A place in the object, and the form in which its text is an answer."""

    path: str
    template: str

    async def play(self, arena: Arena, sample: Sample) -> Sample:
        """The sample with this answer as the oracle's."""
        action = form(self.template, (await _held_texts(arena, sample.task)).get(self.path, ""))
        bout = await arena.say(sample.task, (action,), again=False)
        if not bout.ended:
            return sample
        return replace(sample, oracle=bout.actions, success=bout.success, total=bout.total)


async def find_stand_in(arena: Arena, samples: list[Sample]) -> StandIn | None:
    """The first text and form that solve the first tasks."""
    if len(samples) < SOLVED:
        return None
    held = [await _held_texts(arena, sample.task) for sample in samples[:SOLVED]]
    for path in held[0]:
        if len({each.get(path) for each in held}) < 2:
            continue
        for template in FORMS:
            for sample, texts in zip(samples, held, strict=False):
                bout = await arena.say(sample.task, (form(template, texts.get(path, "")),), again=False)
                if not bout.ended or bout.success < PAID:
                    break
            else:
                return StandIn(path, template)
    return None


async def _held_texts(arena: Arena, task: Task) -> dict[str, str]:
    """Texts and numbers that the object holds, by the path to them."""
    found: dict[str, str] = {}
    with suppress(Exception, SystemExit):
        async with arena.opened() as environment:
            await environment.reset(task)
            found = {path: text for path, text in _leaves(vars(environment), "", 3) if len(text) <= LONGEST}
    return found


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        yield path, str(value)
    elif isinstance(value, Mapping) and depth and len(value) < 50:
        for name, each in value.items():
            yield from _leaves(each, f"{path}.{name}", depth - 1)
    elif isinstance(value, list | tuple) and depth and 0 < len(value) < 20:
        with suppress(TypeError, ValueError):
            yield f"{path}*", json.dumps(value)
        for index, each in enumerate(value[:4]):
            yield from _leaves(each, f"{path}.{index}", depth - 1)
