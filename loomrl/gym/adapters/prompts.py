"""`Prompts`: a data set of prompts and a reward function, as TRL's trainers take them, as an environment.

Rows come from a file, or stand in the settings. The function is called as TRL calls it, with one answer at a time.
"""

import csv
import hashlib
import inspect
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from loomrl.canonical import canonical_json
from loomrl.config.basic import PathText, Seconds, Share
from loomrl.errors import ConfigError, EpisodeError, ScorerError
from loomrl.gym.adapters.family import ask_scorer
from loomrl.gym.base import LEVELS, BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.curriculum import HELD_OUT_SEEDS
from loomrl.named import named
from loomrl.threshold import reaches
from loomrl.types import Message, Observation, Reward, Task

Row = Mapping[str, Any]
FAMILY = "prompts"
ROLES = ("system", "user", "assistant", "tool")


class PromptsSettings(EnvironmentSettings):
    """Rows, and a function that rewards an answer."""

    file: PathText | None = None
    """JSON lines, a JSON list, CSV or Parquet, by its ending; or set `rows`."""
    rows: tuple[dict[str, Any], ...] = ()
    """The rows themselves."""
    sha256: str = ""
    """If set, that of the file must be this one."""
    prompt: str = "prompt"
    """The column with the prompt: a text, or messages with `role` and `content`."""
    reward: str = ""
    """Needed: `package.module:function`, called as TRL calls it: `prompts`, `completions` and every other column as
    keywords, each a list of one. It returns a number, or a list of one.
    """
    check: str = ""
    """`package.module:function`, a second grader that pays nothing, called as `reward` is: success from 0 to 1. A
    training stops once rewards rise that it does not confirm."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    """The rewards that it may return."""
    solved_at: float = 1.0
    """The reward from which a task counts as solved."""
    family: str = ""
    """The column that names each row's family; by default all are one."""
    level: str = ""
    """The column with each row's level, from 1 to 10; by default rows have no levels."""
    answer: str = ""
    """The column with a good answer: for demonstrations, and `loomrl evaluate --policy oracle`."""
    held_out: Share = 0.1
    """Share of the prompts that only evaluations draw, by a hash of the prompt; 1 is a file for judging alone."""
    timeout_s: Seconds = 10.0
    """For one call of the function."""
    max_steps: int = Field(1, ge=1, le=1)


class Prompts(BaseEnvironment):
    """Asks with a row's prompt; the first answer ends the task, with the function's reward."""

    name = "Prompts"
    version = "1.1.0"
    settings_class: ClassVar[type[EnvironmentSettings]] = PromptsSettings
    settings: PromptsSettings
    reward_parts = ("reward",)
    sources: ClassVar[tuple[str, ...]] = (__name__, "loomrl.gym.adapters.family", "loomrl.threshold")

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        given = self.settings
        if (given.file is None) == (not given.rows):
            raise ConfigError("Prompts: set file, such as questions.jsonl, or rows, and not both.")
        if not given.reward:
            raise ConfigError("Prompts: set reward, package.module:function, such as my_rewards:is_right.")
        self._reward: Callable[..., Any] = named(given.reward, what="reward")
        self._check: Callable[..., Any] | None = named(given.check, what="check") if given.check else None
        self._correct: float | None = None
        self._rows = _parts(given)
        self.families = tuple(sorted({family for family, _, _ in self._rows}))  # type: ignore[misc]
        self.reward_range = given.reward_range  # type: ignore[misc]
        self._row: Row = {}

    async def reset(self, task: Task | None = None) -> Observation:
        """The prompt of the task's row."""
        task = task or self._any_task()
        held_out = task.seed in HELD_OUT_SEEDS
        rows = self._rows.get((task.family, task.level, held_out))
        if not rows:
            level = f" of level {task.level}" if self.settings.level else ""
            kind = "held out" if held_out else "to train on"
            raise EpisodeError(f"Prompts: family {task.family!r} has no rows{level} {kind}.")
        self._row = rows[task.seed % len(rows)]
        self._correct = None
        return _as_messages(self._row[self.settings.prompt])

    def levels(self, family: str) -> Sequence[int]:
        """Those that the family's rows have; none without a column for them."""
        return sorted({level for name, level, _ in self._rows if name == family})

    def count(self, family: str, level: int, *, held_out: bool) -> int:
        """The number of the family's rows."""
        return len(self._rows.get((family, level, held_out), ()))

    def _any_task(self) -> Task:
        """A task for a game by hand: of what is held out, where nothing is to train on."""
        seed = random.getrandbits(31)
        is_for_judging = all(held_out for _, _, held_out in self._rows)
        return self.sample_task(HELD_OUT_SEEDS.start + seed if is_for_judging else seed)

    async def step(self, action: str) -> Step:
        """The function's reward; a ScorerError if it has none."""
        column = self.settings.answer
        info = {"answer": str(self._row[column])} if column else {}
        return Step.end(self._reward_for(await self._score(action)), **info)

    def oracle(self) -> str:
        """The row's good answer, if a column has one."""
        column = self.settings.answer
        if not column:
            raise NotImplementedError("Prompts: set answer, the column with a good answer.")
        return str(self._row[column])

    def random_action(self, rng: random.Random) -> str:
        """A word of the prompt, or a number."""
        words = " ".join(message.content for message in _as_messages(self._row[self.settings.prompt])).split()
        return rng.choice([*words, str(rng.randint(-20, 100))])

    def correct(self) -> float | None:
        """The second grader's success of the answer; None without one, or before an answer was graded."""
        return self._correct

    async def _score(self, action: str) -> float:
        """The reward; the second grader is asked on the way."""
        if self._check is not None:
            found = await self._ask(self._check, f"check {self.settings.check!r}", action)
            self._correct = _number_within(found, 0.0, 1.0, f"check {self.settings.check!r}")
        low, high = self.settings.reward_range
        what = f"reward {self.settings.reward!r}"
        return _number_within(
            await self._ask(self._reward, what, action), low, high, what, ", or another reward_range."
        )

    async def _ask(self, grader: Callable[..., Any], what: str, action: str) -> Any:
        prompt = self._row[self.settings.prompt]
        completion = action if isinstance(prompt, str) else [{"role": "assistant", "content": action}]
        told = {**self._row, **self._extra_columns()}
        columns = {column: [value] for column, value in told.items() if column != self.settings.prompt}
        asked = _keywords_for(grader, {**columns, "prompts": [prompt], "completions": [completion]})
        return await ask_scorer(grader, what=what, timeout_s=self.settings.timeout_s, **asked)

    def _extra_columns(self) -> Mapping[str, Any]:
        """Further columns that the function is given."""
        return {}

    def _reward_for(self, total: float) -> Reward:
        return Reward(total, {"reward": total}, float(reaches(total, self.settings.solved_at)))


