"""A run while it is trained, of either kind: resumed or begun, update by update, judged, kept, over."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from loomrl.config import AnyExperiment
from loomrl.experiments.summary import RunSummary
from loomrl.observability.presence import present
from loomrl.store import LoomDB
from loomrl.store.replicas import ReplicaRole
from loomrl.store.runs import Claim
from loomrl.telemetry.sink import open_sinks

if TYPE_CHECKING:
    from loomrl.observability.exposition import Registry

Listener = Callable[[int, Mapping[str, float]], None]
"""Told of every update: how far the run is, and the update's metrics."""


class Training(Protocol):
    """A run while it is trained: the algorithm of token policies itself, or a `ControlTraining` of another."""

    listen: Listener
    """Called with every update before its checkpoint counts."""

    @property
    def experiment(self) -> AnyExperiment:
        """The experiment as it is on record."""

    @property
    def claim(self) -> Claim:
        """Ours on the run."""

    @property
    def done(self) -> int:
        """Updates, or environment steps: the number of the present version."""

    @property
    def limit(self) -> int:
        """The value of `done` at the end."""

    @property
    def stopped(self) -> str | None:
        """The reason why the run is over; None while it is not."""

    def begin(self) -> None:
        """Resume from the newest checkpoint; without any, make and keep what training begins with."""

    def train(self) -> Any:
        """One more update; its metrics go to `listen`, and what is due is kept."""

    def end(self, reason: str) -> None:
        """End here, with a checkpoint from which the run can be resumed."""

    def keep(self) -> str:
        """The present version's id, of which there is a checkpoint from now on."""

    def save_to_path(self, path: str) -> Any:
        """Write all that another run needs to take this one over."""

    def stop(self) -> None:
        """Let go of learners and runners."""


class Reporter(Protocol):
    """A run's results, for people."""

    def begin(self) -> None:
        """Begin or resume the run, and judge what it begins with."""

    def note(self, metrics: Mapping[str, float]) -> str:
        """The metrics on a line of the screen."""

    def summary(self) -> RunSummary:
        """The run's summary, once it is over."""


@contextmanager
def metrics_kept(
    training: Training, experiment: AnyExperiment, run: str, db: LoomDB, registry: "Registry | None" = None
) -> Iterator[Listener]:
    """Write metrics to the run's files, LoomDB and W&B, and show them in `registry`.

    What a killed run wrote after its last checkpoint is cut off.
    """
    resolved = experiment.plain
    step = training.done
    with open_sinks(experiment.train, run=run, experiment=resolved, step=step, db=db, registry=registry) as sink:
        yield sink.write


@contextmanager
def scraped(db: LoomDB, run: str, address: str) -> Iterator["Registry"]:
    """A registry that Prometheus finds by LoomDB and scrapes at `HOST:PORT`, until the context ends."""
    from loomrl.observability.exposition import door_at, exposed, metrics_route, process_registry  # with a server

    registry = process_registry()
    door = door_at(address)
    with (
        exposed(door, [metrics_route(registry)]),
        present(db, ReplicaRole.TRAINER, address=f"{door.host}:{door.port}", run=run),
    ):
        yield registry
