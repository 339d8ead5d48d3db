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
    """The agent's memory at this moment, in a form of its own."""
    available_tools: NotRequired[list[str]]
    """Names of the tools that it could call."""
    subordinates_active: NotRequired[Natural]
    """Other agents that worked for it."""


@with_config(OPEN)
class Observation(TypedDict):
    """An observation of an agent."""

    type: Literal["user_message", "tool_result", "subordinate_response", "system_message"]
    """Origin of the observation."""
    content: str | Object
    """Text, or what a tool gave back as an object."""
    context: NotRequired[Context]
    """Circumstances."""


@with_config(OPEN)
class Action(TypedDict):
    """An action of an agent."""

    type: Literal["tool_call", "subordinate_call", "response", "memory_update"]
    """Kind of the action."""
    tool_name: NotRequired[str]
    """Name of the tool, in a tool call."""
    tool_args: NotRequired[Object]
    """Arguments of a tool call."""
    raw_response: NotRequired[str]
    """The agent's words, unchanged."""


@with_config(OPEN)
class Result(TypedDict):
    """The outcome of an action."""

    success: bool
    """True if the action could be carried out."""
    output: NotRequired[str | Object | None]
    """Output of the action, as text or as an object."""
    error: NotRequired[str | None]
    """The error's message; null without one."""
    execution_time_ms: NotRequired[NotNegative]
    """Duration in milliseconds."""


@with_config(OPEN)
class TurnEvent(TypedDict):
    """One turn of an agent."""

    turn_id: Positive
    """Number of the turn, from 1."""
    timestamp: Timestamp
    """Time of the action."""
    observation: Observation
    """The observation before the action."""
    thought_process: NotRequired[list[str]]
    """Its thoughts, in order."""
    action: Action
    """The action."""
    result: Result
    """The outcome of the action."""


@with_config(OPEN)
class TaskContext(TypedDict):
    """The task of a trajectory."""

    task_id: str
    """Id of the task; attempts at the same task share it."""
    instructions: str
    """The system's message to the agent."""
    complexity_score: NotRequired[Share]
    """Difficulty, from 0, easy, to 1."""
    domain: NotRequired[Domain]
    """Kind of work; `general` if absent."""


@with_config(OPEN)
class TrajectoryMetadata(TypedDict):
    """The model behind a trajectory, and its cost."""

    model: str
    """Name of the model, as its provider calls it."""
    temperature: NotRequired[Annotated[float, Field(ge=0, le=2)]]
    """Sampling temperature."""
    total_tokens: NotRequired[Natural]
    """Tokens read and written in all turns."""
    total_cost_usd: NotRequired[NotNegative]
    """Cost in US dollars."""


@with_config(CLOSED)
class TrajectoryEvent(TypedDict):
    """A finished trajectory, as text."""

    trajectory_id: UUID
    """Id of the trajectory, and of the message: a repeated one is dropped."""
    session_id: str
    """The conversation; several trajectories may share it."""
    agent_id: str
    """The agent, by the name that its operator gave it."""
    subordinate_profile: NotRequired[Literal["researcher", "developer", "hacker", "rl-trainer"] | None]
    """Role of an agent that works for another one; null or absent for one that does not."""
    start_timestamp: Timestamp
    """Beginning of the first turn."""
    end_timestamp: Timestamp
    """End of the last turn."""
    turns: Annotated[list[TurnEvent], Field(min_length=1)]
    """All turns, oldest first."""
    task_context: TaskContext
    """The task."""
    metadata: TrajectoryMetadata
    """The model, and the cost."""
