"""Tasks for agents, and scorers of what an agent has done with one."""

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from loomrl.config.basic import PathText, Share
from loomrl.errors import ConfigError, EpisodeError, ScorerError
from loomrl.gym.adapters.family import SourceFamily, ask_scorer, reward_of
from loomrl.gym.answer import parse_submission
from loomrl.gym.base import LEVELS, NO_LEVELS
from loomrl.gym.curriculum import HELD_OUT_SEEDS
from loomrl.named import named
from loomrl.types import Reward, Task

ROW = ("task", "answer", "files", "level")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """One task: `task` is shown to the agent, `answer` only to the scorer."""

    task: Mapping[str, Any]
    answer: Any = None
    files: Mapping[str, str]
    """Text files that lie in the agent's folder at the beginning."""
    level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The remains of an agent: its exit status, its standard output, its folder."""

    row: AgentRow
    status: int
    output: str
    errors: str
    folder: Path
    """Read it now: it is deleted afterwards."""
    truncated: str = ""
    """The budget that ran out: `calls`, `tokens` or `seconds`."""


Scorer = Callable[[Done], float | Reward]


class AgentTasks(SourceFamily):
    """A family of tasks: from a list, a file of JSON lines, or a function."""

    items: tuple[dict[str, Any], ...] = ()
    """Rows: `{task: {…}, answer: …, files: {name: text}, level: 1}`; all but `task` may be left out."""
    file: PathText | None = None
    """JSON lines, one row each."""
    generate: str = ""
    """`package.module:function`, called with the level and a `random.Random`; it returns a row."""
    held_out: Share = 0.2
    """Share of a list's or a file's rows that only evaluations draw; 1 is a list for judging alone."""
    scorer: str = "answer"
    """`answer`: the last line of the output, or the text between its `<answer>` tags, is the row's answer. `tags`: only
    the text between the tags counts. `exit`: the exit status is 0. Else `package.module:function` of a `Done`, which
    returns success from 0 to 1 or a `Reward`.
    """
    check: str = ""
    """`package.module:function`, a second scorer that pays nothing: success from 0 to 1. A training stops once rewards
    rise that it does not confirm."""
    guess: str = ""
    """`package.module:function`, called with the row's `task` and a `random.Random`; it returns a wrong or lucky text
    of the policy, for imperfect demonstrations.
    """

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if sum((bool(self.items), self.file is not None, bool(self.generate))) != 1:
            raise ValueError("tasks come from one source: items, file or generate")
        return self

    def row(self, task: Task) -> AgentRow:
        """The row of a task: equal tasks have equal rows."""
        if self.generate:
            rng = random.Random(f"{task.family}/{task.level}/{task.seed}")
            return as_row(named(self.generate, what="generate")(task.level, rng), where=self.generate)
        own = self.rows(task.level, held_out=task.seed in HELD_OUT_SEEDS)
        if not own:
            level = f"has level {task.level}" if task.level else "is to train on"
            raise ConfigError(f"tasks of family {task.family!r}: none {level}.")
        return own[task.seed % len(own)]

    @property
    def levels(self) -> Sequence[int]:
        """The levels that rows name; of generated ones, all."""
        if self.generate:
            return range(1, LEVELS + 1)
        return sorted({row.level for row in self._all_rows() if row.level is not None}) or NO_LEVELS

    def rows(self, level: int, *, held_out: bool) -> list[AgentRow]:
        """The listed rows of a level, and those that name none, for evaluations or for training."""
        return self._part([row for row in self._all_rows() if row.level in (None, level)], held_out=held_out)

    def _all_rows(self) -> list[AgentRow]:
        rows = _items(self.file) if self.file is not None else self.items
        return [as_row(row, where=self.file or "items") for row in rows]

    def _part(self, rows: list[AgentRow], *, held_out: bool) -> list[AgentRow]:
        count = round(self.held_out * len(rows))
        if self.held_out == 1:
            return rows if held_out else []
        if not 0 < count < len(rows):
            return rows
        # A fixed seed: every process and every run must hold out the same rows.
        chosen = set(random.Random(0).sample(range(len(rows)), count))
        return [row for index, row in enumerate(rows) if (index in chosen) == held_out]

    def refuse_missing(self) -> None:
        """A ConfigError for a source or scorer that does not exist."""
        if self.file is not None:
            _items(self.file)
        for what in ("generate", "oracle", "check", "guess"):
            if name := getattr(self, what):
                named(name, what=what)
        self.judge()

    def judge(self) -> Scorer:
        """The scorer."""
        if self.scorer in SCORERS:
            return SCORERS[self.scorer]
        if ":" not in self.scorer:
            known = ", ".join(SCORERS)
            raise ConfigError(f"scorer={self.scorer!r} is unknown. Known: {known}, or package.module:function.")
        scorer: Scorer = named(self.scorer, what="scorer")
        return scorer

    @property
    def scores_status(self) -> bool:
        """True if an exit status other than 0 is a result and not a crash."""
        return self.scorer == "exit"


async def score(tasks: AgentTasks, done: Done, *, timeout_s: float) -> Reward:
    """The reward; a ScorerError if the scorer raises, hangs, or returns anything else than success."""
    found = await ask_scorer(tasks.judge(), done, what=f"scorer {tasks.scorer!r}", timeout_s=timeout_s)
    return found if isinstance(found, Reward) else reward_of(_success(found, f"scorer {tasks.scorer!r}"))


async def check(tasks: AgentTasks, done: Done, *, timeout_s: float) -> float | None:
    """The second scorer's success, if there is one; a ScorerError as above."""
    if not tasks.check:
        return None
    what = f"check {tasks.check!r}"
    return _success(await ask_scorer(named(tasks.check, what="check"), done, what=what, timeout_s=timeout_s), what)


