"""Data sets of what was served, from which a policy learns instead of rollouts."""

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from loomrl.config.basic import Fraction, PositiveInt, Share
from loomrl.schema import Config


def _zoned(moment: datetime) -> datetime:
    """Without a time zone it is UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


Moment = Annotated[datetime, AfterValidator(_zoned)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]


class DataSelection(Config):
    """The selection of trajectories for a data set. Bounds are inclusive; null bounds nothing."""

    name: Name | None = None
    """Prefix of the data set's id; null takes the first endpoint or agent."""
    endpoints: tuple[str, ...] = ()
    """Endpoints whose sessions are selected."""
    agents: tuple[str, ...] = ()
    """External agents whose trajectories are selected; text only."""
    sources: tuple[Literal["production", "foreign"], ...] = ()
    """`production`: served here; `foreign`: from external agents. Empty selects both."""
    domains: tuple[str, ...] = ()
    """Task types, such as "coding" or "calculus.*"; empty selects all."""
    since: Moment | None = None
    """Earliest end of a trajectory, such as 2026-07-01 or 2026-07-01T08:00:00Z."""
    until: Moment | None = None
    """Latest end of a trajectory."""
    max_turns: PositiveInt | None = None
    """Maximum number of turns."""
    max_characters: PositiveInt | None = None
    """Maximum characters of all messages and answers together."""
    min_reward: float | None = None
    """Minimum of the latest reward; trajectories without a reward are left out."""
    max_reward: float | None = None
    """Maximum of the latest reward; trajectories without a reward are left out."""
    min_confidence: Share | None = None
    """Minimum confidence of the latest reward; trajectories without a reward are left out."""
    without: tuple[str, ...] = ()
    """Ids of trajectories to leave out."""
    parent: str | None = None
    """The policy to be trained (`RUN/12` or a model's folder); data on which it or an ancestor was trained is left out.
    Null means the stable policy of the first endpoint."""
    balance: Literal["none", "domain"] = "none"
    """`domain`: equal numbers from every domain; with a `limit`, rare domains contribute all they have."""
    limit: PositiveInt | None = None
    """Maximum number of trajectories to train on; the latest are taken."""
    holdout: Fraction = 0.1
    """Share of the prompts that is never trained on, chosen by a fixed hash."""
    suite: str | None = None
    """A gate suite whose prompts are left out: a file or the name of a shipped suite."""
    ngram: PositiveInt = 13
    """Length of a word sequence which, shared with a prompt of the suite that it identifies, excludes a trajectory."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not (self.endpoints or self.agents):
            raise ValueError("name an endpoint or an agent: endpoints=[assistant]")
        for low, high in (("since", "until"), ("min_reward", "max_reward")):
            first, last = getattr(self, low), getattr(self, high)
            if first is not None and last is not None and first > last:
                raise ValueError(f"{low}={first} is above {high}={last}")
        return self


class DatasetConfig(Config):
    """A frozen data set to learn from instead of rollouts."""

    dataset: str
    """Id of the data set, or a name for the newest of that name."""
    batch: PositiveInt = 64
    """Trajectories per update; for dpo, pairs."""
    epochs: PositiveInt = 1
    """Passes over the data set; `train.updates` may end the run earlier."""
