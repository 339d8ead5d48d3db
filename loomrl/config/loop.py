"""The experiment of a loop: when an endpoint's policy is trained anew, on what, how, and how it is released."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field, model_validator

from loomrl.config.basic import Fraction, NonNegative, Positive, PositiveInt
from loomrl.config.experiment import DataSelection, Experiment
from loomrl.config.language import LanguageAlgorithm
from loomrl.config.release import ReleasePlan
from loomrl.config.rewards import RewardPipeline
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
    """Detection that the policy in production earns less than when it became stable.

    Its first `window` rewards are its baseline; every later window is compared with it once, when it is full.
    """

    margin: Annotated[float, Field(gt=0, lt=1)] = 0.10
    """Minimum drop of the mean reward; the drop must also be statistically proved."""
    window: Annotated[int, Field(ge=30)] = 300
    """Rewards in a window."""
    error_rate: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Probability of any false alarm during a policy's whole time in production."""


class Triggers(Config):
    """Automatic reasons to train; null turns one off."""

    count: PositiveInt | None = 5000
    """Train after this many trajectories since the last training was requested."""
    schedule: Cron | None = "0 2 * * *"
    """Cron expression for trainings, skipped if nothing new was served."""
    degradation: Degradation | None = Degradation()


class LocalPlace(Config):
    """Trainings run as processes on the coordinator's machine. They outlive the coordinator, and its successor finds
    them."""

    kind: Literal["local"] = "local"


class RayPlace(Config):
    """Trainings run as jobs of a Ray cluster."""

    kind: Literal["ray"] = "ray"
    address: str | None = None
    """Address of the cluster's dashboard, such as http://HEAD:8265; null takes RAY_ADDRESS or this machine's."""


Place = Annotated[LocalPlace | RayPlace, Field(discriminator="kind")]


class LoopPatience(Config):
    """Retries and time limits."""

    failures: PositiveInt = 3
    """Number of consecutive failures after which retries stop and an alert is raised."""
    infra_minutes: NonNegative = 10.0
    """Pause before retrying a training that failed because of machines, network or databases."""
    training_minutes: Positive = 1440.0
    """Time limit of a training."""
    gate_minutes: Positive = 120.0
    """Time limit of the gate."""


class Alarms(Config):
    """Conditions that raise an alert, in addition to failures."""

    collection: Fraction = 0.10
    """Share of the last hour's trajectories that could not be collected above which an alert is raised."""
    bus_minutes: Positive = 5.0
    """Minutes without the bus after which an alert is raised."""
    stuck_minutes: Positive = 60.0
    """Minutes for which a release could not begin after which an alert is raised."""


class Reports(Config):
    """Reports, in addition to the one after each job."""

    schedule: Cron | None = "0 8 * * *"
    """Cron expression for reports; null makes none."""
    usd_per_hour: NonNegative | None = None
    """Price of an hour of training, for the cost of a job; null leaves the cost out."""


class LoopExperiment(Root):
    """A loop: an endpoint and how its policy learns from what it served."""

    kind: Literal["loop"] = "loop"
    endpoint: EndpointName = "policy"
    """The endpoint whose policy is trained."""
    triggers: Triggers = Triggers()
    rewards: RewardPipeline | None = RewardPipeline()
    """The reward pipeline for what was served; null leaves it to `loomrl rewards run`."""
    data: DataSelection
    """Selection of training data; without endpoints and agents, what this endpoint served. Unless set otherwise: a
    reward of at least 0.5, at most 50 turns, balanced domains, and no prompts of the gate's suite."""
    days: Positive | None = 30.0
    """Use only trajectories of the last days; null uses all."""
    training: Experiment
    """The training experiment; in a file also the name of a shipped one, or settings that override those of `base`. The
    loop sets its data set, name, records and artifacts."""
    place: Place = LocalPlace()
    """Place where trainings run."""
    suite: str = LANGUAGE
    """The gate's suite: a file or the name of a shipped one."""
    release: ReleasePlan = ReleasePlan()
    patience: LoopPatience = LoopPatience()
    alarms: Alarms = Alarms()
    reports: Reports = Reports()
    checkpoint_days: Positive | None = 90.0
    """Days after which checkpoints of this loop's trainings are deleted, except the best, the last and any that were
    served; null keeps all."""
    pace_s: Positive = 5.0
    """Seconds between two rounds of the coordinator."""

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
