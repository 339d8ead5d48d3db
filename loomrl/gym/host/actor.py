"""Episodes in a Ray actor that may die at any moment.

Plans and trajectories travel in batches: one remote call per episode would cost more than most episodes.
"""

import asyncio
import gc
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loomrl.config import RolloutConfig
from loomrl.config.placement import PER_CORE
from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.catalogue import EnvironmentRegistration, register, registrations
from loomrl.gym.episode import LocalHost, Make, Plan, failure_trajectory, hang
from loomrl.gym.host.rounds import Seat
from loomrl.gym.host.watch import Autopsy, Watchdog, examine
from loomrl.gym.policy import OpenPolicy, open_policy
from loomrl.own_ray import ensure_ray
from loomrl.types import Failure, Trajectory

RETRIES = 3
"""Retries of an episode after its actor's death."""
COLLECTING = 50_000, 20, 20
"""Thresholds of an actor's garbage collector: the defaults would scan thousands of open episodes again and again."""
CALLS = 8
"""Concurrent calls of an actor: a few short ones beside the one that waits for trajectories."""

Ticket = int
"""Identifies a plan given to an actor."""
Result = Trajectory | Exception


def refuse_crowd(actors: int) -> None:
    """A ConfigError for more actors than Ray's CPUs allow: actors request no CPU, so Ray would start any number."""
    import ray

    ensure_ray()
    most = int(PER_CORE * ray.cluster_resources().get("CPU", 0))
    if actors > most:
        raise ConfigError(
            f"rollout.runners={actors}: Ray has CPUs for {most}, {PER_CORE} to each. Ask for fewer, or raise "
            "rollout.concurrency: every actor plays so many episodes at a time."
        )


@dataclass(frozen=True, slots=True)
class _Address:
    """The location of an actor's files, for an autopsy after its death."""

    node: str
    folder: str


class EpisodeActor:
    """A LocalHost in a Ray actor, with a watchdog; `known` are the driver's own registrations. Call `open` first."""

    def __init__(
        self, make: Make, rollout: RolloutConfig, *, open_policy: OpenPolicy, known: Sequence[EnvironmentRegistration]
    ) -> None:
        gc.set_threshold(*COLLECTING)
        for registration in known:
            register(registration)
        self._host = LocalHost(make, rollout, open_policy=open_policy)
        self._limit_s = rollout.turn_timeout_s
        self._folder = tempfile.mkdtemp(prefix="loomrl-actor-")  # outlives us: `examine` reads it
        self._playing: dict[Ticket, asyncio.Task[None]] = {}
        self._results: list[tuple[Ticket, Result]] = []

    async def open(self) -> _Address:
        """Start the watchdog."""
        import ray

        self._watchdog = Watchdog(Path(self._folder), limit_s=self._limit_s)
        self._any = asyncio.Event()
        return _Address(ray.get_runtime_context().get_node_id(), self._folder)

    async def take(self, plans: Sequence[tuple[Ticket, Plan]]) -> None:
        """Start playing these plans."""
        for ticket, plan in plans:
            self._playing[ticket] = asyncio.create_task(self._play(ticket, plan))

    async def wait_results(self) -> list[tuple[Ticket, Result]]:
        """The results since the last call; waits for at least one."""
        await self._any.wait()
        self._any.clear()
        results = self._results
        self._results = []
        return results

    async def drop(self, ticket: Ticket) -> None:
        """Cancel this episode; its result is no longer wanted."""
        if ticket in self._playing:
            self._playing[ticket].cancel()

    async def _play(self, ticket: Ticket, plan: Plan) -> None:
        try:
            result: Result = await self._watchdog.run(plan.attempt.id, self._host.play(plan))
        except Exception as error:  # noqa: BLE001 - raised where the episode is waited for
            result = error
        finally:
            del self._playing[ticket]
        self._results.append((ticket, result))
        self._any.set()


