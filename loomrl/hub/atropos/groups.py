"""ScoredData, the group of sequences on the Atropos wire, as trajectories and back, without loss.

What the nouns hold is kept in them: token ids, mask, log-probabilities, scores. The rest travels in `extra` under its
own name, one row per trajectory; what concerns the whole group is in the first trajectory's `extra["group"]`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FailFast, Field, field_validator, model_validator

from loomrl.canonical import canonical_json
from loomrl.types import NO_VERSION, End, Group, Reward, Task, Tokens, Trajectory, Turn

MASKED = -100
"""The mask of a position that is not trained; a trained one has its token id there."""
MASKED_LOGPROB = 1.0
FLOAT32 = np.finfo(np.float32)

Id = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Ids = Annotated[list[Id], FailFast()]
Floats = Annotated[list[float], FailFast()]

ROWS = (
    "advantages",
    "ref_logprobs",
    "messages",
    "inference_logprobs",
    "overrides",
    "distill_token_ids",
    "distill_logprobs",
)
"""Optional fields with one entry per sequence. Environments also send them empty, which is not the same as null."""
FLOATS = ("advantages", "ref_logprobs", "inference_logprobs")
OF_GROUP = ("generation_params", "group_overrides", "images", "env_id")


class ScoredData(BaseModel):
    """One group as an environment posts it. Unknown fields are dropped; numbers are finite."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    tokens: list[Ids] = Field(min_length=1)
    masks: list[Ids]
    scores: Floats
    advantages: list[Floats] | None = None
    ref_logprobs: list[Floats] | None = None
    messages: list[list[dict[str, Any]]] | None = None
    generation_params: dict[str, Any] | None = None
    inference_logprobs: list[Floats] | None = None
    overrides: list[dict[str, Any]] | None = None
    group_overrides: dict[str, Any] | None = None
    images: Any = None
    env_id: int | None = None
    distill_token_ids: list[list[Ids]] | None = None
    distill_logprobs: list[list[Floats]] | None = None

    @field_validator("messages")
    @classmethod
    def _speak(cls, messages: list[list[dict[str, Any]]] | None) -> list[list[dict[str, Any]]] | None:
        if any(not {"role", "content"} <= message.keys() for row in messages or () for message in row):
            raise ValueError("Message must have 'role' and 'content' fields")
        return messages

    @model_validator(mode="after")
    def _check_alignment(self) -> Self:
        count = len(self.tokens)
        rows: dict[str, Sequence[Any]] = {"masks": self.masks, "scores": self.scores}
        rows |= {name: given for name in ROWS if (given := getattr(self, name))}
        for name, given in rows.items():
            if len(given) != count:
                raise ValueError(f"{name} has {len(given)} rows, tokens has {count}: one per sequence is needed")
        for name in ("masks", "inference_logprobs"):
            for number, (row, ids) in enumerate(zip(rows.get(name, ()), self.tokens, strict=False)):
                if len(row) != len(ids):
                    raise ValueError(f"{name}[{number}] has {len(row)} entries, tokens[{number}] has {len(ids)}")
        for name in ("messages", "overrides", *OF_GROUP):
            _check_storable(name, getattr(self, name))
        return self


def _check_storable(name: str, value: Any) -> None:
    try:
        canonical_json(value)
        msgspec.msgpack.encode(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: {error}") from None


def to_trajectories(data: ScoredData, *, group: str, environment: str) -> list[Trajectory]:
    """The group `group` of one trajectory per sequence. There is no policy version on this wire: NO_VERSION."""
    fields = {name: getattr(data, name) for name in (*ROWS, *OF_GROUP)}
    whole = {name: value for name, value in fields.items() if name in OF_GROUP or not value}
    task = Task(environment, "", "", 1, 0)
    trajectories = []
    for number, (ids, mask, score) in enumerate(zip(data.tokens, data.masks, data.scores, strict=True)):
        tokens = _tokens(ids, mask, data.inference_logprobs[number] if data.inference_logprobs else None)
        extra = {name: _pack(name, fields[name][number]) for name in ROWS if fields[name]}
        if not np.array_equal(_masks(tokens), mask):
            extra["masks"] = np.asarray(mask, np.int32)
        if "inference_logprobs" in extra and np.array_equal(_logprobs(tokens), extra["inference_logprobs"]):
            del extra["inference_logprobs"]
        trajectory = Trajectory(
            id=f"{group}.{number}",
            task=task,
            turns=(Turn((), "", tokens=tokens),),
            end=End.TERMINATED,
            reward=Reward(score, {"score": score}),
            group=group,
            group_size=len(data.tokens),
            extra=extra if number else {**extra, "group": whole},
        )
        trajectories.append(trajectory)
    return trajectories


def from_group(group: Group) -> dict[str, Any]:
    """The environment's post, with every field present, as JSON values."""
    members = sorted(group.trajectories, key=lambda member: int(member.id.rpartition(".")[2]))
    whole = members[0].extra["group"]
    return {
        name: whole[name] if name in whole else [_row(name, member) for member in members]
        for name in ScoredData.model_fields
    }


def _row(name: str, member: Trajectory) -> Any:
    tokens = member.tokens
    assert tokens is not None, "to_trajectories gives every trajectory its tokens"
    if name == "tokens":
        return tokens.ids_T.tolist()
    if name == "scores":
        return member.reward.total
    if name in member.extra:
        row = member.extra[name]
        return row.tolist() if isinstance(row, np.ndarray) else row
    return (_masks(tokens) if name == "masks" else _logprobs(tokens)).tolist()


def _tokens(ids: Sequence[int], mask: Sequence[int], logprobs: Sequence[float] | None) -> Tokens:
    trained = np.asarray(mask, np.int32) != MASKED
    known = np.zeros(len(ids)) if logprobs is None else np.where(trained, logprobs, 0.0)
    fitting = np.clip(known, FLOAT32.min, FLOAT32.max).astype(np.float32)
    return Tokens(np.asarray(ids, np.int32), trained, fitting, np.full(len(ids), NO_VERSION, np.int32))


def _masks(tokens: Tokens) -> NDArray[np.int32]:
    return np.where(tokens.mask_T, tokens.ids_T, np.int32(MASKED))


def _logprobs(tokens: Tokens) -> NDArray[np.float64]:
    return np.where(tokens.mask_T, tokens.logprobs_T.astype(np.float64), MASKED_LOGPROB)


def _pack(name: str, row: Any) -> Any:
    return np.asarray(row, np.float64) if name in FLOATS else row
