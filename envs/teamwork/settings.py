"""Settings of a team environment: its agents, its arrivals, its length."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import PositiveInt, Share
from loomrl.schema import Config

ID = "LoomTeam-v0"


class TeamSettings(Config):
    """Keywords of the team environments."""

    agents: int = Field(4, ge=2, le=64)
    max_tasks: int = Field(8, ge=1, le=256)
    """Tasks that wait or are in hand; one that arrives beyond them is turned away and counts as lost."""
    skills: int = Field(3, ge=1, le=3)
    """Kinds of task. The observation has room for an agent's expertise in three."""
    steps: PositiveInt = 200
    """Steps after which an episode is truncated."""
    arrival: Share = 0.5
    """Probability of a new task per step. A larger team wants more work: a longer `complexity`."""
    waiting: int = Field(0, ge=0, le=256)
    """Random tasks that wait at the reset; 0: one at most, with the probability of `arrival`."""
    complexity: tuple[float, float] = (1.0, 4.0)
    """Least and most work in a task; an expert at a sustainable pace does about half a unit per step."""
    deadline: tuple[PositiveInt, PositiveInt] = (10, 30)
    """Fewest and most steps that a task allows."""

    view: Literal["full", "basic"] = "full"
    """`basic`: seven numbers an agent and five a task slot, without trust and the skills of tasks."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.waiting > self.max_tasks:
            raise ValueError(f"waiting={self.waiting} tasks do not fit: max_tasks={self.max_tasks}")
        if self.view == "basic" and self.skills > 2:
            raise ValueError(f"view=basic has room for an agent's expertise in two skills, and skills={self.skills}")
        return self

    @model_validator(mode="after")
    def _ranges_rise(self) -> Self:
        for name, (low, high) in (("complexity", self.complexity), ("deadline", self.deadline)):
            if not 0 < low <= high:
                raise ValueError(f"{name}={(low, high)}: choose 0 < least <= most, such as {name}=({1}, {10})")
        return self


def team_settings(**settings: Any) -> TeamSettings:
    """Checked settings; a ConfigError names every fault with its remedy."""
    return TeamSettings.parse(settings, origin=ID)
