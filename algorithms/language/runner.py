"""The EnvRunner of token policies: an engine and a pool of environments, in this process or in a Ray actor."""

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import ray
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from typing_extensions import override

from loomrl.algorithms.language.footprint import bound_memory
from loomrl.artifacts import open_artifacts
from loomrl.config import Experiment, LanguagePolicy, PolicyChoice, RolloutConfig, TorchEngineConfig
from loomrl.gym.catalogue import EnvironmentRegistration, register
from loomrl.gym.episode import LocalHost, Plan
from loomrl.gym.host.watch import Watchdog
from loomrl.gym.policy import PolicyFactory, open_policy
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.registry import make
from loomrl.gym.synchronous import PrivateLoop
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import Completion, Engine, Request, Statistics
from loomrl.inference.merged import whole_model
from loomrl.inference.model import open_tokenizer
from loomrl.inference.open import Opening, open_engine
from loomrl.inference.policy import Voice, speakers
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.vision import open_vision
from loomrl.inference.weights.loan import LentWeights
from loomrl.inference.weights.sealed import Sealed
from loomrl.process import stacks_on_signal
from loomrl.run.version import fetch_base
from loomrl.serving.agents import AgentGateway
from loomrl.serving.speech import LanguageServedPolicy
from loomrl.types import Trajectory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a runner, and the location of the files it leaves for an autopsy."""

    id: str
    node: str
    folder: str


class Playing:
    """Keeps at most `rollout.concurrency` episodes open, in order of arrival. All state belongs to the event loop.

    The alarm works on main threads only, so an environment that hangs here ends the process; the running episode is
    then found in `folder` by `examine`.
    """

    def __init__(self, host: LocalHost, rollout: RolloutConfig, *, folder: Path) -> None:
        self._host = host
        self._folder = folder
        self._loop = PrivateLoop()
        self._rooms = asyncio.Semaphore(rollout.concurrency)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._finished: list[Trajectory] = []
        self._error: Exception | None = None
        self._watchdog = self.wait(_watch(folder, rollout.turn_timeout_s))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, run between the steps of the episodes."""
        return self._loop.wait(work)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function between the steps of the episodes."""

        async def called() -> None:
            function()

        self.wait(called())

    def exchange(self, plans: Sequence[Plan]) -> list[Trajectory]:
        """Start these plans; returns the results since the last call."""
        return self.wait(self._exchange(plans))

    def drop(self, ids: Collection[str]) -> None:
        """Cancel these attempts, if they are being played."""
        self.wait(self._drop(ids))

    def forget(self) -> None:
        """Cancel everything, and discard finished results too."""
        self.wait(self._forget())

    def play(self, plans: Sequence[Plan]) -> list[Trajectory]:
        """Every plan's trajectory; other episodes continue meanwhile."""
        return self.wait(self._play_together(plans))

    def close(self) -> None:
        """Cancel everything and release the thread and its files."""
        self.wait(self._stop())
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _exchange(self, plans: Sequence[Plan]) -> list[Trajectory]:
        for plan in plans:
            self._tasks[plan.attempt.id] = asyncio.create_task(self._play(plan))
        if self._error is not None:
            raise self._error
        finished = self._finished
        self._finished = []
        return finished

    async def _drop(self, ids: Collection[str]) -> None:
        for id in self._tasks.keys() & set(ids):
            self._tasks.pop(id).cancel()

    async def _forget(self) -> None:
        await self._drop([*self._tasks])
        self._finished.clear()

    async def _play_together(self, plans: Sequence[Plan]) -> list[Trajectory]:
        return await asyncio.gather(*map(self._one, plans))

    async def _play(self, plan: Plan) -> None:
        try:
            trajectory = await self._one(plan)
            self._finished.append(trajectory)
        except Exception as error:  # noqa: BLE001 - a mistake in the configuration: raised at the next exchange
            self._error = error
        self._tasks.pop(plan.attempt.id, None)

    async def _one(self, plan: Plan) -> Trajectory:
        async with self._rooms:
            trajectory: Trajectory = await self._watchdog.run(plan.attempt.id, self._host.play(plan))
        return trajectory

    async def _stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._watchdog.close()


async def _watch(folder: Path, limit_s: float) -> Watchdog:
    return Watchdog(folder, limit_s=limit_s)


