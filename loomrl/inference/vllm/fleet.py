"""vLLM engines in Ray actors, used as one. The driver owns the fleet, runners have clients."""

import asyncio
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayActorError, RayError

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import ConfigError, LoomError, PolicyError
from loomrl.inference.engine import Completion, Request, Statistics
from loomrl.inference.open import Opening
from loomrl.inference.vllm.actor import VllmActor
from loomrl.inference.vllm.engine import EngineLost, StagedWeights
from loomrl.inference.vllm.fleet_client import FleetClient, alive_or_killed, engine_name
from loomrl.inference.vllm.latest import open_latest_weights
from loomrl.inference.vllm.start import require_vllm
from loomrl.inference.weights.group import GroupMember, Meeting, host, send
from loomrl.inference.weights.sealed import Sealed, own_staging_folder, stage
from loomrl.process import Closing

Lives = Sequence[tuple[str, int]]
"""Every engine's life (a process's name) and number of workers."""


class Broadcast:
    """Sends to the workers of all engines at once."""

    def __init__(self, name: str, choice: VllmEngineConfig) -> None:
        _refuse_nccl(choice)
        self._name = name
        self._device = torch.device("cuda" if choice.gpus else "cpu")
        self._lives: Lives = ()
        self._built = 0
        self._hosted: tuple[Meeting, Any] | None = None
        self._member: GroupMember | None = None

    def invite(self, lives: Lives) -> tuple[Meeting, list[int]]:
        """The meeting point of these engines, and the rank of each one's first worker."""
        first = [*accumulate((workers for _, workers in lives), initial=1)]
        if self._hosted is None or self._lives != lives:
            self.end()
            self._built += 1
            self._lives = lives
            self._hosted = host(f"{self._name}-{self._built}", first[-1], ray.util.get_node_ip_address())
        return self._hosted[0], first[:-1]

    def send(self, sealed: Sealed) -> None:
        """Send to all invited members while they receive; a PolicyError if one is missing."""
        assert self._hosted is not None
        if self._member is None:
            self._member = GroupMember(self._hosted[0], 0, self._device, store=self._hosted[1])
        send(self._member, sealed)

    def end(self) -> None:
        """Leave the group; the next version starts a new one."""
        if self._member is not None:
            self._member.leave()
        self._member = self._hosted = None


def _refuse_nccl(choice: VllmEngineConfig) -> None:
    if choice.gpus != int(choice.gpus):
        raise ConfigError(
            f"engine.transport='nccl' and engine.gpus={choice.gpus:g}: NCCL wants a whole GPU for every member. Choose "
            "engine.gpus=1, or transport=auto."
        )
    if choice.gpus and not torch.cuda.is_available():
        raise ConfigError(
            "engine.transport='nccl': the learner's process has no GPU to send from. Choose transport=auto."
        )


PATIENCE_S = 2.0
"""Time limit for an engine's answer; beyond it the previous one counts."""


def collect_answers(asked: Sequence[Any]) -> list[Any]:
    """The answers of the engines that are alive and answer in time."""
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE_S) if asked else ([], [])
    answers: list[Any] = []
    for reference in ready:
        try:
            answers.append(ray.get(reference))
        except RayError:
            continue
    return answers


RETRY_S = 0.5
CLOSE_S = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The arguments for opening a fleet. `options` are passed to Ray for every engine."""

    choice: VllmEngineConfig
    opening: Opening
    model: Callable[[], Path]
    """Finds the model's folder on the machine where it is called."""
    options: Mapping[str, Any]