def _success(found: Any, what: str) -> float:
    if not isinstance(found, int | float) or not math.isfinite(found) or not 0 <= found <= 1:
        raise ScorerError(f"{what} returned {found!r:.100}: success from 0 to 1 is needed.")
    return float(found)


def answer_of(output: str) -> str:
    """The final answer in an agent's output: between the last `<answer>` tags, else its last line."""
    submission = parse_submission(output)
    if submission is not None:
        return submission.answer
    lines = output.strip().splitlines()
    return lines[-1].strip() if lines else ""


def _is_answer(done: Done) -> float:
    if done.status != 0 or done.truncated:
        return 0.0
    expected = str(done.row.answer).strip()
    given = answer_of(done.output)
    if NUMBER.fullmatch(expected) and NUMBER.fullmatch(given):
        return float(math.isclose(float(expected), float(given), rel_tol=1e-9))
    return float(expected.casefold() == given.casefold())


def _is_zero(done: Done) -> float:
    return float(done.status == 0 and not done.truncated)


def _is_tagged(done: Done) -> float:
    return _is_answer(done) if parse_submission(done.output) is not None else 0.0


SCORERS: Mapping[str, Scorer] = {"answer": _is_answer, "tags": _is_tagged, "exit": _is_zero}


def as_row(given: Any, *, where: str) -> AgentRow:
    """A row as it is written; an EpisodeError for anything else."""
    if not isinstance(given, Mapping) or not isinstance(given.get("task"), Mapping):
        raise EpisodeError(f"{where}: {given!r:.100} is no row. Write {{task: {{…}}, answer: …}}.")
    odd = [name for name in given if name not in ROW]
    if odd:
        raise EpisodeError(f"{where}: a row has no {odd[0]!r}. Known: {', '.join(ROW)}. Put it inside task.")
    files = given.get("files", {})
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise EpisodeError(f"{where}: file {name!r} would lie outside of the agent's folder.")
    return AgentRow(task=given["task"], answer=given.get("answer"), files=files, level=given.get("level"))


@cache
def _items(file: str) -> tuple[Any, ...]:
    try:
        lines = Path(file).read_text().splitlines()
        return tuple(json.loads(line) for line in lines if line.strip())
    except (OSError, ValueError) as error:
        raise ConfigError(f"tasks.file={file!r}: {error}. JSON lines are needed: one row per line.") from error