@dataclass(slots=True)
class _Life:
    """One actor from start to burial, with the callers that wait for its episodes."""

    actor: Any
    address: asyncio.Task[_Address]
    burial: asyncio.Task[Autopsy] | None = None
    listening: asyncio.Task[None] | None = None
    sending: set[asyncio.Task[None]] = field(default_factory=set)
    waiting: dict[Ticket, asyncio.Future[Trajectory]] = field(default_factory=dict)
    tickets: "itertools.count[int]" = field(default_factory=itertools.count)
    unsent: list[tuple[Ticket, Plan]] = field(default_factory=list)

    async def play(self, plan: Plan) -> Trajectory:
        """The plan's trajectory. The actor's death, and mistakes in the configuration, are raised."""
        await asyncio.shield(self.address)
        loop = asyncio.get_running_loop()
        if self.listening is None:
            self.listening = loop.create_task(self._listen())
        ticket = next(self.tickets)
        future = loop.create_future()
        self.waiting[ticket] = future
        if not self.unsent:
            sending = loop.create_task(self._send())
            self.sending.add(sending)
            sending.add_done_callback(self.sending.discard)
        self.unsent.append((ticket, plan))
        try:
            trajectory: Trajectory = await future
        except asyncio.CancelledError:
            self.actor.drop.remote(ticket)
            raise
        finally:
            del self.waiting[ticket]
        return trajectory

    async def _send(self) -> None:
        """Send all unsent plans in one call."""
        plans = self.unsent
        self.unsent = []
        try:
            await self.actor.take.remote(plans)
        except Exception as error:  # noqa: BLE001 - the waiting caller decides what it means
            self._fail({ticket for ticket, _ in plans}, error)

    async def _listen(self) -> None:
        """Distribute the results until the actor dies."""
        try:
            while True:
                for ticket, result in await self.actor.wait_results.remote():
                    self._tell(ticket, result)
        except Exception as error:  # noqa: BLE001 - the waiting caller decides what it means
            self._fail(set(self.waiting), error)
            self.listening = None

    def _tell(self, ticket: Ticket, result: Result) -> None:
        future = self.waiting.get(ticket)
        if future is None or future.done():
            return
        if isinstance(result, Trajectory):
            future.set_result(result)
        else:
            future.set_exception(result)

    def _fail(self, tickets: set[Ticket], error: Exception) -> None:
        from ray.exceptions import RayTaskError

        for ticket in tickets:
            self._tell(ticket, error.cause if isinstance(error, RayTaskError) else error)


class ActorHost:
    """Plays in one Ray actor. If it dies, a fresh one replays its open episodes under the same ids.

    The episode that hung the actor is not replayed. A death counts against the episode that was running, or against all
    if that is unknown; after `RETRIES` deaths the episode ends as FAILED.

    `make` and `open_policy` are sent to the actor: they must be picklable.
    """

    def __init__(self, make: Make, rollout: RolloutConfig, *, open_policy: OpenPolicy = open_policy) -> None:
        self._make = make
        self._rollout = rollout
        self._open_policy = open_policy
        self._life: _Life | None = None

    async def play(self, plan: Plan, seat: Seat | None = None) -> Trajectory:
        """Play one episode, with new actors if needed; in no seat. Only configuration errors are raised."""
        deaths = 0
        while True:
            life = self._living()
            try:
                return await life.play(plan)
            except _deaths() as error:
                autopsy = await self._bury(life)
                cause = " ".join(str(error).split())[:300]
            suspect = autopsy.running == plan.attempt.id
            if suspect and autopsy.trace:
                return failure_trajectory(plan.attempt, hang(autopsy.trace, self._rollout.turn_timeout_s))
            deaths += suspect or not autopsy.running
            if deaths > RETRIES:
                message = f"{deaths} actors died while it was open, the last one so: {cause}"
                return failure_trajectory(plan.attempt, Failure(EpisodeError.boundary, "ActorDied", message))

    async def close(self) -> None:
        """Kill the actor and remove its files."""
        if self._life is not None:
            await self._bury(self._life)

    def _living(self) -> _Life:
        if self._life is None or self._life.burial is not None:
            self._life = self._start()
        return self._life

    def _start(self) -> _Life:
        import ray

        kind = ray.remote(EpisodeActor).options(
            # No restarts by Ray: it would restart silently, and the attempt at fault would never be found.
            num_cpus=0,
            max_restarts=0,
            max_concurrency=CALLS,
            scheduling_strategy="SPREAD",
        )
        actor: Any = kind.remote(self._make, self._rollout, open_policy=self._open_policy, known=registrations())
        return _Life(actor, asyncio.ensure_future(_resolve(actor.open.remote())))

    async def _bury(self, life: _Life) -> Autopsy:
        """Ensure the actor is dead and find the cause; all its open episodes share one answer."""
        if life.burial is None:
            life.burial = asyncio.create_task(_bury(life))
        return await asyncio.shield(life.burial)


def _deaths() -> tuple[type[Exception], ...]:
    """The errors of an actor that is dead, unreachable, or lost its answer."""
    from ray.exceptions import ObjectLostError, OutOfMemoryError, RayActorError

    return RayActorError, ObjectLostError, OutOfMemoryError


async def _resolve(reference: Any) -> Any:
    return await reference


async def _bury(life: _Life) -> Autopsy:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.kill(life.actor)
    if life.listening is not None:
        await asyncio.wait({life.listening})  # it tells everyone who still waits
    try:
        address = await life.address
        there = NodeAffinitySchedulingStrategy(address.node, soft=False)
        autopsy: Autopsy = (
            await ray.remote(examine).options(num_cpus=0, scheduling_strategy=there).remote(Path(address.folder))
        )
    except RayError:
        return Autopsy()
    return autopsy
