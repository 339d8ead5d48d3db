"""Success by turn, and by several attempts at a task, in the tables of an evaluation."""

import io

from rich.console import Console

from loomrl.evaluation.report import Report, judge
from loomrl.experiments.evaluate import LanguageResult, render
from loomrl.types import End, Reward, Task, Trajectory, Turn


def attempt(index: int, *, turns: int = 1, task: int | None = None, success: float = 1.0) -> Trajectory:
    return Trajectory(
        id=str(index),
        task=Task("Math", "1.0.0", "a", 1, index if task is None else task),
        turns=(Turn((), f"<answer>{success:g}</answer>"),) * turns,
        end=End.TERMINATED,
        reward=Reward(success, success=success),
        group=str(index if task is None else task),
    )


def report(policy: str, *turns: int) -> Report:
    """Of attempts that were solved in so many turns each."""
    return judge(policy, [attempt(index, turns=count) for index, count in enumerate(turns)])


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


def test_several_attempts_at_a_task_have_a_table_of_their_own() -> None:
    outcomes = [(0, 1.0), (0, 0.0), (0, 0.0), (1, 1.0), (1, 1.0), (1, 0.0)]
    attempts = [attempt(index, task=task, success=success) for index, (task, success) in enumerate(outcomes)]
    lines = shown(judge("often", attempts))
    assert ["often", "0.500", "0.833", "1.000", "0.500"] in lines
    assert any(line[:4] == ["Success", "on", "2", "held-out"] for line in lines)
    assert not any("answer" in line for line in shown(report("hasty", 1, 1)))
