"""The messages of the `tinker` client (0.38): protobuf where there are arrays, JSON for the rest.

Axes: T positions of one datum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from pydantic import Field, model_validator

from loomrl.config.basic import NonNegative, PositiveInt
from loomrl.errors import ConfigError, unknown
from loomrl.schema import Config

PROTOBUF = "application/x-protobuf"
KINDS = {"bytes": 12, "string": 9, "int32": 5, "int64": 3, "double": 1, "bool": 8}
"""Types of fields, by protobuf's numbers; any other name is a message."""
MESSAGES: Mapping[str, str] = {
    "Chunk": "1 encoded_text Text, 2 image bytes, 3 dmel bytes",
    "Text": "1 tokens bytes",
    "Tensor": "1 dense bytes, 2 sparse_csr bytes, 3 dtype int32, 4 shape int64*",
    "Datum": "1 model_input Chunk*, 2 loss_fn_inputs Tensor{}",
    "Value": "1 number double, 2 text string",
    "ForwardBackwardRequest": "1 model_id string, 2 seq_id int32, 3 data Datum*, 4 loss_fn string, "
    "6 forward_only bool, 7 loss_fn_config_v2 Value{}",
    "BatchedTensor": "1 data bytes, 2 offsets bytes, 3 dtype int32, 4 trailing_shape int64*",
    "ArrayRecord": "1 type_tag string, 2 fields BatchedTensor{}, 3 num_datums int64",
    "ForwardBackwardOutput": "1 loss_fn_output_type string, 2 loss_fn_outputs ArrayRecord*, 3 metrics double{}",
    "SampledSequence": "1 stop_reason int32, 2 tokens bytes, 3 logprobs bytes",
    "SampleResponse": "1 sequences SampledSequence*, 2 prompt_logprobs bytes",
}
"""Fields of each message: number, name, type; `*` is a list, `{}` a mapping from strings. What the client may send
beside them says where tokens come from, and is skipped.
"""
DTYPES = {1: np.float32, 2: np.int64}
FLOAT32 = 1
STOPPED = 0
CUT_OFF = 1


def message(name: str) -> Any:
    """The class of a message."""
    return _messages()[name]


