"""`Served`: what people asked in production as tasks, with a judge for a reward.

Training draws from the training part of a data set, evaluation from the prompts that are held out. There is no
checker: a task counts as solved as far as the judge says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from loomrl.config.basic import StoreUrl
from loomrl.errors import ConfigError, EpisodeError
from loomrl.feedback.content import Contents
from loomrl.gym.base import NO_LEVELS, BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.curriculum import HELD_OUT_SEEDS
from loomrl.gym.judge import JUDGES, Inquiry, JudgeConfig, open_judge
from loomrl.store import open_store
from loomrl.store.datasets import DatasetRow, find_dataset, read_rows
from loomrl.types import Message, Observation, Reward, Task

CHOICES = ("no", "partly", "yes")


class ServedSettings(EnvironmentSettings):
    """A data set, and a judge of answers to its prompts."""

    store_url: StoreUrl = "sqlite:///loom.db"
    """The LoomDB that has the data set; its hubs lie beside it."""
    dataset: str = ""
    """Needed: the id of a data set with a holdout."""
    judge: JudgeConfig | None = None
    """Needed."""
    question: str = "Does the assistant's last answer give what was asked for, correctly and in the form asked for?"
    """The judge's question; the choices are no, partly and yes."""
    max_steps: int = 1


class Served(BaseEnvironment):
    """The first messages of a served session; the first answer ends the task."""

    name = "Served"
    version = "1.1.0"
    settings_class: ClassVar[type[EnvironmentSettings]] = ServedSettings
    settings: ServedSettings
    reward_range = (0.0, 1.0)
    reward_parts = ("judge",)
    sources = ("loomrl.feedback.content", *JUDGES)

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        if not self.settings.dataset or self.settings.judge is None:
            raise ConfigError(
                "Served: set dataset, the id of a data set (`loomrl data list`), and judge, such as {kind: openai, "
                "url: http://127.0.0.1:8000/v1, model: NAME}."
            )
        self._rows = _prompts(self.settings)
        self.families = tuple(sorted({family for family, _ in self._rows}))  # type: ignore[misc]
        self._contents = Contents(self.settings.store_url)
        self._asked: Observation = ()

    async def reset(self, task: Task | None = None) -> Observation:
        """The messages with which the session of the task's prompt began."""
        task = task or self.sample_task(0)
        rows = self._part(task.family, held_out=task.seed in HELD_OUT_SEEDS)
        row = rows[task.seed % len(rows)]
        attempt = self._contents.read(row)
        if attempt is None:
            raise EpisodeError(f"trajectory {row.trajectory!r} was deleted after the data set was frozen.")
        self._asked = attempt.turns[0].observation
        return self._asked

    def levels(self, family: str) -> Sequence[int]:
        """None: what people ask has no level."""
        return NO_LEVELS

    def count(self, family: str, level: int, *, held_out: bool) -> int:
        """The number of the family's prompts."""
        return len(self._part(family, held_out=held_out))

    def _part(self, family: str, *, held_out: bool) -> list[DatasetRow]:
        return self._rows[family, "holdout" if held_out else "train"]

    async def step(self, action: str) -> Step:
        """The judge's opinion of the answer; a ScorerError if it has none."""
        assert self.settings.judge is not None, "the constructor refuses none"
        conversation = (*self._asked, Message("assistant", action))
        inquiry = Inquiry(self.settings.question, conversation, CHOICES)
        opinion = await open_judge(self.settings.judge).ask(inquiry)
        worth = inquiry.worth(opinion)
        info = {"judge": opinion.who, "verdict": opinion.choice, "reason": opinion.reason}
        return Step((), Reward(worth, {"judge": worth}, worth), True, False, info)

    async def close(self) -> None:
        """Close the hubs; a later `reset` opens them again."""
        self._contents.close()
        self._contents = Contents(self.settings.store_url)


def _prompts(settings: ServedSettings) -> dict[tuple[str, str], list[DatasetRow]]:
    """The rows of each family and part, of every prompt one; a ConfigError for a family that has none held out."""
    with open_store(settings.store_url) as db:
        dataset = find_dataset(db, settings.dataset)
        rows = read_rows(db, dataset.id)
    found: dict[tuple[str, str], dict[str, DatasetRow]] = {}
    for row in rows:
        found.setdefault((row.domain, row.part), {}).setdefault(row.prompt, row)
    for family in sorted({family for family, _ in found}):
        missing = [part for part in ("train", "holdout") if (family, part) not in found]
        if missing:
            raise ConfigError(
                f"Served dataset={dataset.id}: domain {family!r} has no prompts in its {missing[0]} part. Freeze the "
                "data set with a larger holdout, or with domains=[…] that have enough prompts."
            )
    return {key: list(alike.values()) for key, alike in found.items()}
