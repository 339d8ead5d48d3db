"""A Sweep: many trials of one experiment with different settings, and the rules for continuing them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from loomrl.canonical import content_hash
from loomrl.config.basic import Positive, PositiveInt, Seed
from loomrl.config.control_experiment import ControlExperiment
from loomrl.config.experiment import Experiment
from loomrl.schema import Config


class _Among(Config):
    """One of several values."""

    values: tuple[Any, ...] = Field(min_length=1)
    """Values that the setting accepts."""

    @property
    def edges(self) -> tuple[Any, ...]:
        """The values most likely to be out of bounds."""
        return self.values


class Choice(_Among):
    """One of these values, chosen for every trial."""

    kind: Literal["choice"] = "choice"


class Grid(_Among):
    """Each of these values in separate trials; `samples` is the number of rounds through the whole grid."""

    kind: Literal["grid"] = "grid"


class _Between(Config):
    low: Any
    """Lowest value."""
    high: Any
    """Highest value."""

    @property
    def edges(self) -> tuple[Any, ...]:
        """The values most likely to be out of bounds."""
        return (self.low, self.high)

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")
        return self


class Uniform(_Between):
    """A number in a range, uniformly."""

    kind: Literal["uniform"] = "uniform"
    low: float
    high: float


class LogUniform(_Between):
    """A number in a range, uniformly by logarithm."""

    kind: Literal["loguniform"] = "loguniform"
    low: Positive
    high: Positive


class RandInt(_Between):
    """An integer from low to high, both included."""

    kind: Literal["randint"] = "randint"
    low: int
    high: int


Dimension = Annotated[Choice | Grid | Uniform | LogUniform | RandInt, Field(discriminator="kind")]


class Asha(Config):
    """Asynchronous successive halving: only the best trials continue beyond each rung."""

    kind: Literal["asha"] = "asha"
    grace: PositiveInt | None = None
    """Updates or steps before the first rung; null means an eighth of the budget."""
    factor: float = Field(3.0, gt=1)
    """One in this many trials passes a rung; each rung is this many times higher than the one before."""


class PBT(Config):
    """Population-based training: at intervals, bad trials continue from good trials' weights with other settings."""

    kind: Literal["pbt"] = "pbt"
    interval: PositiveInt | None = None
    """Updates or steps between comparisons; null means an eighth of the budget."""
    quantile: float = Field(0.25, gt=0, le=0.5)
    """Share of the worst trials that are replaced by the same number of the best."""
    resample: float = Field(0.25, ge=0, le=1)
    """Probability of drawing a setting again instead of multiplying it by 1.2 or 0.8."""


class RandomSearch(Config):
    """Independent random trials."""

    kind: Literal["random"] = "random"


class Optuna(Config):
    """Trials are drawn by earlier results (tree-structured Parzen estimators; needs `loomrl[sweep]`)."""

    kind: Literal["optuna"] = "optuna"


OF_THE_SWEEP = ("kind", "name", "store_url", "artifact_url", "train.folder", "train.updates", "train.steps")
"""Settings shared by all trials; the last two are the sweep's `budget`."""
BEGINNING = (
    "seed",
    "environment.kind",
    "environment.id",
    "environment.entry_point",
    "environments",
    "curriculum",
    "algorithm.kind",
    "algorithm.model",
    "algorithm.network",
    "algorithm.objectives",
    "algorithm.warm_start",
    "algorithm.initial_temperature",
    "algorithm.warmup",
    "algorithm.normalize_observations",
    "algorithm.replay",
    "algorithm.n_step",
)
"""Settings of a policy's start, which have no effect on inherited weights."""