def _number_within(found: Any, low: float, high: float, what: str, or_else: str = "") -> float:
    """A grader's answer, a number or a list of one, as a float within these bounds."""
    only = found[0] if isinstance(found, Sequence) and not isinstance(found, str) and len(found) == 1 else found
    try:
        total = float(only)
    except (TypeError, ValueError):
        total = math.nan
    if not low <= total <= high:
        needed = f"a number from {low:g} to {high:g} is needed{or_else or '.'}"
        raise ScorerError(f"{what} returned {found!r:.100}: {needed}")
    return total


def _keywords_for(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that the function has parameters for."""
    taken = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
        return dict(given)
    return {parameter.name: given[parameter.name] for parameter in taken if parameter.name in given}


def _as_messages(prompt: Any) -> Observation:
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    return tuple(Message(str(each["role"]), str(each["content"])) for each in prompt)


def _parts(given: PromptsSettings) -> dict[tuple[str, int, bool], list[Row]]:
    """Rows by family, level (0: any) and whether they are held out."""
    rows = given.rows if given.file is None else _read(given.file, given.sha256)
    found: dict[tuple[str, int, bool], list[Row]] = {}
    for number, row in enumerate(rows, 1):
        where = f"Prompts, row {number} of {given.file or 'rows'}"
        _check(row, given, where)
        held_out = _place(row[given.prompt]) < given.held_out
        level = int(row[given.level]) if given.level else 0
        found.setdefault((str(row[given.family]) if given.family else FAMILY, level, held_out), []).append(row)
    for family in sorted({family for family, _, _ in found}):
        parts = {held_out for name, _, held_out in found if name == family}
        if 0 < given.held_out < 1 and parts != {True, False}:
            missing = "held out" if True not in parts else "to train on"
            raise ConfigError(
                f"Prompts: family {family!r} has no prompts {missing} with held_out={given.held_out:g}. More prompts "
                "are needed, or another share; held_out=0 evaluates on what is trained on, and held_out=1 only "
                "evaluates."
            )
    if not given.held_out:
        found |= {(family, level, True): alike for (family, level, _), alike in list(found.items())}
    return found


def _check(row: Any, given: PromptsSettings, where: str) -> None:
    needed = [column for column in (given.prompt, given.family, given.level, given.answer) if column]
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where}: {row!r:.100} is no row. An object with columns is needed.")
    for column in needed:
        if row.get(column) is None:
            raise ConfigError(f"{where}: has no {column!r}. It has {', '.join(map(str, row))}.")
    prompt = row[given.prompt]
    is_talk = isinstance(prompt, Sequence) and bool(prompt) and all(map(_is_message, prompt))
    if not (isinstance(prompt, str) and prompt.strip()) and not is_talk:
        raise ConfigError(
            f"{where}: {given.prompt}={prompt!r:.100} is no prompt. A text is needed, or messages such as "
            f"{{role: user, content: …}}; the roles are {', '.join(ROLES)}."
        )
    if given.level and str(row[given.level]) not in {str(level) for level in range(1, LEVELS + 1)}:
        raise ConfigError(f"{where}: {given.level}={row[given.level]!r:.100}: levels go from 1 to {LEVELS}.")


def _is_message(each: Any) -> bool:
    return isinstance(each, Mapping) and each.get("role") in ROLES and isinstance(each.get("content"), str)


def _place(prompt: Any) -> float:
    """Where a prompt lies from 0 to 1: equal in every data set."""
    # A hash of the prompt alone: rows added later move no prompt between training and evaluation.
    return int.from_bytes(hashlib.sha256(canonical_json(prompt)).digest()[:8]) / 2**64


@cache
def _read(file: str, sha256: str) -> tuple[Any, ...]:
    path = Path(file)
    try:
        if sha256 and (found := hashlib.sha256(path.read_bytes()).hexdigest()) != sha256:
            raise ConfigError(f"Prompts: file={file!r} has the SHA-256 {found}, and sha256={sha256} was asked for.")
        match path.suffix:
            case ".jsonl" | ".ndjson":
                rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
            case ".json":
                rows = json.loads(path.read_text("utf-8"))
            case ".csv":
                with path.open(newline="", encoding="utf-8") as lines:
                    rows = list(csv.DictReader(lines))
            case ".parquet":
                from loomrl.parquet import from_parquet

                columns = from_parquet(path.read_bytes())
                rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
            case _:
                raise ConfigError(f"Prompts: file={file!r}: .jsonl, .json, .csv or .parquet is needed.")
    except (OSError, ValueError) as error:
        raise ConfigError(f"Prompts: file={file!r} cannot be read: {error}.") from error
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"Prompts: file={file!r} has no rows.")
    return tuple(rows)