class VllmFleet(Closing):
    """All engines of a run. One that dies is restarted and takes the newest weights by itself."""

    def __init__(self, plan: FleetPlan) -> None:
        _refuse_impossible(plan.choice)
        self._timeout_s = plan.choice.start_timeout_s
        self._name = f"loomrl-{uuid.uuid4().hex[:12]}"
        self._broadcast = Broadcast(self._name, plan.choice) if plan.choice.transport == "nccl" else None
        self._folder = own_staging_folder(self._name)
        self._given: StagedWeights | None = None
        self._loads = 0
        self._worked: dict[str, Statistics] = {}
        self._latest = open_latest_weights(self._name, plan.choice.transport, asked_by=plan.choice.count)
        options = {"num_cpus": 1, "num_gpus": plan.choice.gpus, **plan.options}
        options |= {"max_restarts": -1, "max_concurrency": 2 * plan.opening.slots + 64}
        self._actors: list[Any] = [
            ray.remote(VllmActor)
            .options(name=engine_name(self._name, index), **options)
            .remote(self._name, plan.choice, plan.opening, plan.model)
            for index in range(plan.choice.count)
        ]
        try:
            self._start(plan.choice)
        except BaseException:
            self.close()
            raise

    def client(self) -> FleetClient:
        """An engine for runners in any process: each request goes to one of the fleet's engines."""
        return FleetClient(self._name, len(self._actors), self._timeout_s)

    def load(self, sealed: Sealed) -> None:
        """Give all engines these weights; their completions are held until `admit`.

        A PolicyError if any engine refuses; the others may have the weights by then, and hold: load good ones or
        reject.
        """
        self._loads += 1
        file = stage(sealed, self._folder / f"{sealed.version}-{self._loads}.safetensors")
        self._given = StagedWeights(sealed.version, file)
        ray.get(self._latest.give.remote(self._given))
        if self._broadcast is not None:
            self._send(self._broadcast, self._given, sealed)
        self._each("take")

    def probe(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """Every engine's completions with the last loaded weights, admitted or not."""
        return self._each("probe", list(requests))

    def admit(self, version: int) -> None:
        """Release held completions; from now on, restarted engines do not hold either."""
        if self._given is None or self._given.version != version:
            has = None if self._given is None else self._given.version
            raise PolicyError(f"version {version} cannot be admitted: the engines were given {has}.")
        ray.get(self._latest.admit.remote())
        self._each("admit", version)
        for file in self._folder.glob("*.safetensors"):
            if file != self._given.file:
                file.unlink()

    def reject(self, cause: str) -> None:
        """Fail all held and open requests; engines refuse work until good weights are loaded."""
        self._given = None
        ray.get(self._latest.reject.remote(cause))
        self._each("reject", cause)

    def release(self) -> None:
        """Give the memory of all engines' caches back until something is asked."""
        self._each("release")

    def request_statistics(self) -> Callable[[], Statistics]:
        """Request the counts of all engines: total tokens, mean busy seconds, with former lives included.

        The returned function waits for the answers.
        """
        asked = [actor.statistics.remote() for actor in self._actors]

        def total() -> Statistics:
            self._worked |= dict(collect_answers(asked))
            return self._total()

        return total

    def close(self) -> None:
        """End all engines and their processes."""
        for actor in self._actors:
            ray.kill(actor)
        if self._loads:
            with suppress(RayError):
                ray.get(self._latest.close.remote(), timeout=CLOSE_S)
        ray.kill(self._latest)
        if self._broadcast is not None:
            self._broadcast.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _total(self) -> Statistics:
        known = self._worked.values()
        return replace(
            Statistics(),
            sampled_tokens=sum(each.sampled_tokens for each in known),
            prompt_tokens=sum(each.prompt_tokens for each in known),
            busy_s=sum(each.busy_s for each in known) / len(self._actors),
        )

    def _start(self, choice: VllmEngineConfig) -> None:
        """Start all engines at once; the first failure is raised."""
        waiting = {actor.ready.remote(): index for index, actor in enumerate(self._actors)}
        nodes: set[str] = set()
        deadline = time.monotonic() + self._timeout_s
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not done:
                raise ConfigError(
                    f"{len(waiting)} of {len(self._actors)} engines did not start within "
                    f"engine.start_timeout_s={self._timeout_s:g}. Ray has {_resources()} free. Raise it, or "
                    "ask for fewer engines."
                )
            index = waiting.pop(done[0])
            try:
                answer = ray.get(done[0])
            except RayActorError as error:
                raise ConfigError(f"engine {index} died at start: {error}") from None
            if isinstance(answer, LoomError):
                raise ConfigError(str(answer))
            nodes.add(answer)
        if choice.transport == "shared" and nodes != {ray.get_runtime_context().get_node_id()}:
            raise ConfigError("engine.transport='shared' needs all engines on this machine. Choose auto.")

    def _send(self, broadcast: Broadcast, staged: StagedWeights, sealed: Sealed) -> None:
        """Send through a group of all engines. If one is lost meanwhile, each loads the latest weights by itself."""
        meeting, ranks = broadcast.invite(self._each("member"))

        async def all_at_once() -> list[Any]:
            receiving = [self._once(index, "receive", staged, meeting, first) for index, first in enumerate(ranks)]
            sending = asyncio.to_thread(broadcast.send, sealed)
            return await asyncio.gather(*receiving, sending, return_exceptions=True)

        failed = [one for one in asyncio.run(all_at_once()) if isinstance(one, BaseException)]
        if not failed:
            return
        broadcast.end()
        lost = next((one for one in failed if isinstance(one, EngineLost)), None)
        if lost is None:
            raise failed[0]
        _log.warning("version %d: all engines take the staged file. One was lost on the way: %s", staged.version, lost)

    def _each(self, method: str, *args: Any) -> list[Any]:
        """The answers of all engines, requested at once."""

        async def ask() -> list[Any]:
            answers = [self._ask(index, method, *args) for index in range(len(self._actors))]
            found = await asyncio.gather(*answers, return_exceptions=True)
            for one in found:
                if isinstance(one, BaseException):
                    raise one
            return found

        return asyncio.run(ask())

    async def _ask(self, index: int, method: str, *args: Any) -> Any:
        """One engine's answer; a restarted engine is asked again, once it has the others' weights."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            answer = await self._once(index, method, *args)
            if not isinstance(answer, EngineLost):
                break
            if time.monotonic() > deadline:
                raise PolicyError(f"engine {index} was lost, and did not come back in {self._timeout_s:g} s: {answer}")
            await asyncio.sleep(RETRY_S)
        if isinstance(answer, LoomError):
            raise answer
        return answer

    async def _once(self, index: int, method: str, *args: Any) -> Any:
        actor = self._actors[index]
        return await alive_or_killed(actor, getattr(actor, method).remote(*args))


def open_fleet(
    choice: VllmEngineConfig, opening: Opening, *, model: Callable[[], Path] | None = None, **options: Any
) -> VllmFleet:
    """The engines of the experiment, ready to answer; a ConfigError states what is missing.

    `model` finds the model's folder on an engine's machine, if that may differ from this one.
    """
    return VllmFleet(FleetPlan(choice, opening, model or partial(Path, opening.origin), options))


def _refuse_impossible(choice: VllmEngineConfig) -> None:
    require_vllm(choice)
    there = ray.cluster_resources()
    for name, each in (("CPU", 1.0), ("GPU", choice.gpus)):
        if choice.count * each > there.get(name, 0.0):
            raise ConfigError(
                f"engine.count={choice.count} with {each:g} {name} each: Ray has {there.get(name, 0.0):g} in all. Ask "
                f"for fewer, or start Ray with more (ray.init(num_{name.lower()}s=…), or more machines)."
            )


def _resources() -> str:
    free = ray.available_resources()
    return ", ".join(f"{free.get(name, 0.0):g} {name}" for name in ("CPU", "GPU"))