class Sweep(Config):
    """A search for settings: the space, the metric, the scheduler."""

    other_words: ClassVar[Mapping[str, str]] = {"trials": "samples", "num_samples": "samples", "param_space": "space"}
    kind: Literal["sweep"] = "sweep"
    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=80)
    """Name of the sweep."""
    experiment: Annotated[Experiment | ControlExperiment, Field(discriminator="kind")]
    """Experiment that trials start from; in a file also a file or the name of a shipped experiment."""
    space: dict[str, Dimension] = Field(min_length=1)
    """Path of a setting of the experiment → its possible values."""
    metric: str | None = None
    """Metric that judges trials; null means `success`, or `return/training` for control."""
    mode: Literal["max", "min"] = "max"
    """Direction of the metric."""
    window: PositiveInt = 5
    """Number of latest lines over which a trial's metric is averaged."""
    samples: PositiveInt = 8
    """Number of trials; with a grid, rounds through it."""
    concurrency: PositiveInt | None = None
    """Concurrent trials; null means as many as Ray has room for."""
    budget: PositiveInt | None = None
    """Maximum updates (language) or environment steps (control) of a trial; null leaves it to the experiment."""
    scheduler: Annotated[Asha | PBT, Field(discriminator="kind")] | None = None
    """Scheduler that stops trials; null runs every trial to its end."""
    search: Annotated[RandomSearch | Optuna, Field(discriminator="kind")] = RandomSearch()
    """Search method that draws a trial's settings."""
    retries: int = Field(1, ge=0)
    """Number of times a failed trial is resumed."""
    seed: Seed = 0
    """Seed of the search; the experiment has its own."""

    @property
    def sha256(self) -> str:
        """Content hash, as runs are known by."""
        return content_hash(self.plain)

    @model_validator(mode="after")
    def _check_space(self) -> Self:
        for path in self.space:
            held = next((name for name in OF_THE_SWEEP if _is_in(path, name)), None)
            if held is not None:
                raise ValueError(f"space.{path}: {held} is the same for all trials. Set it in experiment, or budget")
        return self

    @model_validator(mode="after")
    def _check_search_and_scheduler(self) -> Self:
        grids = [path for path, dimension in self.space.items() if isinstance(dimension, Grid)]
        if grids and isinstance(self.search, Optuna):
            raise ValueError(f"space.{grids[0]}: optuna draws, it walks through no grid. Make it a choice")
        for path, dimension in self.space.items():
            if isinstance(self.search, Optuna) and isinstance(dimension, Choice):
                odd = [v for v in dimension.values if not isinstance(v, str | int | float | None)]
                if odd:
                    raise ValueError(f"space.{path}: optuna chooses among numbers and words, not {odd[0]!r}")
        if isinstance(self.scheduler, PBT):
            self._fits_pbt(self.scheduler, grids)
        if isinstance(self.scheduler, Asha) and self.first_rung > self.limit:
            raise ValueError(f"scheduler.grace={self.first_rung} is above the budget of {self.limit} {self.unit}")
        return self

    def _fits_pbt(self, scheduler: PBT, grids: list[str]) -> None:
        if isinstance(self.search, Optuna):
            raise ValueError("search.kind=optuna has no effect on pbt, which finds new settings itself: leave it out")
        if self.samples < 2 and not grids:
            raise ValueError(f"samples={self.samples}: pbt compares trials, it takes two at least")
        if self.interval >= self.limit:
            raise ValueError(
                f"scheduler.interval={self.interval}: nothing comes after the budget of {self.limit} {self.unit}"
            )
        for path in self.space:
            if any(_is_in(path, name) for name in BEGINNING):
                raise ValueError(
                    f"space.{path} has no effect with pbt: it says how a policy begins, and weights that are taken "
                    "over have begun already. Search it with scheduler.kind=asha"
                )

    @property
    def unit(self) -> Literal["updates", "steps"]:
        """Unit of the budget."""
        return "steps" if isinstance(self.experiment, ControlExperiment) else "updates"

    @property
    def judged_by(self) -> str:
        """The metric's name."""
        return self.metric or ("return/training" if isinstance(self.experiment, ControlExperiment) else "success")

    @property
    def limit(self) -> int:
        """Maximum updates or steps of a trial."""
        train = self.experiment.train
        return self.budget or int(getattr(train, self.unit))

    @property
    def first_rung(self) -> int:
        """The first point at which ASHA judges."""
        grace = self.scheduler.grace if isinstance(self.scheduler, Asha) else None
        return grace or max(1, self.limit // 8)

    @property
    def interval(self) -> int:
        """Interval between two comparisons of PBT."""
        interval = self.scheduler.interval if isinstance(self.scheduler, PBT) else None
        return interval or max(1, self.limit // 8)

    def at(self, point: Mapping[str, Any]) -> Experiment | ControlExperiment:
        """The experiment of a trial; a ConfigError if its settings are invalid."""
        budget = {} if self.budget is None else {f"train.{self.unit}": self.budget}
        kinds_first = sorted(point, key=lambda path: not path.endswith("kind"))  # a new kind replaces its whole branch
        return self.experiment.override({**budget, **{path: point[path] for path in kinds_first}})


def _is_in(path: str, branch: str) -> bool:
    return path == branch or path.startswith(f"{branch}.") or branch.startswith(f"{path}.")
