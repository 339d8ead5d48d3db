"""The contract `agent.rl.trajectory.v1`: finished trajectories of agents."""

from typing import Annotated, Literal, NotRequired
from uuid import UUID

from pydantic import Field, with_config
from typing_extensions import TypedDict

from loomrl.bus.contract.basic import CLOSED, OPEN, Domain, Natural, NotNegative, Object, Positive, Share, Timestamp


@with_config(OPEN)
class Context(TypedDict):
    """Circumstances of an observation."""

    memory_state: NotRequired[Object]
    available_tools: NotRequired[list[str]]
    subordinates_active: NotRequired[Natural]


@with_config(OPEN)
class Observation(TypedDict):
    """An observation of an agent."""

    type: Literal["user_message", "tool_result", "subordinate_response", "system_message"]
    content: str | Object
    context: NotRequired[Context]


@with_config(OPEN)
class Action(TypedDict):
    """An action of an agent."""

    type: Literal["tool_call", "subordinate_call", "response", "memory_update"]
    tool_name: NotRequired[str]
    tool_args: NotRequired[Object]
    raw_response: NotRequired[str]


@with_config(OPEN)
class Result(TypedDict):
    """The outcome of an action."""

    success: bool
    output: NotRequired[str | Object | None]
    error: NotRequired[str | None]
    execution_time_ms: NotRequired[NotNegative]


@with_config(OPEN)
class TurnEvent(TypedDict):
    """One turn of an agent."""

    turn_id: Positive
    timestamp: Timestamp
    observation: Observation
    thought_process: NotRequired[list[str]]
    action: Action
    result: Result


@with_config(OPEN)
class TaskContext(TypedDict):
    """The task of a trajectory."""

    task_id: str
    instructions: str
    complexity_score: NotRequired[Share]
    domain: NotRequired[Domain]


@with_config(OPEN)
class TrajectoryMetadata(TypedDict):
    """The model behind a trajectory, and its cost."""

    model: str
    temperature: NotRequired[Annotated[float, Field(ge=0, le=2)]]
    total_tokens: NotRequired[Natural]
    total_cost_usd: NotRequired[NotNegative]


@with_config(CLOSED)
class TrajectoryEvent(TypedDict):
    """A finished trajectory, as text."""

    trajectory_id: UUID
    session_id: str
    agent_id: str
    subordinate_profile: NotRequired[Literal["researcher", "developer", "hacker", "rl-trainer"] | None]
    start_timestamp: Timestamp
    end_timestamp: Timestamp
    turns: Annotated[list[TurnEvent], Field(min_length=1)]
    task_context: TaskContext
    metadata: TrajectoryMetadata
