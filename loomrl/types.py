"""The nouns of LoomRL: one word per idea, everywhere. All values are frozen; a trajectory is written once.

Axis suffix: `_T` is the position in a token sequence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from loomrl.canonical import content_hash
from loomrl.pickled import quickly
from loomrl.picture import label

NO_VERSION = -1
"""The policy version of tokens and actions that no policy version sampled: a prompt token, a scripted action."""


class End(StrEnum):
    """The end of an attempt. Only a FAILED one carries a `Failure`; it is masked out of learning and counted."""

    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    FAILED = "failed"


class Source(StrEnum):
    """The source of a trajectory."""

    ROLLOUT = "rollout"
    EVALUATION = "evaluation"
    DEMONSTRATION = "demonstration"
    PRODUCTION = "production"
    FOREIGN = "foreign"
    """From an agent outside LoomRL: text, without tokens."""


class Stage(StrEnum):
    """A policy version's stage on its way to users."""

    CANDIDATE = "candidate"
    CANARY = "canary"
    PRODUCTION = "production"
    RETIRED = "retired"
    FORGOTTEN = "forgotten"
    """It learnt from a person who was forgotten since: deleted, and never used again."""


class Message(NamedTuple):
    """One chat message. `role` is `system`, `user`, `assistant` or `tool`."""

    role: str
    content: str
    images: tuple[bytes, ...] = ()
    """PNG files; the policy sees them before the text."""

    @property
    def text(self) -> str:
        """The content as text only: a line replaces each picture."""
        return "\n".join([*map(label, self.images), self.content])


Observation = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """A restriction of an answer's text: no other text can be sampled, and it ends only where the form may end."""

    kind: Literal["json", "schema", "regex", "choice", "grammar"]
    """`json` is any JSON object."""
    text: str = ""
    """A JSON schema, a regular expression, a JSON list of strings, or a grammar (EBNF as llama.cpp's, or Lark)."""


@dataclass(frozen=True, slots=True)
class Odds:
    """Changes of the odds of tokens, in this order: bias, penalties, and the cuts that leave the likeliest."""

    logit_bias: tuple[tuple[int, float], ...] = ()
    """Ids, and what is added to their logits."""
    repetition_penalty: float = 1.0
    """Divides positive logits of ids that prompt or answer have already, and multiplies negative ones."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of ids that the answer has already."""
    frequency_penalty: float = 0.0
    """The same for every time that the answer has the id."""
    min_p: float = 0.0
    """Least probability, as a share of that of the likeliest id."""
    top_k: int = 0
    """Number of ids that stay; 0 for all."""

    @property
    def changes(self) -> dict[str, Any]:
        """The fields that change something, as vLLM and SGLang name and write them."""
        found = {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}
        return found | ({"logit_bias": dict(self.logit_bias)} if self.logit_bias else {})


NO_ODDS = Odds()


@quickly
@dataclass(frozen=True, slots=True)
class Task:
    """A task to attempt. Built from picklable data only, so that the same task can be attempted anywhere."""

    environment: str
    version: str
    family: str
    level: int
    seed: int
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Content hash: equal tasks have equal keys in every process."""
        parts = (self.environment, self.version, self.family, self.level, self.seed, dict(self.parameters))
        return content_hash(parts)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error at a boundary, as data. Never a reward."""

    boundary: str
    kind: str
    message: str


@quickly
@dataclass(frozen=True, slots=True)
class Reward:
    """A total, its named parts (weighted, so that they sum to the unclipped total), and success in 0..1.

    Success means only that the task was solved; curricula and evaluations use it, never the shaped total.
    """

    total: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    success: float = 0.0

    def __float__(self) -> float:
        return self.total