@cache
def _messages() -> Mapping[str, Any]:
    """All classes, of a pool of our own: the client's package registers the same names in the common one."""
    file = descriptor_pb2.FileDescriptorProto(name="tinker.proto", package="tinker", syntax="proto2")
    for title, fields in MESSAGES.items():
        made = file.message_type.add(name=title)
        for field in fields.split(", "):
            number, word, kind = field.split()
            _add_field(made, int(number), word, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tinker.{name}")) for name in MESSAGES}


def _add_field(made: Any, number: int, word: str, kind: str) -> None:
    repeated = kind.endswith(("*", "{}"))
    field = made.field.add(name=word, number=number, label=3 if repeated else 1)
    plain = kind.removesuffix("*").removesuffix("{}")
    if kind.endswith("{}"):
        entry = made.nested_type.add(name=f"{word.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, 1, "key", "string")
        _add_field(entry, 2, "value", plain)
        plain = f"{made.name}.{entry.name}"
    if plain in KINDS:
        field.type = KINDS[plain]
    else:
        field.type = 11
        field.type_name = f".tinker.{plain}"


@dataclass(frozen=True, slots=True, eq=False)
class TinkerDatum:
    """A datum: ids that the model reads, and arrays with one entry for each of them."""

    ids_T: NDArray[np.int64]
    inputs: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class LossRequest:
    """A loss over data, with gradients or without."""

    data: Sequence[TinkerDatum]
    loss: str
    settings: Mapping[str, float | str]
    forward_only: bool


def parse_request(body: bytes) -> Any:
    """A `ForwardBackwardRequest`; a ConfigError if it is none."""
    try:
        return message("ForwardBackwardRequest").FromString(body)
    except DecodeError as error:
        raise ConfigError(f"forward_backward: the body is no ForwardBackwardRequest in protobuf: {error}.") from None


def read_loss_request(body: bytes) -> LossRequest:
    """The work that a request asks for; a ConfigError names what this server has not."""
    asked = parse_request(body)
    values = {name: v.text if v.HasField("text") else v.number for name, v in asked.loss_fn_config_v2.items()}
    data = [_read_datum(index, datum) for index, datum in enumerate(asked.data)]
    if not data:
        raise ConfigError("forward_backward: data is empty: send at least one datum.")
    return LossRequest(data, asked.loss_fn, values, asked.forward_only)


def _read_datum(index: int, datum: Any) -> TinkerDatum:
    for chunk in datum.model_input:
        if not chunk.HasField("encoded_text"):
            raise ConfigError(f"data.{index}.model_input: images and audio are not read here, only encoded_text.")
    ids_T = np.frombuffer(b"".join(chunk.encoded_text.tokens for chunk in datum.model_input), np.int32).astype(np.int64)
    inputs = {name: _read_array(f"data.{index}.{name}", given) for name, given in datum.loss_fn_inputs.items()}
    if not len(ids_T):
        raise ConfigError(f"data.{index}.model_input is empty: one token at least is needed.")
    for name, array in inputs.items():
        if array.shape != ids_T.shape:
            raise ConfigError(
                f"data.{index}.{name} has shape {array.shape}: one number for each of the {len(ids_T)} tokens of "
                "model_input is needed."
            )
    return TinkerDatum(ids_T, inputs)


def _read_array(path: str, given: Any) -> NDArray[Any]:
    if given.HasField("sparse_csr"):
        raise ConfigError(f"{path} is sparse: several targets for a token are not scored here. Send a dense row.")
    if given.dtype not in DTYPES:
        raise ConfigError(f"{path}.dtype={given.dtype}: float32 (1) and int64 (2) are known.")
    array = np.frombuffer(given.dense, DTYPES[given.dtype])
    return array.reshape(tuple(given.shape)) if given.shape else array


def write_output(logprobs: Sequence[NDArray[np.float32]], metrics: Mapping[str, float]) -> bytes:
    """A `ForwardBackwardOutput`: the log-probability of each target of each datum."""
    ends = np.cumsum([0, *(array.nbytes for array in logprobs)])
    batch = message("BatchedTensor")(
        data=b"".join(array.astype(np.float32).tobytes() for array in logprobs),
        offsets=ends.astype(np.int64).tobytes(),
        dtype=FLOAT32,
    )
    record = message("ArrayRecord")(type_tag="ArrayRecord", fields={"logprobs": batch}, num_datums=len(logprobs))
    output = message("ForwardBackwardOutput")(
        loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record], metrics=dict(metrics)
    )
    return bytes(output.SerializeToString())


@dataclass(frozen=True, slots=True, eq=False)
class DrawnSequence:
    """One sampled answer."""

    ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    stopped: bool
    """False if it was cut off at its longest."""


def write_sample(drawn: Sequence[DrawnSequence], prompt_logprobs: NDArray[np.float32] | None) -> bytes:
    """A `SampleResponse`; log-probabilities of the prompt that are not known are NaN."""
    sequences = [
        message("SampledSequence")(
            stop_reason=STOPPED if one.stopped else CUT_OFF,
            tokens=one.ids_T.astype(np.int32).tobytes(),
            logprobs=one.logprobs_T.astype(np.float32).tobytes(),
        )
        for one in drawn
    ]
    response = message("SampleResponse")(sequences=sequences)
    if prompt_logprobs is not None:
        response.prompt_logprobs = prompt_logprobs.astype(np.float32).tobytes()
    return bytes(response.SerializeToString())


class CreateSessionBody(Config):
    """Opens a session."""

    type: Literal["create_session"] = "create_session"
    tags: tuple[str, ...] = ()
    user_metadata: dict[str, Any] | None = None
    sdk_version: str = ""
    project_id: str | None = None
    display_name: str | None = None


class LoraBody(Config):
    """The shape of an adapter."""

    rank: PositiveInt
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class CreateModelBody(Config):
    """Begins a training."""

    type: Literal["create_model"] = "create_model"
    session_id: str
    model_seq_id: int = Field(ge=0)
    base_model: str
    user_metadata: dict[str, Any] | None = None
    lora_config: LoraBody | None = None
    optimizer_config: dict[str, Any] | None = None


class AdamBody(Config):
    """AdamW's settings of one step."""

    learning_rate: NonNegative = 1e-4
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    eps: NonNegative = 1e-12
    weight_decay: NonNegative = 0.0
    grad_clip_norm: float = 0.0


class OptimStepBody(Config):
    """One step."""

    type: Literal["optim_step"] = "optim_step"
    model_id: str
    seq_id: PositiveInt
    adam_params: AdamBody | None = None
    optimizer_params: dict[str, Any] | None = None


class SaveWeightsBody(Config):
    """Saves weights and optimizer under a name."""

    type: Literal["save_weights"] = "save_weights"
    model_id: str
    seq_id: PositiveInt
    path: str
    ttl_seconds: PositiveInt | None = None
    overwrite: bool = False
    user_metadata: dict[str, str] | None = None


class SaveForSamplerBody(Config):
    """Saves weights to sample from, under a name or as the next sampler of the session."""

    type: Literal["save_weights_for_sampler"] = "save_weights_for_sampler"
    model_id: str
    seq_id: PositiveInt
    path: str | None = None
    sampling_session_seq_id: int | None = None
    kind: str = "snapshot"
    ttl_seconds: PositiveInt | None = None
    user_metadata: dict[str, str] | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.sampling_session_seq_id is None):
            raise ValueError("give either path or sampling_session_seq_id")
        return self


