"""What is learnt from in place of fresh attempts: data sets of what was served."""

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
    """The trajectories of a data set; bounds are inclusive, and what is left out here bounds nothing."""

    name: Name | None = None
    """The beginning of the data set's id; None takes the first endpoint or agent."""
    endpoints: tuple[str, ...] = ()
    """Endpoints whose sessions are taken."""
    agents: tuple[str, ...] = ()
    """Agents of others whose trajectories are taken: text only."""
    sources: tuple[Literal["production", "foreign"], ...] = ()
    """`production`: served here; `foreign`: agents of others. Empty takes both."""
    domains: tuple[str, ...] = ()
    """Task types ("coding", "calculus.*"); empty takes all."""
    since: Moment | None = None
    """First moment of a trajectory's end, as 2026-07-01 or 2026-07-01T08:00:00Z."""
    until: Moment | None = None
    """Last moment of a trajectory's end."""
    max_turns: PositiveInt | None = None
    """Maximum turns of a trajectory."""
    max_characters: PositiveInt | None = None
    """Of all messages and answers together."""
    min_reward: float | None = None
    """Of the latest reward; a trajectory without one is left out. So with the next two."""
    max_reward: float | None = None
    """Maximum of the latest reward."""
    min_confidence: Share | None = None
    """Minimum confidence of the latest reward."""
    without: tuple[str, ...] = ()
    """Ids of trajectories to leave out."""
    parent: str | None = None
    """The policy to be trained: what it, or an ancestor, was trained on is left out. `RUN/12`, or a model's folder;
    None takes the stable policy of the first endpoint.
    """
    balance: Literal["none", "domain"] = "none"
    """`domain`: no domain has more than another; with a `limit`, the rarer ones give all they have."""
    limit: PositiveInt | None = None
    """Trajectories to train on at most, the latest ones."""
    holdout: Fraction = 0.1
    """Share of the prompts, by a hash that is always the same, that is never trained on."""
    suite: str | None = None
    """A suite of the gate, whose prompts are left out: a file, or a shipped one's name."""
    ngram: PositiveInt = 13
    """Words in a row that a prompt may not share with one of the suite's, if they hold all that varies in it."""

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
    """A frozen data set to learn from, in the place of rollouts."""

    dataset: str
    """Its id, or its name: then the newest of that name."""
    batch: PositiveInt = 64
    """Trajectories (pairs, for dpo) in an update."""
    epochs: PositiveInt = 1
    """Passes over the data set; `train.updates` may end the run before."""
