"""The experiment of a loop: when an endpoint's policy is trained anew, on what, how, and how it is released."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field, model_validator

from loomrl.config.basic import Fraction, NonNegative, Positive, PositiveInt
from loomrl.config.data import DataSelection
from loomrl.config.experiment import Experiment
from loomrl.config.language import LanguageAlgorithm
from loomrl.config.pipeline import RewardPipeline
from loomrl.config.release import ReleasePlan
from loomrl.config.root import Root
from loomrl.config.serving import EndpointName
from loomrl.schema import Config

LANGUAGE = "language"
"""The shipped suite."""
USUAL_DATA: Mapping[str, Any] = {"min_reward": 0.5, "max_turns": 50, "balance": "domain"}
"""Settings of `data` where the experiment gives none."""


def _timed(text: str) -> str:
    try:
        CronSim(text, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(f"{text!r} is no cron expression ({error}): write one such as '0 2 * * *', in UTC") from None
    return text


Cron = Annotated[str, AfterValidator(_timed)]
"""Minute, hour, day of the month, month, day of the week; in UTC."""


class Degradation(Config):
    """The policy in production earns less than it did when it became the stable one.

    Its first `window` rewards are its baseline; every later window is compared with it once, when it is full.
    """

    margin: Annotated[float, Field(gt=0, lt=1)] = 0.10
    """It has to earn this much less, and to be proved to earn less."""
    window: Annotated[int, Field(ge=30)] = 300
    """Rewards in a window."""
    error_rate: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Chance of any false alarm, however long one policy is in production."""


class Triggers(Config):
    """Reasons to train beside a person's request; null turns one off."""

    count: PositiveInt | None = 5000
    """So many trajectories since the last training was asked for."""
    schedule: Cron | None = "0 2 * * *"
    """At these moments, if something new was served."""
    degradation: Degradation | None = Degradation()


class LocalPlace(Config):
    """Trainings are processes of the coordinator's machine. They outlive it, and its successor finds them."""

    kind: Literal["local"] = "local"


class RayPlace(Config):
    """Trainings are jobs of a Ray cluster."""

    kind: Literal["ray"] = "ray"
    address: str | None = None
    """The dashboard's, http://HEAD:8265; None takes RAY_ADDRESS, or this machine's."""


Place = Annotated[LocalPlace | RayPlace, Field(discriminator="kind")]


class LoopPatience(Config):
    """What happens when something fails, and how long is waited for it."""

    failures: PositiveInt = 3
    """After so many failures in a row nothing is tried again by itself, and a person is told."""
    infra_minutes: NonNegative = 10.0
    """Pause before a training is tried again that machines, network or databases failed."""
    training_minutes: Positive = 1440.0
    """A training that takes longer is stopped."""
    gate_minutes: Positive = 120.0
    """A training or a gate that takes longer is stopped."""


class Alarms(Config):
    """Conditions that people are told of, beside failures."""

    collection: Fraction = 0.10
    """Share of the trajectories of the last hour that could not be collected."""
    bus_minutes: Positive = 5.0
    """The bus has been away for so long."""
    stuck_minutes: Positive = 60.0
    """A release could not begin for so long."""


class Reports(Config):
    """Reports, beside the one after each job."""

    schedule: Cron | None = "0 8 * * *"
    """Moments of a report; null makes none."""
    usd_per_hour: NonNegative | None = None
    """Price of an hour of training, for the cost of a job; null leaves it open."""


class LoopExperiment(Root):
    """A whole loop: an endpoint, and how its policy learns from what it served."""

    kind: Literal["loop"] = "loop"
    endpoint: EndpointName = "policy"
    """The endpoint whose policy is trained."""
    triggers: Triggers = Triggers()
    rewards: RewardPipeline | None = RewardPipeline()
    """The judgement of what was served; null leaves it to `loomrl rewards run`."""
    data: DataSelection
    """What is trained on; without endpoints and agents, what this endpoint served. Of bounds and balance, those not
    given are: a reward of at least 0.5, at most 50 turns, domains balanced, and nothing that the gate's suite asks.
    """
    days: Positive | None = 30.0
    """Only trajectories of the last days; null takes all."""
    training: Experiment
    """How it is trained; in a file also the name of a shipped experiment, or settings over those of `base`. Its data
    set, name, records and artifacts are the loop's.
    """
    place: Place = LocalPlace()
    """Where trainings run."""
    suite: str = LANGUAGE
    """The gate's: a file, or the name of a shipped one."""
    release: ReleasePlan = ReleasePlan()
    patience: LoopPatience = LoopPatience()
    alarms: Alarms = Alarms()
    reports: Reports = Reports()
    checkpoint_days: Positive | None = 90.0
    """Age of trainings of this loop at which their checkpoints are deleted, all but the best, the last and those that
    were served; null keeps them.
    """
    pace_s: Positive = 5.0
    """Time between two looks."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, raw: Any) -> Any:
        """The endpoint's data, and a data set for the training."""
        if not isinstance(raw, Mapping):
            return raw
        filled = dict(raw)
        data = filled.get("data") or {}
        if isinstance(data, Mapping):
            named = data.get("endpoints") or data.get("agents")
            whose = {} if named else {"endpoints": [filled.get("endpoint", "policy")]}
            filled["data"] = {**USUAL_DATA, "suite": filled.get("suite", LANGUAGE), **data, **whose}
        training = filled.get("training")
        if isinstance(training, Mapping):
            own = training.get("data")
            own = own if isinstance(own, Mapping) else {}
            shared = {name: filled[name] for name in ("name", "store_url", "artifact_url") if name in filled}
            filled["training"] = {**training, **shared, "data": {**own, "dataset": filled.get("endpoint", "policy")}}
        return filled

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not isinstance(self.training.algorithm, LanguageAlgorithm):
            raise ValueError(
                "training.algorithm.kind=custom: a loop needs one whose settings it knows. Take a shipped one"
            )
        if self.data.since is not None or self.data.until is not None:
            raise ValueError("data.since and data.until would be the same for ever: say days=30 instead")
        if self.data.parent is not None:
            raise ValueError("data.parent has no effect: the stable version of the endpoint is trained. Leave it out")
        return self


__all__ = [
    "Alarms",
    "Degradation",
    "LocalPlace",
    "LoopExperiment",
    "LoopPatience",
    "RayPlace",
    "Reports",
    "Triggers",
]
