"""All runners of a run as one: they play plans with the last published weights."""

import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from typing_extensions import override

from loomrl.algorithms.language.resolved import Resolved, origin_of
from loomrl.config import VllmEngineConfig
from loomrl.errors import EpisodeError, PolicyError
from loomrl.gym.episode import Plan, failure_trajectory
from loomrl.inference.engine import Completion, Request, Statistics
from loomrl.inference.open import Opening
from loomrl.inference.vllm.fleet import VllmFleet, collect_answers, open_fleet
from loomrl.inference.weights.loan import LentWeights
from loomrl.inference.weights.sealed import Sealed
from loomrl.types import Failure, Trajectory

_log = logging.getLogger(__name__)
LOST = Failure(EpisodeError.boundary, "Lost", "its runner died, or did not answer in time, whenever it was played")
NO_RUNNER = Failure("runner", "NoRunner", "all runners are dead, and none came back")


class RunnerGroup:
    """Runners with an engine each. `timeout_s` is the maximum cost of an attempt that never returns; a hanging runner
    is replaced.
    """

    def __init__(self, group: EnvRunnerGroup, *, timeout_s: float) -> None:
        self._group = group
        self._timeout_s = timeout_s
        self._given: _PublishedVersion | None = None

    def load(self, sealed: Sealed | LentWeights) -> None:
        """Give every engine these weights, verified; completions that finish afterwards are held."""
        far = self._group.num_remote_env_runners() > 0
        # pickled once for all runners
        self._given = given = _PublishedWeights(sealed.version, ray.put(sealed) if far else sealed)
        self._everyone(given.hand_over)
        if far and not self._group.healthy_env_runner_ids():
            self._able()
            self._everyone(given.hand_over)

    def probe(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """The answers of each engine, held or not."""
        return self._everyone(lambda runner: runner.probe(requests))

    def admit(self, version: int) -> None:
        """Act with these weights from now on."""
        assert self._given is not None
        self._given.admitted = True
        self._everyone(lambda runner: runner.admit(version))

    def reject(self, cause: str) -> None:
        """Fail held completions; nothing is played until other weights arrive."""
        self._given = None
        self._everyone(lambda runner: runner.reject(cause))

    def release(self) -> None:
        """Give the memory of all engines' caches back (`LanguageRunner.release`)."""
        self._everyone(lambda runner: runner.release())

    def play(self, plans: Sequence[Plan]) -> list[Trajectory]:
        """Every plan's trajectory.

        Plans that a runner does not deliver, because it died or took more than half of the time, are played again, each
        family by itself: a family whose runner then dies or hangs again is to blame, and its attempts have failed.
        """
        if self._group.num_remote_env_runners() == 0:
            return self._group.local_env_runner.sample(plans=plans)  # type: ignore[no-any-return]
        found = self._deal(plans) or {}
        families: dict[tuple[str, str], list[Plan]] = {}
        for plan in plans:
            if plan.attempt.id not in found:
                families.setdefault((plan.attempt.task.environment, plan.attempt.task.family), []).append(plan)
        for part in families.values():
            again = self._deal(part)
            lost = LOST if again is not None else NO_RUNNER
            found |= {plan.attempt.id: failure_trajectory(plan.attempt, lost) for plan in part} | (again or {})
        return [found[plan.attempt.id] for plan in plans]

    @property
    def actors(self) -> dict[int, Any]:
        """The remote runners by id, dead or alive."""
        actors: dict[int, Any] = self._group._worker_manager.actors()
        return actors

    @property
    def timeout_s(self) -> float:
        """Time limit for a runner's answer before it counts as hanging."""
        return self._timeout_s / 2

    @property
    def version(self) -> int | None:
        """Version of the runners' weights; None while there are no admitted ones."""
        given = self._given
        return given.version if given is not None and given.admitted else None

    def equip(self, id: int) -> None:
        """Send the weights to a new or restarted runner, before any other call to it."""
        self._group._worker_manager.set_actor_state(id, healthy=True)
        if self._given is not None:
            self.actors[id].apply.remote(_Asked(self._given))

    def request_work(self) -> Callable[[], tuple[int, float]]:
        """Request the engines' sampled tokens since their start, and their mean seconds of computation.

        The returned function waits for the answers; the request itself does not interrupt the runners.
        """
        if self._group.num_remote_env_runners() == 0:
            local = [self._group.local_env_runner.statistics]
            return lambda: _sum_work(local)
        asked = [self.actors[id].apply.remote(_statistics) for id in self._group.healthy_env_runner_ids()]
        return lambda: _sum_work(collect_answers(asked))

    def _deal(self, plans: Sequence[Plan]) -> dict[str, Trajectory] | None:
        """Trajectories by id of the plans, dealt to all living runners; None if none lives."""
        ids = self._able()
        if not ids:
            return None
        shares = [_Share(id, plans[i :: len(ids)]) for i, id in enumerate(ids)]
        answers: dict[int, list[Trajectory] | str] = dict(self._call_each(dict(zip(ids, shares, strict=True))))
        for id in set(self._group.healthy_env_runner_ids()).intersection(ids).difference(answers):
            self.replace(id)
        found: dict[str, Trajectory] = {}
        for id, played in answers.items():
            if isinstance(played, str):
                raise PolicyError(f"runner {id} failed outside of any attempt:\n{played}")
            found |= {trajectory.id: trajectory for trajectory in played}
        return found

    def _able(self) -> list[int]:
        """The living runners that have the weights; if all have died, the first that are back."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._group.probe_unhealthy_env_runners()
            self._everyone(self._given or self.without_weights)
            ids: list[int] = self._group.healthy_env_runner_ids()
            if ids or time.monotonic() > deadline:
                return ids
            time.sleep(0.2)

    @staticmethod
    def without_weights(runner: Any) -> None:
        """Tell a runner that there is nothing to act with."""
        runner.reject("nothing has been published since weights were rejected")

    def _everyone(self, call: Callable[[Any], Any]) -> list[Any]:
        """The answers of all living runners that play; an engine's error is raised with the runner's number."""
        asked = _Asked(call)
        if self._group.num_remote_env_runners() == 0:
            answers = [asked(self._group.local_env_runner)]
        else:
            once = ray.put(asked)  # pickled for all of them
            answers = self._call_each(dict.fromkeys(self._group.healthy_env_runner_ids(), once))
        for number, _, cause in answers:
            if cause is not None:
                raise PolicyError(f"Engine of runner {number}: {cause}")
        return [answer for _, answer, _ in answers]

    def _call_each(self, calls: Mapping[int, Any]) -> list[Any]:
        """The answers of runners to calls that they apply; who died is marked, and who is late left out.

        As RLlib's manager does, which looks for every answer among all calls: seconds for thousands of runners.
        """
        actors = self.actors
        manager = self._group._worker_manager
        ids = {actors[id].apply.remote(call): id for id, call in calls.items()}
        ready, _ = ray.wait(list(ids), num_returns=len(ids), timeout=self.timeout_s) if ids else ([], [])
        try:
            return ray.get(ready)  # type: ignore[no-any-return]
        except RayError:
            pass
        found = []
        for reference in ready:
            try:
                found.append(ray.get(reference))
            except RayError as error:
                _log.warning("runner %d is out of service: %s", ids[reference], error)
                manager.set_actor_state(ids[reference], healthy=False)
        return found

    def replace(self, id: int) -> None:
        """Kill a hanging runner; Ray starts another in its place."""
        manager = self._group._worker_manager
        ray.kill(manager.actors()[id], no_restart=False)
        manager.set_actor_state(id, healthy=False)


class SharedEnginesGroup(RunnerGroup):
    """Runners that share a fleet's engines, which take weights and refuse work by themselves."""

    def __init__(self, group: EnvRunnerGroup, *, timeout_s: float, fleet: VllmFleet) -> None:
        super().__init__(group, timeout_s=timeout_s)
        self._fleet = fleet

    @override
    def load(self, sealed: Sealed | LentWeights) -> None:
        assert isinstance(sealed, Sealed), "vLLM's engines stage a file"
        self._given = _PublishedVersion(sealed.version)
        self._fleet.load(sealed)

    @override
    def probe(self, requests: Sequence[Request]) -> list[list[Completion]]:
        return self._fleet.probe(requests)

    @override
    def admit(self, version: int) -> None:
        assert self._given is not None
        self._given.admitted = True
        self._fleet.admit(version)
        self._everyone(self._given)

    @override
    def reject(self, cause: str) -> None:
        self._given = None
        self._fleet.reject(cause)

    @override
    def release(self) -> None:
        self._fleet.release()

    @override
    def request_work(self) -> Callable[[], tuple[int, float]]:
        engines = self._fleet.request_statistics()
        return lambda: _sum_work([engines()])

    @staticmethod
    @override
    def without_weights(runner: Any) -> None:
        """Nothing to tell: the call shows that the runner lives."""


class _Share:
    """The plans of one runner."""

    def __init__(self, id: int, plans: Sequence[Plan]) -> None:
        self.id = id
        self.plans = plans

    def __call__(self, runner: Any) -> tuple[int, list[Trajectory] | str]:
        """Its trajectories; an exception becomes text, since RLlib would take it for the runner's death and hide it."""
        try:
            return self.id, runner.sample(plans=self.plans)
        except Exception:  # noqa: BLE001 - the boundary
            return self.id, traceback.format_exc()


class _Asked:
    """A call to a runner whose PolicyError is returned as text: RLlib would take it for the runner's death."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.call = call

    def __call__(self, runner: Any) -> tuple[int, Any, str | None]:
        """The runner's number, its answer, or an error instead."""
        try:
            return runner.worker_index, self.call(runner), None
        except PolicyError as error:
            return runner.worker_index, None, str(error)


class _PublishedVersion:
    """The version that engines were given, for every runner that does not act with it yet."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.admitted = False

    def __call__(self, runner: Any) -> None:
        if self.admitted:
            runner.admitted = self.version


class _PublishedWeights(_PublishedVersion):
    """Its weights too, here or in Ray, for runners' own engines."""

    def __init__(self, version: int, weights: Sealed | LentWeights | ray.ObjectRef) -> None:
        super().__init__(version)
        self.weights = weights

    def hand_over(self, runner: Any) -> None:
        """Load the weights into a runner's own engine, which holds."""
        runner.load(ray.get(self.weights) if isinstance(self.weights, ray.ObjectRef) else self.weights)

    @override
    def __call__(self, runner: Any) -> None:
        if self.admitted and runner.admitted != self.version:
            self.hand_over(runner)
            runner.admit(self.version)


def _statistics(runner: Any) -> Statistics:
    return runner.statistics  # type: ignore[no-any-return]


def _sum_work(engines: Sequence[Statistics]) -> tuple[int, float]:
    return sum(each.sampled_tokens for each in engines), sum(each.busy_s for each in engines) / max(1, len(engines))


def open_shared_engines(resolved: Resolved) -> VllmFleet | None:
    """The shared engines, ready to answer; None if every runner opens its own."""
    experiment = resolved.experiment
    algorithm = resolved.algorithm
    choice = experiment.engine
    if not isinstance(choice, VllmEngineConfig):
        return None
    colocated = experiment.placement.colocated
    if colocated:
        choice = choice.model_copy(update={"settings": {**choice.settings, "enable_sleep_mode": True}})
    opening = Opening(
        origin=resolved.origin,
        context=algorithm.model.context,
        slots=experiment.rollout.concurrency * max(1, experiment.rollout.runners),
        dtype=algorithm.model.dtype,
        trust_remote_code=algorithm.model.trust_remote_code,
    )
    model = partial(origin_of, algorithm.model, artifact_url=experiment.artifact_url, built=resolved.built_name)
    fleet = open_fleet(choice, opening, model=model, **experiment.placement.engine.options())
    if colocated:
        fleet.release()  # before the learner is built
    return fleet
