"""Sinks for a run's metrics: JSON lines and LoomDB always, Weights & Biases if configured, TensorBoard if installed,
and Prometheus if it may scrape the run.
"""

import json
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from loomrl.config import Records, WandB
from loomrl.errors import ArtifactError, ConfigError
from loomrl.files import make_private, private, write_whole
from loomrl.observability.family import TRAINING_AT, TRAINING_PREFIX, TRAINING_STEP, Family
from loomrl.process import Closing
from loomrl.store import LoomDB
from loomrl.store.view.metrics import NewMetrics, append_metrics, cut_metrics
from loomrl.telemetry.metric import PHASES, Metric

STEP = "step"
TIME = "time"
"""Keys of a line beside its metrics."""
HEADLINES = (
    Metric.SUCCESS,
    Metric.RETURN,
    Metric.REWARD_TOTAL,
    Metric.SUPERVISED_LOSS,
    Metric.PREFERENCE_ACCURACY,
    Metric.POLICY_LOSS,
)
"""The first of these that an update has is the run's small curve."""


class Sink(Closing):
    """Takes the metrics of each update, and possibly of the same update again after a restart."""

    @abstractmethod
    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store the metrics of update `step`; called before that update's checkpoint is committed, so that none is
        lost.
        """

    @abstractmethod
    def close(self) -> None:
        """Flush everything; nothing can be written afterwards."""


class JsonLines(Sink):
    """One JSON object per update in `file`: `{"step": 3, "time": 1.7e9, "success": 0.5, …}`; NaN and infinity are null.

    Opened at `step`, it drops every line of a later step and an incomplete last line, so that the file of a resumed run
    equals that of an uninterrupted one, except for `time`. A step that is already in the file stays as it is.
    """

    def __init__(self, file: Path, *, step: int, clock: Callable[[], float] = time.time) -> None:
        make_private(file.parent)
        self._last = _restore(file, step) if file.exists() else None
        self._clock = clock
        self._stream = open(file, "a", encoding="utf-8", opener=private)  # noqa: SIM115 - `close` closes it

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line; it is flushed to the operating system."""
        if self._last is not None and step <= self._last:
            return
        values = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        line = json.dumps({STEP: step, TIME: self._clock(), **values}, allow_nan=False)
        self._stream.write(line + "\n")
        self._stream.flush()
        self._last = step

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class Stored(Sink):
    """A row per update in LoomDB, for readers on other machines. Opened at `step`, it drops those of later steps."""

    def __init__(self, db: LoomDB, run: str, *, step: int, clock: Callable[[], float] = time.time) -> None:
        cut_metrics(db, run, step=step)
        self._db = db
        self._run = run
        self._clock = clock

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store one row."""
        append_metrics(self._db, new_metrics(self._run, step, metrics), at=self._clock())

    def close(self) -> None:
        """Nothing is left to do."""


class WandBRun(Sink):
    """A run of Weights & Biases under the run's own id, so that a resumed run continues there."""

    def __init__(self, settings: WandB, *, run: str, experiment: Mapping[str, Any], folder: Path) -> None:
        import wandb  # seconds, and only for whom it is

        make_private(folder)
        try:
            self._run = wandb.init(
                project=settings.project,
                id=run,
                name=run,
                resume="allow",
                mode=settings.mode,
                config=dict(experiment),
                dir=folder,
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.Error as error:
            raise ConfigError(
                f"train.wandb.mode={settings.mode!r}, run {run!r}: {error}. "
                "mode=offline works without an account; `wandb sync` uploads such a run later."
            ) from error

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log one update. W&B itself ignores a step that was already logged."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run: offline everything is on disk, online everything is uploaded."""
        self._run.finish()


class TensorBoard(Sink):
    """Scalars by step in `folder`, for TensorBoard; points of a resumed run hide the repeated ones."""

    def __init__(self, folder: Path, *, step: int) -> None:
        from tensorboardX import SummaryWriter

        purged = step + 1 if folder.exists() else None
        self._writer = SummaryWriter(logdir=str(folder), purge_step=purged, filename_suffix=f".{step}")

    @staticmethod
    def is_there() -> bool:
        """True if TensorBoard and the writer that Ray uses are installed."""
        return all(find_spec(name) is not None for name in ("tensorboard", "tensorboardX"))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to every curve."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class Exposed(Sink):
    """Gauges of the latest update, for Prometheus: `reward/part/accuracy` is `loomrl_training_reward_part` with a part.

    A metric that an update lacks keeps its last value. One that is not finite is absent until it is.
    """

    def __init__(self, registry: CollectorRegistry, *, run: str) -> None:
        self._run = run
        self._step = TRAINING_STEP.gauge(registry).labels(run)
        self._at = TRAINING_AT.gauge(registry).labels(run)
        self._gauges = {metric: training_family(metric).gauge(registry) for metric in Metric}

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show these from now on."""
        self._step.set(step)
        self._at.set_to_current_time()
        for name, value in metrics.items():
            metric, part = split(name)
            if metric is None:
                continue
            if math.isfinite(value):
                self._gauges[metric].labels(self._run, part).set(value)
            else:
                with suppress(KeyError):
                    self._gauges[metric].remove(self._run, part)

    def close(self) -> None:
        """Nothing is open."""


def training_family(metric: Metric) -> Family:
    """The family of a run's metric."""
    name = TRAINING_PREFIX + metric.value.replace("/", "_")
    return Family(name, "gauge", metric.meaning, ("run", "part"), "trainer")


def split(name: str) -> tuple[Metric | None, str]:
    """The metric that a name is of, and its part: the longest that fits; None for a name that is no metric's."""
    whole = name
    part = ""
    while whole:
        if whole in METRICS:
            return METRICS[whole], part
        whole, _, last = whole.rpartition("/")
        part = f"{last}/{part}" if part else last
    return None, ""


METRICS = {metric.value: metric for metric in Metric}


class Sinks(Sink):
    """Several sinks as one."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell every sink."""
        for sink in self._sinks:
            sink.write(step, metrics)

    def close(self) -> None:
        """Close every sink, even if one of them cannot be."""
        with ExitStack() as stack:
            for sink in reversed(self._sinks):
                stack.callback(sink.close)


def metrics_file(train: Records, run: str) -> Path:
    """The path of a run's JSON lines."""
    return Path(train.folder) / run / "metrics.jsonl"


def new_metrics(run: str, step: int, metrics: Mapping[str, float]) -> NewMetrics:
    """The row of an update: what is not finite is None."""
    values = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    name = headline_in(values)
    headline = None if name is None else values[name]
    return NewMetrics(run=run, step=step, values=values, headline=headline, tokens=_sampled_tokens(values))


def headline_in(values: Mapping[str, float | None]) -> Metric | None:
    """The metric of an update that stands for its run, if it has one."""
    return next((name for name in HEADLINES if values.get(name) is not None), None)


def _sampled_tokens(values: Mapping[str, float | None]) -> float | None:
    """The tokens that engines sampled in an update; None where none are told."""
    rate = values.get(Metric.ENGINE_TOKENS_PER_S)
    phases = PHASES if Metric.OVERLAP in values else (Metric.TIME_ROLLOUT,)
    return None if rate is None else rate * math.fsum(values.get(phase) or 0.0 for phase in phases)


def open_sinks(
    train: Records,
    *,
    run: str,
    experiment: Mapping[str, Any],
    step: int,
    db: LoomDB | None = None,
    registry: CollectorRegistry | None = None,
) -> Sink:
    """All sinks of `train` as one, opened for a run that has done `step` updates. `registry` is what is scraped."""
    file = metrics_file(train, run)
    sinks: list[Sink] = [] if db is None else [Stored(db, run, step=step)]
    if train.wandb is not None:
        sinks.append(WandBRun(train.wandb, run=run, experiment=experiment, folder=file.parent))
    if TensorBoard.is_there():
        sinks.append(TensorBoard(file.parent / "tensorboard", step=step))
    if registry is not None:
        sinks.append(Exposed(registry, run=run))
    return Sinks([JsonLines(file, step=step), *sinks])


def read_metrics(file: Path) -> list[dict[str, float]]:
    """The lines of a run in order, `step` and `time` among their keys; null reads as NaN. None if there is no file."""
    return [{name: math.nan if value is None else value for name, value in row.items()} for _, row in _lines(file)]


def _restore(file: Path, step: int) -> int | None:
    """Cut the file back to complete lines of steps up to `step`; returns the last step left."""
    kept = [(line, row) for line, row in _lines(file) if row[STEP] <= step]
    text = "".join(line + "\n" for line, _ in kept)
    if text.encode() != file.read_bytes():
        write_whole(file, text.encode())
    return kept[-1][1][STEP] if kept else None


def _lines(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Every complete line as text and as data. Only the last one may be incomplete."""
    if not file.exists():
        return []
    texts = file.read_text(encoding="utf-8", errors="replace").split("\n")
    rows = []
    for number, text in enumerate(texts, 1):
        try:
            rows.append((text, json.loads(text)))
        except json.JSONDecodeError as error:
            if number < len(texts):
                raise ArtifactError(
                    f"{file}, line {number}: not a line of metrics: {text[:80]!r}. Repair it or move the file away."
                ) from error
    return rows
