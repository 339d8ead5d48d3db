"""Cost of a controller with 1 to 2,048 rollout actors: its own code and its hub are real, actors and learner replayed.

Real, and measured: drawing tasks, planning, sending plans through RLlib's actor manager and Ray to other processes,
receiving trajectories, the hub on SQLite (open, append, lease, ack), the curriculum, recorded checkpoints, sending
weights to every actor. Replayed: the work of actors and learner, whose times and results a short real run records.
Thousands of actors share a few processes, which answer at once with recorded trajectories; the recorded seconds are
counted, not waited for. Not included: a network, and contention between thousands of processes.
"""

import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import ray
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.actor_manager import FaultTolerantActorManager

from loomrl.algorithms.language.collector import TurnCollector
from loomrl.algorithms.language.runner_group import RunnerGroup
from loomrl.algorithms.timing import Phases
from loomrl.config import Experiment, LanguagePolicy
from loomrl.experiments.algorithms import open_algorithm, ray_running
from loomrl.experiments.bench.rounds import machine, medians, say
from loomrl.experiments.shipped import TRAINED, resolve
from loomrl.gym.episode import Plan
from loomrl.gym.task_mixture import open_task_mixture
from loomrl.hub import Hub, Selection, open_hub
from loomrl.inference.weights.sealed import Sealed
from loomrl.run.record import begin_run
from loomrl.store import beside, open_store
from loomrl.store.notes import Notes
from loomrl.store.runs import Claim
from loomrl.telemetry.metric import Metric
from loomrl.types import Trajectory

HOSTS = 2
"""Processes that stand for all actors."""
SHARDED_FROM = 1024
SHARDS = 4
"""Actors from which on the hub has so many shards."""
TARGET = 0.05
"""Share of an iteration that the controller may take at 256 actors."""


@dataclass(frozen=True, slots=True)
class ScaleSize:
    """The amount of work."""

    actors: tuple[int, ...] = (1, 4, 16, 64, 256, 512, 1024, 2048)
    warm_steps: int = 300
    updates: int = 12
    rounds: int = 5


FULL = ScaleSize()
QUICK = ScaleSize(actors=(1, 4), warm_steps=10, updates=2, rounds=1)


@dataclass(frozen=True, slots=True)
class ActorRecording:
    """A real run: time and results of one actor's share, and the learning time."""

    shares_s: tuple[float, ...]
    """Seconds in which one actor played one group, update by update."""
    learn_s: float
    """Learner seconds per attempt."""
    trajectories: tuple[Trajectory, ...]
    sealed: Sealed


