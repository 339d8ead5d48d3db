"""Success by turn in the table of an evaluation."""

import io

from rich.console import Console

from loomrl.evaluation.report import Report, judge
from loomrl.experiments.evaluate import LanguageResult, render
from loomrl.types import End, Reward, Task, Trajectory, Turn


def report(policy: str, *turns: int) -> Report:
    """Of attempts that were solved in so many turns each."""
    return judge(
        policy,
        [
            Trajectory(
                id=str(index),
                task=Task("Math", "1.0.0", "a", 1, index),
                turns=(Turn((), "x"),) * count,
                end=End.TERMINATED,
                reward=Reward(1.0, success=1.0),
                group="g",
            )
            for index, count in enumerate(turns)
        ],
    )


def shown(*reports: Report) -> list[list[str]]:
    text = io.StringIO()
    render(LanguageResult("run", 1.0, reports), Console(file=text, width=120))
    return [line.split() for line in text.getvalue().splitlines()]


def test_success_within_so_many_turns_is_a_row_for_each_policy() -> None:
    lines = shown(report("patient", 1, 3), report("hasty", 1, 1))
    assert ["1", "2", "3"] in lines
    assert ["patient", "0.500", "0.500", "1.000"] in lines
    assert ["hasty", "1.000", "1.000", "1.000"] in lines


def test_of_a_single_turn_there_is_no_such_table() -> None:
    assert not any("turns" in line for line in shown(report("hasty", 1)))
