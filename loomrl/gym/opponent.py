"""The second seat of a game in a training run: a past version of the policy, the present one, or a scripted player.

An opponent is part of the task, as a memory and a preference are, so that all attempts of a group meet the same one,
and a trajectory names its opponent. The host of the episode seats it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol, Self

from pydantic import Field, field_validator, model_validator

from loomrl.config import LanguagePolicy, PolicyChoice
from loomrl.config.basic import PositiveInt, Share
from loomrl.errors import EpisodeError
from loomrl.schema import Config
from loomrl.types import Message, Task

OPPONENT = "opponent"
"""The key of an opponent in a task's parameters."""
SLIPS = "opponent_slips"
"""In the `info` of a last step, and in a trajectory's `extra`: illegal moves of the opponent, replaced by chance."""
PAST = "past"
PRESENT = "present"
SCRIPTED = "scripted"

Opponent = Mapping[str, Any]
"""`kind`: past, present or scripted; of a past one also its `version`, and the `url` of its checkpoint."""


class RivalReply(Protocol):
    """An answer of a policy."""

    @property
    def text(self) -> str:
        """Its words."""


class Rival(Protocol):
    """A policy as environments see it. `loomrl.gym.policy` imports their contract, so it cannot be named here."""

    async def act(self, conversation: tuple[Message, ...]) -> RivalReply:
        """The next action, given the whole conversation."""


class LeagueSettings(Config):
    """Self-play: the opponent of a group is drawn among the run's own past versions, the present one, and a scripted
    player. Those that beat the policy more often are drawn more often.
    """

    kind: Literal["league"] = "league"
    every: PositiveInt = 10
    """Updates between versions that join; a multiple of `train.checkpoint_every`."""
    members: int = Field(8, ge=1, le=16)
    """Maximum number of past versions. Then the one that is beaten most often leaves as the next one joins."""
    present_share: Share = 0.2
    """Share of groups that meet the policy as it is now."""
    scripted_share: Share = 0.2
    """Share of groups that meet the scripted opponent, which is also that of evaluations."""

    @field_validator("members")
    @classmethod
    def _refuse_one(cls, members: int) -> int:
        if members == 1:
            raise ValueError(
                "a league of one always draws the same version. Choose 2 to 16, or a fixed one: opponent.kind=policy"
            )
        return members

    @model_validator(mode="after")
    def _leave_room(self) -> Self:
        if self.present_share + self.scripted_share >= 1:
            raise ValueError(
                f"present_share={self.present_share:g} and scripted_share={self.scripted_share:g} leave nothing for "
                "past versions: they must sum to less than 1"
            )
        return self

    def rating_name(self, task: Task) -> str:
        """The name of the scripted opponent in this task, for ratings."""
        return SCRIPTED


def with_opponent(task: Task, opponent: Opponent | None) -> Task:
    """The task with this opponent; None leaves it unchanged."""
    return task if opponent is None else replace(task, parameters={**task.parameters, OPPONENT: dict(opponent)})


def opponent_of(task: Task) -> Opponent | None:
    """The opponent of a task, if one was drawn for it."""
    found: Opponent | None = task.parameters.get(OPPONENT)
    return found


def rival_of(task: Task, policy: PolicyChoice) -> PolicyChoice | None:
    """The policy in the second seat of a task that `policy` attempts; None if no policy sits there.

    A past version samples as the present one does.
    """
    opponent = opponent_of(task)
    if opponent is None or opponent["kind"] == SCRIPTED:
        return None
    if opponent["kind"] == PRESENT:
        return policy
    if not isinstance(policy, LanguagePolicy):
        raise EpisodeError(f"version {opponent['version']} is a language policy, which plays against its like only.")
    return policy.model_copy(update={"path": opponent["url"], "version": opponent["version"]})
