"""Evaluations of a run's versions on held-out tasks and conversations: which are due, and what they say."""

from collections.abc import Callable
from dataclasses import dataclass, field

from loomrl.config import EvaluationConfig, Sampling
from loomrl.config.evaluation import Way
from loomrl.evaluation.report import judge
from loomrl.run.stopping import Stopper
from loomrl.telemetry.metric import Metric
from loomrl.types import Trajectory

Trial = Callable[[str, EvaluationConfig, Sampling], list[Trajectory]]
"""Name, settings and sampling of an evaluation → the current version's attempts at the held-out tasks."""


@dataclass(slots=True)
class Evaluations:
    """Evaluations of a run. Each version is evaluated at most once in each way of acting.

    They draw from random streams of their own, so a run with evaluations learns as one without.
    """

    settings: EvaluationConfig
    sampling: Sampling
    """The sampling of training."""
    trial: Trial | None
    """None without environments."""
    measure_loss: Callable[[], float] | None = None
    """The current version's loss on held-out conversations, if there are some."""
    _loss: tuple[int, float] | None = None
    """The version measured last, and its loss."""
    _attempts: dict[tuple[int, Way], list[Trajectory]] = field(default_factory=dict)
    """Attempts by version and way; only the latest version's are kept."""
    _success: tuple[int, float | None] = (-1, None)
    """The version judged last, and its success."""

    @property
    def are_made(self) -> bool:
        """True if versions are evaluated during training."""
        return self.settings.every is not None or self.measure_loss is not None

    def is_due(self, update: int, *, at_end: bool) -> bool:
        """True after every so many updates, and at both ends of the run."""
        every = self.settings.every
        return self.are_made and (at_end or (every is not None and update % every == 0))

    def judge(self, version: int, stopper: Stopper) -> dict[str, float]:
        """Metrics of the current version; none of success if every attempt failed, so that nothing is known."""
        loss = self.loss(version)
        metrics: dict[str, float] = {} if loss is None else {Metric.EVALUATED_LOSS: loss}
        return metrics if self.settings.every is None or self.trial is None else metrics | self._try(version, stopper)

    def loss(self, version: int) -> float | None:
        """The current version's loss on held-out conversations; None if there are none."""
        if self.measure_loss is None:
            return None
        if self._loss is None or self._loss[0] != version:
            self._loss = (version, self.measure_loss())
        return self._loss[1]

    def _try(self, version: int, stopper: Stopper) -> dict[str, float]:
        report = judge(self.settings.way, self.attempts(version, self.settings.way))
        overall = report.overall
        self._success = (version, overall.success.mean)
        stopper.judge(overall.success.mean)
        if overall.success.mean is None or overall.reward is None:
            return {}
        metrics: dict[str, float] = {Metric.EVALUATED: overall.success.mean, Metric.EVALUATED_REWARD: overall.reward}
        for name, score in report.by_family.items():
            if score.success.mean is not None:
                metrics[Metric.EVALUATED.of(name)] = score.success.mean
        return metrics

    def score(self, version: int, trained: float | None) -> float | None:
        """The score by which the best version is chosen: a low loss on held-out conversations; success on held-out
        tasks; or where no version is evaluated, in training. None if it is not known.
        """
        if self.measure_loss is not None:
            return -self._loss[1] if self._loss is not None and self._loss[0] == version else None
        if not self.are_made:
            return trained
        judged, success = self._success
        return success if judged == version else None

    def attempts(self, version: int, way: Way) -> list[Trajectory]:
        """The current version's attempts at the held-out tasks, acting in this way."""
        assert self.trial is not None, "there are environments"
        if (version, way) not in self._attempts:
            self._attempts = {known: made for known, made in self._attempts.items() if known[0] == version}
            self._attempts[version, way] = self.trial(*self.plan(version, way))
        return self._attempts[version, way]

    def plan(self, version: int, way: Way) -> tuple[str, EvaluationConfig, Sampling]:
        """Name, settings and sampling of this evaluation."""
        sampling = self.sampling
        settings = self.settings
        if way == "greedy":
            sampling = sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0})
        if sampling.temperature == 0:  # several attempts would all be the same
            settings = settings.model_copy(update={"attempts": 1})
        return f"{way}-{version}", settings, sampling