class LoadWeightsBody(Config):
    """Loads saved weights, into a model (`model_id`, `seq_id`) or as a new one (`session_id`, `model_seq_id`)."""

    type: Literal["load_weights"] = "load_weights"
    model_id: str | None = None
    seq_id: PositiveInt | None = None
    session_id: str | None = None
    model_seq_id: int | None = None
    base_model: str | None = None
    user_metadata: dict[str, Any] | None = None
    path: str
    optimizer: bool
    optimizer_config: dict[str, Any] | None = None
    weights_access_token: str | None = None


class CreateSamplerBody(Config):
    """Opens a sampler of saved weights or of the base."""

    type: Literal["create_sampling_session"] = "create_sampling_session"
    session_id: str
    sampling_session_seq_id: int = Field(ge=0)
    base_model: str | None = None
    model_path: str | None = None


class ChunkBody(Config):
    """Tokens of a prompt."""

    type: Literal["encoded_text"] = "encoded_text"
    tokens: tuple[int, ...]


class PromptBody(Config):
    """A prompt."""

    chunks: tuple[ChunkBody, ...]


class SamplingParamsBody(Config):
    """How to sample."""

    max_tokens: PositiveInt | None = None
    seed: int | None = None
    stop: str | tuple[int, ...] | tuple[str, ...] | None = None
    temperature: NonNegative = 1.0
    top_k: int = Field(-1, ge=-1)
    """-1 and 0 leave all."""
    top_p: float = Field(1.0, gt=0, le=1)


class SampleBody(Config):
    """Asks for samples."""

    type: Literal["sample"] = "sample"
    num_samples: int = Field(1, ge=1, le=1024)
    prompt: PromptBody
    sampling_params: SamplingParamsBody
    sampling_session_id: str
    seq_id: int = Field(ge=0)
    prompt_logprobs: bool | None = None
    prompt_logprobs_last_n: PositiveInt | None = None
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    prompt_alt_tokens_k: int = 0
    record_stability_info: bool | None = None

    @property
    def ids(self) -> NDArray[np.int32]:
        """The prompt's tokens."""
        return np.array([token for chunk in self.prompt.chunks for token in chunk.tokens], np.int32)

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        idle = {"topk_prompt_logprobs": 0, "topk_sample_logprobs": 0, "prompt_alt_tokens_k": 0}
        for name, none in idle.items():
            if getattr(self, name) != none:
                raise ValueError(f"{name}={getattr(self, name)} is not there: this server tells the log-probabilities "
                                 "of sampled tokens and of the prompt's")  # fmt: skip
        if self.record_stability_info:
            raise ValueError(
                "record_stability_info=true is for the loss stable_reinforce, which is not there: take "
                "importance_sampling, ppo or cispo"
            )
        return self


def require_adamw(optimizer: Mapping[str, Any] | None) -> None:
    """A ConfigError for any optimizer but AdamW."""
    if optimizer is not None and optimizer.get("type") != "adamw":
        raise ConfigError("optimizer_config.type " + unknown("optimizer", str(optimizer.get("type")), ["adamw"]))
