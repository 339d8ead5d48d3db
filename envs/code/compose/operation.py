"""The steps of a pipeline, in words and as code."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One step. `{k}` and `{m}` are numbers to be drawn; `code` rebinds `items`, or returns at the end."""

    words: str
    code: str

    def draw_numbers(self, rng: Random) -> "PipelineStep":
        """The step with its open numbers drawn."""
        numbers = {"k": str(rng.randint(2, 6)), "m": str(rng.randint(3, 9))}
        words = self.words
        code = self.code
        for name, number in numbers.items():
            words = words.replace(f"{{{name}}}", number)
            code = code.replace(f"{{{name}}}", number)
        return PipelineStep(words, code)


FILTERS = (
    PipelineStep(
        "Keep only the numbers that are divisible by {k}.", "items = [item for item in items if item % {k} == 0]"
    ),
    PipelineStep(
        "Take out the numbers that are divisible by {k}.", "items = [item for item in items if item % {k} != 0]"
    ),
    PipelineStep("Keep only the numbers greater than {m}.", "items = [item for item in items if item > {m}]"),
    PipelineStep("Keep only the numbers of at most {m}.", "items = [item for item in items if item <= {m}]"),
    PipelineStep("Take out the negative numbers.", "items = [item for item in items if item >= 0]"),
    PipelineStep("Take out the first {k} numbers.", "items = items[{k}:]"),
    PipelineStep("Keep only every second number, beginning with the first.", "items = items[::2]"),
    PipelineStep("Take out repetitions: keep each number where it first occurs.", "items = list(dict.fromkeys(items))"),
)
MAPS = (
    PipelineStep("Multiply each number by {k}.", "items = [item * {k} for item in items]"),
    PipelineStep("Add {m} to each number.", "items = [item + {m} for item in items]"),
    PipelineStep("Subtract each number from {m}.", "items = [{m} - item for item in items]"),
    PipelineStep("Replace each number by its square.", "items = [item * item for item in items]"),
    PipelineStep("Replace negative numbers by their absolute values.", "items = [abs(item) for item in items]"),
    PipelineStep("Replace each number by its remainder when divided by {m}.", "items = [item % {m} for item in items]"),
    PipelineStep(
        "Add to each number its position, counted from 0.",
        "items = [item + place for place, item in enumerate(items)]",
    ),
    PipelineStep(
        "Multiply each number by its position, counted from 1.",
        "items = [item * place for place, item in enumerate(items, start=1)]",
    ),
    PipelineStep("Replace numbers greater than {m} by {m}.", "items = [min(item, {m}) for item in items]"),
)
ORDERS = (
    PipelineStep("Sort the numbers in ascending order.", "items = sorted(items)"),
    PipelineStep("Sort the numbers in descending order.", "items = sorted(items, reverse=True)"),
    PipelineStep("Reverse the list.", "items = items[::-1]"),
    PipelineStep(
        "Move the even numbers in front of the odd ones; otherwise keep their order.",
        "items = [item for item in items if item % 2 == 0] + [item for item in items if item % 2 != 0]",
    ),
    PipelineStep("Move the first number to the end.", "items = items[1:] + items[:1]"),
)
NEIGHBOURS = (
    PipelineStep(
        "Replace each number by the sum of all numbers up to it, itself included.",
        "items = [sum(items[:place + 1]) for place in range(len(items))]",
    ),
    PipelineStep(
        "Replace the list by the differences of neighbours: second minus first, third minus second, and so on.",
        "items = [after - before for before, after in zip(items, items[1:])]",
    ),
    PipelineStep(
        "Replace each number by the largest of all numbers up to it, itself included.",
        "items = [max(items[:place + 1]) for place in range(len(items))]",
    ),
    PipelineStep(
        "Replace the list by the sums of neighbours: first plus second, second plus third, and so on.",
        "items = [before + after for before, after in zip(items, items[1:])]",
    ),
    PipelineStep(
        "Keep only the numbers that are greater than the one before them in the list; the first number stays out.",
        "items = [after for before, after in zip(items, items[1:]) if after > before]",
    ),
)
MACHINES = (
    PipelineStep(
        "Begin with a total of {m}. For each number: if it is even, add it to the total, otherwise subtract {k} from "
        "the total; each time put the total in place of the number.",
        """total = {m}
totals = []
for item in items:
    total = total + item if item % 2 == 0 else total - {k}
    totals.append(total)
items = totals""",
    ),
    PipelineStep(
        "Begin with an empty stack. For each number: if the stack is empty or the number is at least the top of the "
        "stack, put the number on it, otherwise replace the top by top minus {k}. Go on with the stack, bottom first.",
        """stack = []
for item in items:
    if not stack or item >= stack[-1]:
        stack.append(item)
    else:
        stack[-1] = stack[-1] - {k}
items = stack""",
    ),
    PipelineStep(
        "Begin with a limit of {m}. For each number: if it is greater than the limit, keep it and raise the limit by "
        "{k}, otherwise take it out and lower the limit by 1.",
        """limit = {m}
kept = []
for item in items:
    if item > limit:
        kept.append(item)
        limit += {k}
    else:
        limit -= 1
items = kept""",
    ),
    PipelineStep(
        "If the list has more than {k} numbers, add its length to each of them; otherwise double each of them.",
        """if len(items) > {k}:
    items = [item + len(items) for item in items]
else:
    items = [item * 2 for item in items]""",
    ),
    PipelineStep(
        "Cut the list into groups of {k} from the left; the last one may be shorter. Replace each group by its sum.",
        "items = [sum(items[start:start + {k}]) for start in range(0, len(items), {k})]",
    ),
)
ENDS = (
    PipelineStep("Return the sum of the numbers.", "return sum(items)"),
    PipelineStep("Return the sum of the numbers plus {m}.", "return sum(items) + {m}"),
    PipelineStep("Return the largest number, or {m} if there is none.", "return max(items, default={m})"),
    PipelineStep("Return the smallest number, or {m} if there is none.", "return min(items, default={m})"),
    PipelineStep("Return the list.", "return items"),
    PipelineStep("Return the sum of the squares of the numbers.", "return sum((item * item for item in items))"),
    PipelineStep("Return {m} times the number of numbers, plus their sum.", "return {m} * len(items) + sum(items)"),
    PipelineStep("Return the last number, or {m} if there is none.", "return items[-1] if items else {m}"),
    PipelineStep(
        "Return the sum of the numbers at even positions minus the sum of those at odd positions, counted from 0.",
        "return sum(items[::2]) - sum(items[1::2])",
    ),
    PipelineStep(
        "Return the largest number minus the smallest one, or {m} if there is none.",
        "return max(items) - min(items) if items else {m}",
    ),
)
