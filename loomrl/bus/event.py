"""Events as bytes: checked against the contract of their subject on the way in and on the way out."""

import json
from collections.abc import Mapping
from typing import Any, Generic, NoReturn, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from loomrl.bus.contract import ModelDeployed, RewardEvent, TrainingRequest, TrainingStatus, TrajectoryEvent
from loomrl.bus.example import EXAMPLES, with_examples
from loomrl.errors import EventError, unknown

T = TypeVar("T")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
MOST_FAULTS = 5
"""Faults that a message names."""


class Contract(Generic[T]):
    """A subject, and what an event of it may hold."""

    def __init__(self, subject: str, kind: type[T]) -> None:
        self.subject = subject
        self.example = EXAMPLES[subject]
        """An event with every property."""
        self._adapter: TypeAdapter[T] = TypeAdapter(kind)

    def parse(self, payload: bytes) -> T:
        """The event in a payload; an EventError says where the contract does not allow it, and repeats no content."""
        try:
            event = self._adapter.validate_json(payload, strict=True)
            if (
                b"NaN" in payload or b"Infinity" in payload
            ):  # which pydantic takes in the objects that may hold anything
                json.loads(payload, parse_constant=_refuse)
        except ValidationError as error:
            details = error.errors(include_input=False, include_url=False, include_context=False)
            raise EventError(f"{self.subject}: {_describe_faults(details)}") from None
        except ValueError as error:
            raise EventError(f"{self.subject}: {error}") from None
        return event

    def encode(self, event: Mapping[str, Any]) -> bytes:
        """The payload of an event, which the contract allows."""
        try:
            payload = msgspec.json.encode(event)
        except (TypeError, ValueError, RecursionError) as error:
            raise EventError(f"{self.subject}: not JSON: {error}") from None
        self.parse(payload)
        return payload

    def schema(self) -> dict[str, Any]:
        """The contract as a JSON Schema, whose properties have descriptions and examples."""
        described = with_examples(self._adapter.json_schema(), self.example)
        return {"$schema": DIALECT, "$id": self.subject, **described}


TRAJECTORY = Contract("agent.rl.trajectory.v1", TrajectoryEvent)
REWARD = Contract("agent.rl.reward.v1", RewardEvent)
TRAINING_REQUEST = Contract("agent.rl.training.request.v1", TrainingRequest)
TRAINING_STATUS = Contract("agent.rl.training.status.v1", TrainingStatus)
MODEL_DEPLOYED = Contract("agent.rl.model.deployed.v1", ModelDeployed)
CONTRACTS: Mapping[str, Contract[Any]] = {
    contract.subject: contract for contract in (TRAJECTORY, REWARD, TRAINING_REQUEST, TRAINING_STATUS, MODEL_DEPLOYED)
}


def contract_of(subject: str) -> Contract[Any]:
    """The contract of a subject; an EventError names the nearest."""
    if subject not in CONTRACTS:
        raise EventError(unknown("subject", subject, CONTRACTS))
    return CONTRACTS[subject]


def _describe_faults(faults: list[ErrorDetails]) -> str:
    shown = [
        f"{'.'.join(map(str, fault['loc'])) or 'event'}: {fault['msg'].removeprefix('Value error, ')}"
        for fault in faults[:MOST_FAULTS]
    ]
    more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
    return "; ".join(shown) + more


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