class LanguageRunner(EnvRunner, Checkpointable):
    """Plays plans with the last weights it was given. It has no state worth keeping: a new one is as good.

    If rollouts and learning overlap it plays on a separate thread, and its methods only exchange plans and results. It
    must not have a coroutine as a method: Ray would make it an asyncio actor, whose methods run inside a loop.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        stacks_on_signal()
        experiment: Experiment = self.config.experiment
        known: Sequence[EnvironmentRegistration] = self.config.registrations
        for registration in known:
            register(registration)
        algorithm = self.config.algorithm
        origin = self.config.origin
        trusts = algorithm.model.trust_remote_code
        self._chat = ChatTemplate(
            open_tokenizer(origin, trust_remote_code=trusts), open_vision(origin, trust_remote_code=trusts)
        )
        self._context = algorithm.model.context
        self._opening = Opening(
            origin=origin,
            context=self._context,
            slots=experiment.rollout.concurrency + (experiment.engine.checks.probes if experiment.asynchronous else 0),
            dtype=algorithm.model.dtype,
            device=_device(self.config),
            trust_remote_code=trusts,
        )
        self._past_engines = WeakSet[TorchEngine]()
        """Those of past versions, as long as they may be played against."""
        if self._opening.device == "cuda":
            bound_memory(self.config.resolved, learns=False)
        self.engine: Engine = self.config.shared_engine or open_engine(experiment.engine, self._opening)
        self._playing: Playing | None = None
        if experiment.placement.colocated and isinstance(self.engine, TorchEngine):
            self.release()
        self._agents = AgentGateway(deadline_s=experiment.rollout.episode_timeout_s)
        self.admitted: int | None = None
        """The version that it acts with; None after a restart."""
        self.life: Life | None = None
        """Identifies this process while rollouts and learning overlap; new after every restart."""
        local = experiment.rollout.model_copy(update={"runners": 0})
        in_rounds = isinstance(experiment.engine, TorchEngineConfig)  # a server's batches depend on timing anyway
        self._gym = LoomRLGym(local, make=make, open_policy=self._open_policy, in_rounds=in_rounds)
        if experiment.asynchronous:
            folder = tempfile.mkdtemp(prefix="loomrl-runner-")  # outlives us: `examine` reads it
            self.life = Life(uuid.uuid4().hex, ray.get_runtime_context().get_node_id(), folder)
            self._playing = Playing(LocalHost(make, local, open_policy=self._open_policy), local, folder=Path(folder))

    @override
    def sample(self, *, plans: Sequence[Plan] = (), **_: Any) -> list[Trajectory]:
        """Play the plans; returns their trajectories, in any order."""
        if self._playing is not None:
            return self._playing.play(plans)
        played: list[Trajectory] = []

        async def play() -> None:
            async for trajectory in self._gym.run(plans):
                played.append(trajectory)

        asyncio.run(play())  # which prints its task when it ends, result included: so there is none
        return played

    @property
    def playing(self) -> Playing:
        """The episodes that are played while the learner works."""
        assert self._playing is not None, "only where rollouts and learning overlap"
        return self._playing

    def load(self, given: Sealed | LentWeights) -> None:
        """Sample with these weights, and hold completions until they are admitted."""
        self._wait(self.engine.take(given.open(self.worker_index) if isinstance(given, LentWeights) else given))
        if self._playing is not None:
            self._playing.call(lambda: self._call_each(TorchEngine.resume, self._past_engines))

    def probe(self, requests: Sequence[Request]) -> list[Completion]:
        """The engine's answers, held or not."""
        return self._wait(self.engine.probe(requests))

    def admit(self, version: int) -> None:
        """Act with the loaded weights."""
        self._wait(self.engine.admit(version))
        self.admitted = version

    def reject(self, cause: str) -> None:
        """Refuse to act until other weights have been loaded."""
        self._wait(self.engine.reject(cause))
        self.admitted = None

    def release(self) -> None:
        """Give the memory of all engines' caches back until something is sampled, or, while attempts are played, until
        other weights come.
        """
        own = self.engine
        assert isinstance(own, TorchEngine), "others are not colocated"
        if self._playing is None:
            self._call_each(TorchEngine.release, (own, *self._past_engines))
        else:
            self._playing.call(lambda: self._call_each(TorchEngine.pause, (own, *self._past_engines)))

    @staticmethod
    def _call_each(method: Callable[[TorchEngine], None], engines: Iterable[TorchEngine]) -> None:
        for engine in engines:
            method(engine)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work) if self._playing is None else self._playing.wait(work)

    def _open_policy(self, choice: PolicyChoice) -> PolicyFactory:
        if not isinstance(choice, LanguagePolicy):
            return self._agents.serving(open_policy(choice))
        if choice.path:
            return self._past(choice)
        voice = Voice(self.engine, self._chat, choice.sampling, self._context)
        return self._agents.serving(speakers(voice), LanguageServedPolicy(voice), sampling=choice.sampling)

    def _past(self, choice: LanguagePolicy) -> PolicyFactory:
        """The version whose checkpoint has this path below `artifact_url`, on an engine of its own."""
        artifacts = open_artifacts(self.config.experiment.artifact_url)
        with tempfile.TemporaryDirectory(prefix="loomrl-past-") as name:
            checkpoint = artifacts.get_folder(choice.path, Path(name) / "version", below=("model/", "adapter/"))
            fetch_base(artifacts, checkpoint)
            model = whole_model(checkpoint, trust_remote_code=self._opening.trust_remote_code)
            engine = open_engine(TorchEngineConfig(), replace(self._opening, origin=model))
        assert isinstance(engine, TorchEngine)
        if isinstance(self.engine, TorchEngine) and self.engine.paused:
            engine.pause()
        self._past_engines.add(engine)
        return speakers(Voice(engine, self._chat, choice.sampling, choice.context))

    @property
    def statistics(self) -> Statistics:
        """The engine's counts since its start."""
        return self.engine.statistics

    @override
    def assert_healthy(self) -> None:
        """Always healthy if it exists."""

    @override
    def get_spaces(self) -> dict[str, Any]:
        """Text has no spaces."""
        return {}

    @override
    def get_metrics(self) -> dict[str, Any]:
        """Empty: metrics are computed from the trajectories."""
        return {}

    @override
    def get_state(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Empty: weights come from the learners, through `load`."""
        return {}

    @override
    def set_state(self, state: Mapping[str, Any]) -> None:
        """There is no state to restore."""

    @override
    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for creating another one."""
        return (), {"config": self.config}

    @override
    def stop(self) -> None:
        """Release the model."""
        self._wait(self.engine.close())
        if self._playing is not None:
            self._playing.close()


class IdleRunner(LanguageRunner):
    """The runner that RLlib insists on, of a run without environments: it has no engine, and plays nothing."""

    statistics = Statistics()

    def __init__(self, **kwargs: Any) -> None:
        EnvRunner.__init__(self, **kwargs)

    @override
    def stop(self) -> None:
        """Nothing is open."""


def _device(config: Any) -> str:
    return "cuda" if config.num_gpus_per_env_runner else "cpu"