def measure(size: ScaleSize = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench scale`."""
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as name, ray_running(1):
        say("recording a short real run")
        recording = record(Path(name), size)
        rows = []
        gc.collect()
        gc.freeze()  # as a training does, before its first update
        hosts = [ray.remote(Host).options(num_cpus=0).remote(recording.trajectories) for _ in range(HOSTS)]
        for count in size.actors:
            rows.append(simulate(Path(name) / str(count), recording, hosts, count=count, rounds=size.rounds))
            say(f"{count} actors: controller {rows[-1]['controller_share']:.1%} of an iteration")
    return _figures(recording, rows)


def _figures(recording: ActorRecording, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    by_count = {row["actors"]: row for row in rows}
    figures: dict[str, Any] = {
        "controller_share_256": by_count[256]["controller_share"] if 256 in by_count else None,
        "target": TARGET,
        "recorded": {
            "share_s": round(statistics.median(recording.shares_s), 4),
            "learn_s_per_attempt": round(recording.learn_s, 5),
            "tokens_per_attempt": round(statistics.mean(_tokens(t) for t in recording.trajectories), 1),
            "weights_mb": round(sum(t.nbytes for t in recording.sealed.weights.values()) / 1e6, 2),
        },
        "first_bottleneck": _first_bottleneck(rows),
        "rows": list(rows),
        "machine": machine(ray=ray.__version__),
    }
    return figures


def _first_bottleneck(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first part besides the rollout that takes longer than it, and the number of actors at which it does."""
    parts = ("learn_s", "controller_s", "hub_s", "publish_s")
    for row in rows:
        slow = [part for part in parts if row[part] > row["rollout_s"]]
        if slow:
            return {"part": max(slow, key=lambda part: float(row[part])).removesuffix("_s"), "actors": row["actors"]}
    return {"part": "rollout", "actors": rows[-1]["actors"]}


# -- a short real run -------------------------------------------------------------------------------------------------


def record(folder: Path, size: ScaleSize) -> ActorRecording:
    """The demo on one core, whose update is one actor's share of a large one: a group."""
    experiment = _experiment(folder / "real").override(
        {
            "algorithm.warm_start.steps": size.warm_steps,
            "rollout.groups_per_update": 1,
            "train.updates": size.updates,
            "train.checkpoint_every": size.updates,
        }
    )
    history: list[dict[str, float]] = []
    algo = open_algorithm(experiment, run="real").build_algo()
    algo.listen = lambda done, metrics: history.append(dict(metrics))
    while algo.stopped is None:
        algo.train()
    trajectories = tuple(t for _, t in algo.source.hub.replay(selection=Selection(run="real")))
    sealed = algo._first_of(lambda learner: learner.seal(algo.done))
    algo.stop()
    settled = history[1:]
    learn_s = statistics.median(line[Metric.TIME_LEARN] for line in settled) / experiment.rollout.group_size
    return ActorRecording(tuple(line[Metric.TIME_ROLLOUT] for line in settled), learn_s, trajectories, sealed)


def _experiment(folder: Path) -> Experiment:
    experiment = resolve([TRAINED]).override(
        {
            "store_url": f"sqlite:///{folder}/loom.db",
            "artifact_url": f"{folder}/artifacts",
            "train.folder": f"{folder}/runs",
        }
    )
    assert isinstance(experiment, Experiment)
    folder.mkdir(parents=True)
    return experiment


# -- the controller, with many actors ---------------------------------------------------------------------------------


def simulate(
    folder: Path, recording: ActorRecording, hosts: Sequence[Any], *, count: int, rounds: int
) -> dict[str, Any]:
    """An iteration with `count` actors, a group for each: medians of rounds, after one that warms up.

    It is synchronous: rollouts, then the hub, the recorded learner, and weights for all. `balanced` has as many
    learners as actors; `rollout_s_for_target` is the rollout time at which the controller meets the target.
    """
    experiment = _experiment(folder).override(
        {
            "rollout.runners": count,
            "rollout.groups_per_update": count,
            "train.checkpoint_every": 1,
            "hub.shards": SHARDS if count >= SHARDED_FROM else 1,
        }
    )
    runners = RunnerGroup(Actors(hosts, count), timeout_s=experiment.hub.group_timeout_s)
    attempts = count * experiment.rollout.group_size
    rng = random.Random(count)
    found: list[dict[str, float]] = []
    with ExitStack() as stack:
        collector = stack.enter_context(_collector(experiment, runners))
        clock = PartClock()
        collector.hub = cast(Hub, MeteredHub(collector.hub, clock))
        ledger = collector.ledger(stack.enter_context(open_store(experiment.store_url)), Claim("scale", 1, "bench"))
        _publish(runners, replace(recording.sealed, version=0))
        for done in range(rounds + 1):
            clock.start()
            groups, _ = collector.collect(_policy(experiment, done), Phases())
            collector.advance(groups)
            ledger.commit(collector.done, _folder(folder / f"checkpoint-{done}"), collector.state_dict())
            clock.stop()
            with clock.spent("publish"):
                _publish(runners, replace(recording.sealed, version=done + 1))
            found.append(clock.taken() | {"rollout": max(rng.choices(recording.shares_s, k=count))})
            assert sum(len(group.trajectories) for group in groups) == attempts
    return _row(count, attempts, recording, found[1:])


def _publish(runners: RunnerGroup, sealed: Sealed) -> None:
    """Weights for all, an empty probe, and admission."""
    runners.load(sealed)
    runners.probe(())
    runners.admit(sealed.version)


def _row(count: int, attempts: int, recording: ActorRecording, found: Sequence[dict[str, float]]) -> dict[str, Any]:
    median = medians(found)
    learn_s = recording.learn_s * attempts
    own_s = sum(median[part] for part in ("controller", "hub", "publish"))
    iteration_s = median["rollout"] + learn_s + own_s
    balanced_s = median["rollout"] + learn_s / count + own_s
    seconds = {f"{part}_s": round(value, 4) for part, value in median.items()}
    return {
        "actors": count,
        "attempts": attempts,
        "iteration_s": round(iteration_s, 3),
        **seconds,
        "learn_s": round(learn_s, 4),
        "controller_share": round(median["controller"] / iteration_s, 4),
        "controller_share_balanced": round(median["controller"] / balanced_s, 4),
        "rollout_s_for_target": round(max(0.0, median["controller"] / TARGET - own_s - learn_s / count), 2),
        "controller_ms_per_attempt": round(1e3 * median["controller"] / attempts, 3),
        "hub_ms_per_attempt": round(1e3 * median["hub"] / attempts, 3),
        "publish_ms_per_actor": round(1e3 * median["publish"] / count, 3),
    }


class Host:
    """A process that stands for many actors: it answers at once with recorded trajectories, under the plans' ids."""

    def __init__(self, recorded: Sequence[Trajectory]) -> None:
        self._recorded = recorded
        self.admitted: int | None = None
        self.worker_index = 0

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function with this host, as RLlib's runners do."""
        return func(self, *args, **kwargs)

    def ping(self) -> str:
        """Report as alive."""
        return "pong"

    def load(self, sealed: Sealed) -> None:
        """Receive weights, and ignore them."""

    def probe(self, requests: Sequence[Any]) -> list[Any]:
        """An empty answer."""
        return []

    def admit(self, version: int) -> None:
        """Record the version."""
        self.admitted = version

    def sample(self, *, plans: Sequence[Plan]) -> list[Trajectory]:
        """A recorded trajectory for every plan."""
        played = []
        for number, plan in enumerate(plans):
            attempt = plan.attempt
            about: dict[str, Any] = {"task": attempt.task, "group": attempt.group, "group_size": attempt.group_size}
            about |= {"first_version": attempt.version, "last_version": attempt.version, "run": attempt.run}
            played.append(replace(self._recorded[number % len(self._recorded)], id=attempt.id, **about))
        return played


class Actors(EnvRunnerGroup):
    """RLlib's group of runners, whose actors share a few processes."""

    def __init__(self, hosts: Sequence[Any], count: int) -> None:
        actors = [hosts[number % len(hosts)] for number in range(count)]
        self._worker_manager = FaultTolerantActorManager(actors, init_id=1)
        self._local_env_runner = None
        self._ignore_ray_errors_on_env_runners = False
        self._num_env_runners_dropped_lifetime = 0

    def probe_unhealthy_env_runners(self, timeout_seconds: float | None = None) -> list[int]:
        """RLlib's actor manager, without its configuration."""
        return list(self._worker_manager.probe_unhealthy_actors(timeout_seconds=timeout_seconds or 30.0))


@dataclass(slots=True)
class PartClock:
    """CPU seconds of this process in all threads: of the controller, and of other parts within it."""

    _begun: float = 0.0
    _whole: float = 0.0
    _parts: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Start timing the controller."""
        self._parts = {"hub": 0.0, "publish": 0.0}
        self._begun = time.process_time()

    def stop(self) -> None:
        """Stop timing the controller."""
        self._whole = time.process_time() - self._begun

    @contextmanager
    def spent(self, part: str) -> Iterator[None]:
        """Count the context's seconds for this part."""
        begun = time.process_time()
        try:
            yield
        finally:
            self._parts[part] += time.process_time() - begun

    def taken(self) -> dict[str, float]:
        """Seconds by part; the controller's exclude the hub's."""
        return {"controller": self._whole - self._parts["hub"], **self._parts}


class MeteredHub:
    """A hub whose calls are timed."""

    def __init__(self, hub: Hub, clock: PartClock) -> None:
        self._hub = hub
        self._clock = clock

    def replay(self, **asked: Any) -> list[tuple[int, Trajectory]]:
        """The trajectories, read to the end within the timing."""
        with self._clock.spent("hub"):
            return list(self._hub.replay(**asked))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._hub, name)

        def time_method(*args: Any, **kwargs: Any) -> Any:
            with self._clock.spent("hub"):
                return method(*args, **kwargs)

        return time_method


@contextmanager
def _collector(experiment: Experiment, runners: RunnerGroup) -> Iterator[TurnCollector]:
    """A run's collector, opened as by an algorithm."""
    run = "scale"
    with open_store(experiment.store_url) as db:
        mixture = open_task_mixture(experiment, db)
        begin_run(db, experiment, mixture.snapshots, id=run, kind="train")
        with open_hub(
            beside(experiment.store_url, run),
            experiment.hub,
            groups_per_update=experiment.rollout.groups_per_update,
            environments=experiment.environments,
        ) as hub:
            yield TurnCollector.of(experiment, run, hub, Notes(db), mixture, play=runners.play)


def _policy(experiment: Experiment, version: int) -> LanguagePolicy:
    algorithm: Any = experiment.algorithm
    return LanguagePolicy(path="", context=algorithm.model.context, sampling=algorithm.sampling, version=version)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _tokens(trajectory: Trajectory) -> int:
    return sum(len(turn.tokens.ids_T) for turn in trajectory.turns if turn.tokens is not None)
