"""RLlib's Algorithm of token policies: groups from a source → update → publish → checkpoint."""

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from typing_extensions import override

from loomrl.algorithms.arithmetic import arithmetic
from loomrl.algorithms.language.batch import LanguageWork
from loomrl.algorithms.language.begin import ensure_origin, lessons, wants_reference
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.evaluations import Evaluations
from loomrl.algorithms.language.footprint import fitting_tokens, shape_of
from loomrl.algorithms.language.league import open_league
from loomrl.algorithms.language.lesson import Lesson
from loomrl.algorithms.language.publish import Probing, Publisher
from loomrl.algorithms.language.resolved import save_adapter, save_policy
from loomrl.algorithms.language.runner_group import RunnerGroup, SharedEnginesGroup, open_shared_engines
from loomrl.algorithms.language.source import Source, open_source
from loomrl.algorithms.learners import load_state_file, own_settings, training_data, unwrap_errors
from loomrl.algorithms.resources import Placed, ensure_room
from loomrl.algorithms.schedule import Schedule, open_schedule
from loomrl.algorithms.timing import Pace, Phases
from loomrl.config import EvaluationConfig, Experiment, LanguagePolicy, Optimizer, Sampling
from loomrl.config.language import AUTO
from loomrl.errors import ConfigError
from loomrl.evaluation.report import judge
from loomrl.feedback.reward.onset import OnsetMonitor
from loomrl.gym.held_out import HeldOut
from loomrl.gym.task_mixture import check_turn_limit, open_task_mixture
from loomrl.inference.gguf import record_of
from loomrl.inference.weights.sealed import Weights, weights_hash
from loomrl.run.ledger import VersionLedger
from loomrl.run.record import begin_run
from loomrl.run.stopping import Stopper
from loomrl.store import RECONNECT_S, LoomDB, open_store
from loomrl.store.runs import POLICIES, RUNS, Claim, load_experiment, pin_model, run_id
from loomrl.telemetry.metric import Metric
from loomrl.types import Group, Trajectory

METRICS = "loomrl"
"""Key of LoomRL's metrics (`loomrl.telemetry.metric`) in a result."""