@quickly
@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Token ids as sampled, with a mask of the policy's tokens, log-probabilities, and sampling versions.

    Where `mask_T` is false (prompt, environment text) the log-probability is 0 and the version is `NO_VERSION`.
    """

    ids_T: NDArray[np.int32]
    mask_T: NDArray[np.bool_]
    logprobs_T: NDArray[np.float32]
    versions_T: NDArray[np.int32]
    entropies_T: NDArray[np.float32] | None = None
    """Entropy in nats of the distribution of each token, 0 where `mask_T` is false; None: not recorded."""
    shifts_T: NDArray[np.float32] | None = None
    """How much likelier a token was to be sampled than the policy makes it, as a difference of log-probabilities.

    A form and the like shift the odds, temperature and top-p do not count. +inf: unknown. None: nothing was shifted.
    """

    def __post_init__(self) -> None:
        shapes = {array.shape for array in self._all()}
        if len(shapes) != 1 or self.ids_T.ndim != 1:
            raise ValueError(f"Tokens: one-dimensional arrays of one length are needed, got shapes {shapes}.")

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The four columns that every token has, in field order."""
        return self.ids_T, self.mask_T, self.logprobs_T, self.versions_T

    def _all(self) -> tuple[NDArray[Any], ...]:
        further = (self.entropies_T, self.shifts_T)
        return (*self.arrays(), *(column_T for column_T in further if column_T is not None))

    def __len__(self) -> int:
        return len(self.ids_T)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tokens):
            return NotImplemented
        if (self.entropies_T is None, self.shifts_T is None) != (other.entropies_T is None, other.shifts_T is None):
            return False
        return all(np.array_equal(mine, theirs) for mine, theirs in zip(self._all(), other._all(), strict=True))

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def sampled(
        prompt_T: NDArray[np.int32],
        ids_T: NDArray[np.int32],
        logprobs_T: NDArray[np.float32],
        versions_T: NDArray[np.int32],
        entropies_T: NDArray[np.float32] | None = None,
        shifts_T: NDArray[np.float32] | None = None,
    ) -> "Tokens":
        """A prompt, and the tokens that were sampled after it."""
        given = len(prompt_T)
        nothing = np.zeros(given, np.float32)
        return Tokens(
            np.concatenate([prompt_T, ids_T]),
            np.repeat([False, True], [given, len(ids_T)]),
            np.concatenate([nothing, logprobs_T]),
            np.concatenate([np.full(given, NO_VERSION, np.int32), versions_T]),
            None if entropies_T is None else np.concatenate([nothing, entropies_T]),
            None if shifts_T is None else np.concatenate([nothing, shifts_T]),
        )

    @staticmethod
    def of(ids: Sequence[int], mask: Sequence[bool], logprobs: Sequence[float], versions: Sequence[int]) -> "Tokens":
        """Tokens from plain sequences."""
        return Tokens(
            np.asarray(ids, np.int32),
            np.asarray(mask, np.bool_),
            np.asarray(logprobs, np.float32),
            np.asarray(versions, np.int32),
        )


@quickly
@dataclass(frozen=True, slots=True)
class Turn:
    """The policy's new observation, its action, and the reward.

    For a language policy `tokens` are the ids of this turn exactly as sampled (new prompt tokens, then the action's);
    the turns' tokens, joined, are the whole sequence. They are never re-tokenised from text.
    """

    observation: Observation
    action: str
    reward: Reward = field(default_factory=Reward)
    tokens: Tokens | None = None


@quickly
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """The steps of a control policy, in order: `_T` is the step.

    Observations are as the caller sent them: an array with the steps first, or a mapping or list of such.
    """

    observations: Any
    actions: Any
    """An array with the steps first."""
    logprobs_T: NDArray[np.float32]
    """Log-probability of the drawn action, before it was scaled or clipped to the space; 0 where it was not sampled."""
    sampled_T: NDArray[np.bool_]
    """True where the policy explored, false where it took the likeliest action."""
    versions_T: NDArray[np.int32]
    lanes_T: NDArray[np.int32]
    """The row in its batch: 0 unless several observations came in one call."""
    times_T: NDArray[np.float64]
    """Arrival of the call, in seconds since 1970."""
    wishes: Mapping[str, Any] = field(default_factory=dict)
    """`preference` and `earned` where they came beside the observations: arrays with the steps first."""

    def __len__(self) -> int:
        return len(self.versions_T)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Steps):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)

    __hash__ = None  # type: ignore[assignment]


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return mine.keys() == theirs.keys() and all(_same(value, theirs[name]) for name, value in mine.items())
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    return np.array_equal(mine, theirs)


@quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One finished attempt at a task. Written once, never edited; later judgements are `Feedback`."""

    id: str
    task: Task
    turns: tuple[Turn, ...]
    end: End
    reward: Reward
    group: str
    group_size: int = 1
    first_version: int = NO_VERSION
    last_version: int = NO_VERSION
    source: Source = Source.ROLLOUT
    snapshot: str = ""
    """Content hash of the environment version that made it."""
    run: str = ""
    failure: Failure | None = None
    started_at: float = 0.0
    finished_at: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Data of an outside protocol, returned unchanged, the `memory` left for later attempts, and judges' `grades`.

    JSON values and NumPy arrays.
    """
    threads: tuple[tuple[Turn, ...], ...] = ()
    """Further sequences of the same attempt (sub-agents, retries, edits), beside `turns`. What a thread shares with an
    earlier one is in its first turn, with a false mask: each sampled token has a true mask once.
    """
    steps: Steps | None = None
    """Steps of a control policy, which has no turns."""

    def __post_init__(self) -> None:
        if (self.end is End.FAILED) != (self.failure is not None):
            raise ValueError(f"Trajectory {self.id!r}: end={self.end.value!r} but failure={self.failure!r}.")
        if self.group_size < 1:
            raise ValueError(f"Trajectory {self.id!r}: group_size={self.group_size} must be at least 1.")

    @property
    def tokens(self) -> Tokens | None:
        """The tokens of `turns` joined, or None if no token policy acted."""
        return joined(self.turns)

    @property
    def sequences(self) -> tuple[tuple[Turn, ...], ...]:
        """`turns`, then the further threads."""
        return (self.turns, *self.threads)


def joined(turns: Sequence[Turn]) -> Tokens | None:
    """The tokens of consecutive turns as one sequence, or None if no token policy acted."""
    spans = [turn.tokens for turn in turns if turn.tokens is not None]
    if len(spans) < 2:
        return spans[0] if spans else None
    told = [span.entropies_T for span in spans if span.entropies_T is not None]
    whole = Tokens(*(np.concatenate(columns) for columns in zip(*(span.arrays() for span in spans), strict=True)))
    return replace(
        whole,
        entropies_T=np.concatenate(told) if len(told) == len(spans) else None,
        shifts_T=join_shifts((span.ids_T, span.shifts_T) for span in spans),
    )


def join_shifts(
    spans: Iterable[tuple[NDArray[np.int32], NDArray[np.float32] | None]],
) -> NDArray[np.float32] | None:
    """The shifts of spans of ids that follow each other; None if nothing was shifted in any."""
    known = list(spans)
    if all(shifts_T is None for _, shifts_T in known):
        return None
    return np.concatenate([np.zeros(len(ids_T), np.float32) if one_T is None else one_T for ids_T, one_T in known])


@dataclass(frozen=True, slots=True)
class Group:
    """Attempts at one task under the same conditions, for relative advantages.

    `cause` states why it was handed out incomplete; it is empty for a complete group.
    """

    id: str
    trajectories: tuple[Trajectory, ...]
    cause: str = ""

    @property
    def usable(self) -> tuple[Trajectory, ...]:
        """The attempts that learning may use: all but the FAILED ones."""
        return tuple(t for t in self.trajectories if t.end is not End.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """A policy that can be loaded, with its origin."""

    id: str
    number: int
    url: str
    run: str
    algorithm: str
    experiment: str
    """SHA-256 of the resolved experiment."""
    parent: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    """Its training data: hub leases or cursors."""
    code: str = ""
    """Revision of the code that made it."""
    stage: Stage = Stage.CANDIDATE
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A later judgement of a trajectory: author, content, time."""

    id: str
    trajectory: str
    source: str
    """`human` (said by a person), `caller` (an outcome that the calling program knows) or `implicit` (derived)."""
    kind: str
    value: float
    """From 0, the worst, to 1."""
    comment: str = ""
    created_at: float = 0.0
    call: str = ""
    """The answer it is about; empty for the whole session."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """JSON: the text of a correction, the other answer of a choice."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Allowed or not, with reasons. The one answer of monitor, gate and canary."""

    allowed: bool
    reasons: tuple[str, ...] = ()


class HeldTime(Protocol):
    """The time of an attempt in which it waits for others: for their turns, or for an engine's work for them."""

    def queued(self, seconds: Callable[[], float]) -> AbstractContextManager[None]:
        """An engine has a request of the attempt: so far it has let it wait for `seconds`."""

    def seconds_held(self) -> float:
        """Seconds up to now."""


SEAT: ContextVar[HeldTime | None] = ContextVar("seat", default=None)
"""The held time of the attempt that the running task plays; here, as engines run where Gymnasium is not installed."""
