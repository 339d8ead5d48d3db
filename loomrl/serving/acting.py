"""A control policy as a served one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from loomrl.control.memory import MemoryState
from loomrl.control.policy import ControlPolicy
from loomrl.control.preference import PREFERENCE, is_steered, with_preference
from loomrl.control.space import space_to_json
from loomrl.errors import ConfigError
from loomrl.serving.call import Event
from loomrl.serving.channel.batches import Together
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation
from loomrl.serving.refusal import Refusal, RefusalCause

MAX_BATCH = 4096


class ControlServedPolicy:
    """Acts with an exported control policy. Calls that come together share one pass of the network."""

    def __init__(self, policy: ControlPolicy, *, version: str, number: int) -> None:
        self._policy = policy
        self._number = number
        observed = policy.observation_space
        objectives = 0
        if isinstance(observed, spaces.Dict) and is_steered(observed):
            objectives = int(np.prod(observed.spaces[PREFERENCE].shape or ()))
        self._about = About(
            kind="control",
            version=version,
            number=number,
            objectives=objectives,
            spaces={"observation": space_to_json(observed), "action": space_to_json(policy.action_space)},
            state=0 if (state := policy.state()) is None else state.numbers_BS.shape[1],
        )
        self._together = Together(self._run)

    @staticmethod
    def open(folder: Path, *, version: str, number: int) -> "ControlServedPolicy":
        """The policy exported to a folder."""
        return ControlServedPolicy(ControlPolicy.load(folder), version=version, number=number)

    @property
    def about(self) -> About:
        """The policy's description."""
        return self._about

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """A Refusal: control policies act."""
        raise Refusal(RefusalCause.INVALID, "A control policy cannot chat: ask /v1/act.", where="model")
        yield  # an asynchronous generator

    async def act(self, act: ActRequest) -> ActResult:
        """The actions for a batch."""
        return await self._together.act(act)

    async def _run(self, act: ActRequest) -> ActResult:
        return self._run_batch(act)

    def _run_batch(self, act: ActRequest) -> ActResult:
        count = _length(act.observations)
        if not 0 < count <= MAX_BATCH:
            raise Refusal(
                RefusalCause.INVALID, f"A batch has 1 to {MAX_BATCH} observations, not {count}.", where="observations"
            )
        generator = None
        if act.explore and act.seed is not None:
            generator = torch.Generator().manual_seed(act.seed)
        try:
            observations = self._steer(act, count)
            state = self._state(act, count)
            self._policy.refuse_stuck(observations)
            if act.explore:
                actions, logprobs = self._policy.sample_batch(observations, state=state, generator=generator)
            else:
                actions = self._policy.act_batch(observations, state=state)
                logprobs = None
        except ConfigError as error:
            raise Refusal(RefusalCause.INVALID, str(error), where="observation") from None
        states = None if state is None else state.numbers_BS
        return ActResult(actions=np.ascontiguousarray(actions), version=self._number, logprobs=logprobs, states=states)

    def _state(self, act: ActRequest, count: int) -> MemoryState | None:
        """The state of the call's episodes; they begin where it has none."""
        given = act.states
        size = self._about.state
        if given is None:
            return self._policy.state(count)
        if not size:
            raise Refusal(RefusalCause.INVALID, "This policy has no memory: it takes no state.", where="state")
        if given.shape != (count, size) or not np.isfinite(given).all():
            message = (
                f"A state of shape {given.shape} for {count} observations: give {size} finite numbers for each, as the "
                "answer to its last step had them; zeros begin an episode, and so does no state at all."
            )
            raise Refusal(RefusalCause.INVALID, message, where="state")
        return MemoryState(given)

    def _steer(self, act: ActRequest, count: int) -> Any:
        """Observations with the wish's preference as part of them."""
        observed = self._policy.observation_space
        if not is_steered(observed):
            if act.preferences is not None or act.earned is not None:
                raise Refusal(
                    RefusalCause.INVALID, "This policy has one objective: it takes no preference.", where="preference"
                )
            return act.observations
        if act.preferences is None:
            if isinstance(act.observations, dict) and PREFERENCE in act.observations:
                return act.observations
            message = f"This policy has {self._about.objectives} objectives: give a preference, weights that sum to 1."
            raise Refusal(RefusalCause.INVALID, message, where="preference")
        if len(act.preferences) not in (1, count):
            message = f"{len(act.preferences)} preferences for {count} observations: give one, or one for each."
            raise Refusal(RefusalCause.INVALID, message, where="preference")
        parts = [
            with_preference(
                observed, _row(act.observations, row), act.preferences[row % len(act.preferences)], _wish_row(act, row)
            )
            for row in range(count)
        ]
        return _stack(observed, parts)


def _length(value: Any) -> int:
    while isinstance(value, dict | list | tuple):
        if not value:
            return 0
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return len(value) if np.ndim(value) else 0


def _row(value: Any, row: int) -> Any:
    return {name: _row(part, row) for name, part in value.items()} if isinstance(value, dict) else value[row]


def _wish_row(act: ActRequest, row: int) -> Any:
    return None if act.earned is None else act.earned[row % len(act.earned)]


def _stack(space: spaces.Space[Any], rows: list[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _stack(part, [row[name] for row in rows]) for name, part in space.spaces.items()}
    return np.stack([np.asarray(row) for row in rows])