class Language(Placed):
    """Trains a token policy with any of the language algorithms, chosen by the settings."""

    config: LanguageConfig
    is_warm = False
    """True once the warm start is done."""
    listen: Callable[[int, Mapping[str, float]], None] = staticmethod(lambda done, metrics: None)
    """Called with every update's metrics before its checkpoint is committed."""

    _runners: RunnerGroup
    _ledger: VersionLedger
    _stopper: Stopper
    _acting: int
    """The version of the runners' weights."""
    _last_checkpoint_s: float = 0.0
    _onset: OnsetMonitor
    """True once this process has said that the reward is hacked."""

    @classmethod
    @override
    def get_default_config(cls) -> LanguageConfig:
        """The default experiment."""
        return LanguageConfig(cls)

    # -- one update -------------------------------------------------------------------------------------------------

    @override
    def training_step(self) -> None:
        """One update of the policy with everything that belongs to it, to be read from top to bottom."""
        self.begin()
        source = self.source
        if source.done == 0 and (loss := self.evaluations.loss(0)) is not None:
            self.listen(0, {Metric.EVALUATED_LOSS: loss})
        clock = Phases()
        pace = Pace(self._runners.request_work)
        with clock(Metric.TIME_HUB):
            groups, metrics = source.collect(self.actor(self._acting), clock)
        with clock(Metric.TIME_LEARN), pace.learning():
            metrics |= self._learn(groups)
        with clock(Metric.TIME_PUBLISH):
            if source.samples_with(source.done + 1):
                self._publish(source.done + 1)
        metrics |= self._publisher.metrics() | self._publisher.alarm(metrics.get(Metric.POLICY_DRIFT))
        source.advance(groups)
        stop = self._stopper.observe(metrics.get(Metric.SUCCESS, 0.0), metrics.get(Metric.POLICY_KL, 0.0))
        metrics |= self._check_reward(groups)
        if (hacked := self._onset.reason(stops=self._experiment.train.stop.hacking)) is not None:
            stop = self._stopper.stop(hacked)
        metrics |= source.timing(pace, clock)
        if self.evaluations.is_due(source.done, at_end=bool(stop or source.over)):
            with clock(Metric.TIME_EVALUATE):
                metrics |= self.evaluations.judge(source.done, self._stopper)
            stop = self._stopper.stopped
        metrics |= clock.seconds()
        metrics[Metric.TIME_CHECKPOINT] = self._last_checkpoint_s
        self._last_checkpoint_s = 0.0
        self._report(metrics)
        self._end(stop or source.over)
        is_best = self.evaluations.are_made and self._ledger.is_best(self._score())
        if self.stopped is not None or is_best or source.done % self._experiment.train.checkpoint_every == 0:
            self._checkpoint()

    def _check_reward(self, groups: Sequence[Group]) -> dict[str, float]:
        """Metrics of what was paid beside what second checks find; empty without a check."""
        found = self._onset.observe(self.source.done, groups)
        if found is None:
            return {}
        checked, unearned = found
        hacked = float(self._onset.found is not None)
        return {Metric.REWARD_CHECKED: checked, Metric.REWARD_UNEARNED: unearned, Metric.REWARD_HACKED: hacked}

    def _end(self, reason: str | None) -> None:
        """End the run if there is a reason to."""
        if reason is not None:
            self.source.end(reason)

    def _learn(self, groups: Sequence[Group]) -> dict[str, float]:
        """Advantages and optimizer steps, on all learners."""
        algorithm = self.config.algorithm
        rate = self._schedule.rate(self.done)
        lesson = self.source.lesson(groups, algorithm)
        metrics: dict[str, float] = {Metric.LEARNING_RATE: rate, Metric.GROUPS_DROPPED: float(lesson.dropped)}
        metrics |= lesson.metrics
        if not lesson.samples:
            return metrics
        started = time.perf_counter()
        colocated = self._experiment.placement.colocated
        if colocated:
            self._runners.release()
        metrics |= self._update(lesson, rate)
        if colocated:
            self._first_of(lambda learner: learner.release())
        self._schedule.observe(metrics.get(Metric.POLICY_STEP_KL, 0.0))
        tokens = sum(len(sample.ids_T) for sample in lesson.samples) * algorithm.optimizer.epochs
        metrics[Metric.LEARNER_TOKENS_PER_S] = tokens / (time.perf_counter() - started)
        return metrics

    def _update(self, lesson: Lesson, rate: float, *, minibatches: int | None = None) -> dict[str, float]:
        optimizer = self.config.algorithm.optimizer
        if minibatches is not None:
            optimizer = optimizer.model_copy(update={"epochs": 1, "minibatches": minibatches})
        rng = np.random.default_rng([self._experiment.seed, self._updates_made])
        self._updates_made += 1
        shares = self._deal(lesson, optimizer, rate, rng)
        with unwrap_errors():
            results = self.learner_group.update(training_data=training_data(shares))
        self.metrics.aggregate(results, key="learners")
        found = self.metrics.peek(("learners", DEFAULT_MODULE_ID))
        return {name: float(value) for name, value in found.items() if "/" in name and not np.isnan(value)}

    def _deal(self, lesson: Lesson, optimizer: Optimizer, rate: float, rng: np.random.Generator) -> list[LanguageWork]:
        """The work of each learner; those that share rows have the same."""
        together = self.config.algorithm.learners.sequence_parallel
        groups = max(1, self.config.num_learners) // together
        shares = lesson.shares(optimizer, rate, learners=groups, rng=rng, flat=self._reads_flat)
        return [share for share in shares for _ in range(together)]

    # -- attempts ---------------------------------------------------------------------------------------------------

    def actor(self, version: int, sampling: Sampling | None = None) -> LanguagePolicy:
        """The current policy, as plans refer to it."""
        algorithm = self.config.algorithm
        return LanguagePolicy(
            path="", context=algorithm.model.context, sampling=sampling or algorithm.sampling, version=version
        )

    def _publish(self, version: int) -> None:
        """Give all engines the learners' weights under this version, and verify them; without environments there are
        none.
        """
        if self._mixture.members:
            self._publisher.publish(version)
        self._acting = version

    def weights(self) -> Weights:
        """The learners' current weights."""
        return self._first_of(lambda learner: learner.weights())  # type: ignore[no-any-return]

    def _first_of(self, call: Callable[[Any], Any]) -> Any:
        """Call all learners together; returns the first one's result."""
        with unwrap_errors():
            results = list(self.learner_group.foreach_learner(call))
            for result in results:
                if not result.ok:
                    raise result.get()
        return results[0].get()

    # -- before the first update ------------------------------------------------------------------------------------

    @override
    def setup(self, config: LanguageConfig) -> None:
        """Find or build the first weights, then let RLlib build learners and runners from them."""
        self._experiment = config.experiment
        ensure_room(config)
        self._open = ExitStack()
        self._db: LoomDB = self._open.enter_context(open_store(self._experiment.store_url, reconnect_s=RECONNECT_S))
        self._mixture = open_task_mixture(self._experiment, self._db)
        open_league(self._experiment, self._mixture)  # refused before anything is built
        check_turn_limit(self._experiment.rollout.turn_limit, self._mixture)
        tokens = fitting_tokens(config.resolved, shape_of(config.resolved, self._db))  # before a model is built
        ensure_origin(config.resolved, self._mixture, self._db)
        self._is_fitted = config.algorithm.optimizer.micro_batch_tokens == AUTO
        if self._is_fitted:
            config = self._settle(config, self._recorded_tokens(config) or tokens)
        self._source: Source | None = None
        self._came_from: Mapping[str, Any] | None = None
        self._updates_made = 0
        fleet = open_shared_engines(config.resolved)
        group: Callable[..., RunnerGroup] = RunnerGroup
        if fleet is not None:
            self._open.enter_context(fleet)
            self.config = config.sampling_from(fleet.client())
            group = partial(SharedEnginesGroup, fleet=fleet)
        super().setup(self.config)
        self._reads_flat = self._first_of(lambda learner: learner.reads_flat)
        self._runners = group(self.env_runner_group, timeout_s=self._experiment.hub.group_timeout_s)
        self._publisher = Publisher(self._runners, self._first_of, Probing.of_run(config))

    def _settle(self, config: LanguageConfig, tokens: int) -> LanguageConfig:
        """Learn with passes of so many tokens; the run's record has the number in place of `auto`."""
        self.config = config.with_tokens(tokens)
        self._experiment = self.config.experiment
        return self.config

    def _recorded_tokens(self, config: LanguageConfig) -> int | None:
        """The number that a run of this id began with, if there is one."""
        earlier = None if config.run is None else RUNS.find(self._db, config.run)
        if earlier is None:
            return None
        own: Any = load_experiment(earlier)
        tokens = type(config).of(own).algorithm.optimizer.micro_batch_tokens
        return None if tokens == AUTO else int(tokens)

    @property
    def experiment(self) -> Experiment:
        """The experiment as it is on record."""
        return self._experiment

    def begin(self, report: Callable[[int, str], None] = lambda done, note: None) -> None:
        """Train on demonstrations once, before the first update; then store the first policy version."""
        source = self.source
        if self.is_warm:
            return
        self.warm_up(report)
        self._publish(source.done)
        if self.evaluations.is_due(source.done, at_end=True):
            self.evaluations.judge(source.done, self._stopper)
        self._checkpoint()
        self._end(self._stopper.stopped)

    def warm_up(self, report: Callable[[int, str], None] = lambda done, note: None) -> None:
        """Train on demonstrations, and be at the beginning of the first update."""
        done = 0
        for samples, rate, steps in lessons(self.config.resolved, self._mixture):
            metrics = self._update(Lesson(kind="imitate", samples=samples), rate, minibatches=steps)
            done += steps
            report(done, f"loss {metrics[Metric.SUPERVISED_LOSS]:.3f}")
        wanted = wants_reference(self.config.resolved)
        self._first_of(lambda learner: learner.begin(reference=wanted))
        self.is_warm = True

    @cached_property
    def _schedule(self) -> Schedule:
        """The learning rate over all updates of the source."""
        optimizer = self.config.algorithm.optimizer
        return open_schedule(optimizer.learning_rate, optimizer.schedule, self.source.limit)

    @property
    def source(self) -> Source:
        """The source of the run's groups, opened on first use; it resumes the run of this id."""
        if self._source is None:
            self._open_source()
        assert self._source is not None
        return self._source

    def _open_source(self) -> None:
        experiment = self._experiment
        came_from = self._came_from
        run = run_id(self.config.run, experiment.name)
        if came_from is not None and POLICIES.latest(self._db, run=run, limit=1):
            run = f"{run}-{uuid.uuid4().hex[:8]}"
        parent = experiment.parent if came_from is None else came_from["parent"]
        claim = begin_run(self._db, experiment, self._mixture.snapshots, id=run, kind="train", parent=parent)
        converted = record_of(self.config.origin)
        if converted is not None:
            pin_model(self._db, run, converted, at=time.time())
        opened = open_source(self.config.resolved, run, self._mixture, runners=self._runners, db=self._db)
        self._source = self._open.enter_context(opened)
        self.evaluations = Evaluations(
            experiment.evaluation,
            self.config.algorithm.sampling,
            self.trial if self._mixture.members else None,
            self._measure_loss if self._source.held_out else None,
        )
        self._ledger = self._source.ledger(self._db, claim)
        self._stopper = Stopper(experiment.train.stop)
        self._onset = OnsetMonitor()
        if came_from is None:
            self._resume()
        else:
            self._load_progress({**came_from, "cursor": 0, "replay": {}})  # the hub is another one, and empty
            self._ledger.load_state_dict(came_from)

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Stage the state needed to resume and the policy's files; then commit them through the collector."""
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="loomrl-checkpoint-") as name:
            folder = Path(name)
            state = self.whole_state()
            torch.save(state, folder / "state.pt")
            adapter = self._first_of(lambda learner: learner.adapter())
            if adapter is None:
                save_policy(self.config.resolved, self.weights(), folder)
            else:
                save_adapter(self.config.resolved, adapter, folder)
            self._ledger.offer(self.done, self._score())
            progress = self.source.checkpoint_state(self._ledger.checkpoints.url(self.done))
            made = {"weights": weights_hash(state["learner"]["module"]), "arithmetic": arithmetic()}
            self._ledger.commit(self.done, folder, {**progress, **self._verdicts(), **made})
        self._last_checkpoint_s = time.perf_counter() - begun

    def _resume(self) -> None:
        with tempfile.TemporaryDirectory(prefix="loomrl-checkpoint-") as name:
            found = self._ledger.resume(Path(name))
            if found is None:
                return
            folder, state = found
            self._load_progress(state)
            self._end(self._stopper.stopped)
            self._ledger.believe(state)
            self._load_state(torch.load(folder / "state.pt", weights_only=True))

    def rewind(self, folder: Path) -> None:
        """Go to the state of this run's checkpoint in a folder, with a hub that need not have what led to it."""
        self.source  # noqa: B018 - opens the ledger, too
        line = json.loads((folder / self._ledger.file).read_text())
        self._load_progress({**line, "cursor": 0} if "cursor" in line else line)
        self._load_learnt(torch.load(folder / "state.pt", weights_only=True))

    def remake(self, groups: Sequence[Group]) -> None:
        """The next update from these groups, and nothing beside it."""
        self._learn(groups)
        self.source.advance(groups)

    def _load_progress(self, state: Mapping[str, Any]) -> None:
        self.source.load_state_dict(state)
        self._stopper.load_state_dict(state["stopper"])
        self._onset.load_state_dict(state["onset"])

    def _verdicts(self) -> dict[str, Any]:
        """The state of all that may end the run, as JSON."""
        return {"stopper": self._stopper.state_dict(), "onset": self._onset.state_dict()}

    def whole_state(self) -> dict[str, Any]:
        """The state without the collector: weights, optimizer, schedule, counters."""
        return {
            "learner": self._first_of(lambda learner: learner.whole_state()),
            "schedule": self._schedule.state_dict(),
            "updates_made": self._updates_made,
            "is_warm": self.is_warm,
            "iteration": self._iteration,
        }

    def _load_state(self, state: Mapping[str, Any]) -> None:
        self._load_learnt(state)
        self._publish(self.done)

    def _load_learnt(self, state: Mapping[str, Any]) -> None:
        """Load what learners and schedule need; engines keep their weights."""
        learner = state["learner"]
        with own_settings(self.learner_group):  # a fork's are not those of the checkpoint
            self._first_of(lambda each: each.load_whole_state(learner))
        self._schedule.load_state_dict(state["schedule"])
        self._updates_made = state["updates_made"]
        self.is_warm = state["is_warm"]
        self._iteration = state["iteration"]

    @override
    def get_state(self, *_: Any, **__: Any) -> dict[str, Any]:
        """The whole algorithm, for RLlib's own checkpoints."""
        progress = self.source.state_dict()  # which opens what follows
        progress |= self._verdicts()
        progress |= self._ledger.state_dict()
        tokens = self.config.algorithm.optimizer.micro_batch_tokens
        line = {**progress, "experiment": self._experiment.sha256, "micro_batch_tokens": tokens}
        return {"state": self.whole_state(), "line": line}

    @override
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; under a new run id if the run of that name has already gone further."""
        if self._is_fitted:
            self._settle(self.config, state["line"]["micro_batch_tokens"])
        if state["line"]["experiment"] != self._experiment.sha256:
            raise ConfigError(
                f"the checkpoint is of experiment {state['line']['experiment'][:12]}, this is "
                f"{self._experiment.sha256[:12]}. Restore it into the experiment it was made with."
            )
        self._source = None
        self._came_from = state["line"]
        self._load_state(state["state"])

    def take_over(self, path: Any) -> None:
        """Start a run from another experiment's checkpoint, with our settings; its version is the parent."""
        state = load_state_file(path, self.STATE_FILE_NAME)
        self._source = None
        self._came_from = state["line"]
        self._load_state({**state["state"], "schedule": self._schedule.state_dict()})

    def keep(self) -> str:
        """The id of the current version, which has a checkpoint from now on."""
        if self._ledger.parent != (version := f"{self.source.run}/{self.done}"):
            self._checkpoint()
        return version

    @property
    def done(self) -> int:
        """Updates made: the number of the present version."""
        return self.source.done

    @property
    def limit(self) -> int:
        """The value of `done` at the end."""
        return self.source.limit

    @property
    def stopped(self) -> str | None:
        """The reason why the run has ended; None while it has not."""
        return self.source.over

    def end(self, reason: str) -> None:
        """Keep the present version, and make no further update."""
        self.keep()
        self.source.end(reason)

    @property
    def claim(self) -> Claim:
        """Ours on the run."""
        self.source  # noqa: B018 - opens it
        return self._ledger.claim

    @property
    def kept(self) -> Mapping[str, int]:
        """Numbers of the `last` and the `best` version; no best one while nothing succeeds, or too little is known."""
        return self._ledger.known

    @override
    def get_checkpointable_components(self) -> list[Any]:
        """None: the state of sharded learners can only be gathered by all of them together."""
        return []

    def _score(self) -> float | None:
        """The current version's claim to be the best one."""
        return self.source.score(self.evaluations.score(self.done, self._stopper.mean))

    def _measure_loss(self) -> float:
        """The learners' mean loss on the source's held-out samples."""
        once = self.config.algorithm.optimizer.model_copy(update={"epochs": 1, "minibatches": 1})
        lesson = Lesson(kind="imitate", samples=self.source.held_out)
        shares = self._deal(lesson, once, 0.0, np.random.default_rng(0))
        return float(self._first_of(lambda learner: learner.mean_loss(shares)))

    # -- evaluation -------------------------------------------------------------------------------------------------

    @override
    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """RLlib's evaluation: success on held-out tasks, sampled as in training."""
        found = judge("sampled", self.trial("sampled", self._experiment.evaluation)).overall
        told = {"success": found.success.mean, "episode_return_mean": found.reward, "failures": found.failures}
        return {"env_runners": told}

    def trial(self, name: str, settings: EvaluationConfig, sampling: Sampling | None = None) -> list[Trajectory]:
        """The current policy's attempts at the held-out tasks, in the order of the tasks."""
        if self._acting != self.done:
            self._publish(self.done)
        return self.held_out(name, settings, sampling).play_all(self._runners.play)

    def held_out(self, name: str, settings: EvaluationConfig, sampling: Sampling | None = None) -> HeldOut:
        """The held-out tasks, for attempts of the engines' policy."""
        actor = self.actor(self.done, sampling)
        return HeldOut(self._mixture, settings, run=self.source.run, name=name, policy=actor)

    @override
    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """Does nothing: the component that plays attempts replaces dead runners."""
        return []

    @classmethod
    @override
    def _should_create_evaluation_env_runners(cls, eval_config: Any) -> bool:
        """Training's runners evaluate as well."""
        return False

    def _report(self, metrics: Mapping[str, float]) -> None:
        self.listen(self.done, metrics)
        for name, value in metrics.items():
            self.metrics.log_value((METRICS, str(name)), float(value), window=1)
        if Metric.REWARD_TOTAL in metrics:
            self.metrics.log_value(("env_runners", "episode_return_mean"), metrics[Metric.REWARD_TOTAL], window=1)

    @override
    def cleanup(self) -> None:
        """Release learners, runners, hub and LoomDB."""
        super().cleanup()
        self._open.close()
