"""Tasks one by one for a program of your own, as hard as its policy can take."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.config import AdaptiveCurriculum, Curriculum, EnvironmentConfig
from loomrl.errors import ConfigError
from loomrl.gym.base import EnvironmentSettings, levels_of
from loomrl.gym.catalogue import find
from loomrl.gym.curriculum import Outcome
from loomrl.gym.task_mixture import gather, open_draws
from loomrl.gym.template import load_templates
from loomrl.types import Task


class CurriculumGenerator:
    """Draws tasks and learns from how attempts at them went: `generate()`, attempt it, `observe(task, success)`.

    `environments` are names, or names with families and weights; without them they are those of the templates, or Math.
    Every family begins at `initial_difficulty`: a word, a level, or a number from 0.0 to 1.0, by default "beginner".
    Levels then follow success.
    Give a `curriculum` instead for anything else.
    """

    def __init__(
        self,
        environments: Sequence[str | EnvironmentConfig] = (),
        *,
        initial_difficulty: str | float | None = None,
        task_templates_path: str | None = None,
        curriculum: Curriculum | None = None,
        seed: int = 0,
    ) -> None:
        templates = load_templates(task_templates_path) if task_templates_path else ()
        named = environments or sorted({template.environment for template in templates}) or ("Math",)
        configs = [EnvironmentConfig(id=each) if isinstance(each, str) else each for each in named]
        self._mixture = gather(configs, task_templates_path, lambda id: (find(id).id, ""))
        if curriculum is not None and initial_difficulty is not None:
            raise ConfigError(
                f"initial_difficulty={initial_difficulty!r} has no effect beside a curriculum: set its levels."
            )
        start = _level("beginner" if initial_difficulty is None else initial_difficulty)
        settings = curriculum or AdaptiveCurriculum(start_level=start)
        self._curriculum = open_draws(self._mixture, settings, seed=seed)
        self._rng = random.Random(seed)

    def generate(self) -> Task:
        """The next task to attempt. The same seed and the same outcomes give the same tasks."""
        draw = self._curriculum.draw(self._rng)
        return self._mixture.member(draw).task(draw)

    def observe(self, task: Task, success: float) -> None:
        """Observe the success of an attempt at a task, from 0 to 1."""
        self._curriculum.observe([Outcome(self._mixture.family_of(task), task.level, success)])

    def progress(self) -> dict[str, float]:
        """Level per family; a fraction is the chance of the next level."""
        return self._curriculum.progress()

    def state_dict(self) -> dict[str, Any]:
        """Everything a restart needs, as JSON."""
        version, internal, gauss = self._rng.getstate()
        return {"curriculum": self._curriculum.state_dict(), "randomness": [version, list(internal), gauss]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._curriculum.load_state_dict(state["curriculum"])
        version, internal, gauss = state["randomness"]
        self._rng.setstate((version, tuple(internal), gauss))


def _level(difficulty: str | float) -> int:
    """The level that a difficulty begins with."""
    given = EnvironmentSettings.parse({"difficulty": difficulty}, origin="initial_difficulty")
    return levels_of(given.difficulty).start
