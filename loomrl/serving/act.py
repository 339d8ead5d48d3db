"""`/v1/act`: observations in, actions out, as JSON, MessagePack or `.npy`.

JSON and MessagePack have the same fields: `model`, `observation` or a batch `observations`, `preference` (one for all,
or one for each), `earned`, `explore`, `seed`, `user`, and `store`, which is false for a call that must not be recorded.
A policy with a memory answers with its `state`, a list of numbers (of a batch, one for each). The episode's next call
gives it back as it is; a call without one begins an episode.
In MessagePack arrays may be `{"dtype", "shape", "data"}`. A `.npy` body is a batch of observations; the rest stands in
the query: `?model=NAME&explore=1`.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from loomrl.serving.call import Heading
from loomrl.serving.policy import About, Act, Acted
from loomrl.serving.refusal import Cause, Refusal

JSON = "application/json"
NPY = "application/x-npy"
MSGPACK = "application/msgpack"
KINDS = (JSON, NPY, MSGPACK, "application/x-msgpack")
FIELDS = ("model", "observation", "observations", "preference", "earned", "state", "explore", "seed", "store", "user")
IN_QUERY = ("model", "explore", "seed", "store", "user")
MAX_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ActAsk:
    """A request to act. `is_one`: a single observation, answered with a single action."""

    model: str
    act: Act
    is_one: bool
    kind: str
    """The content type, in which it is answered too."""
    store: bool = True
    """False keeps the call off the record."""
    user: str = ""
    """The person behind the call, by the caller's name for them."""


_JSON = msgspec.json.Decoder()
_MSGPACK = msgspec.msgpack.Decoder()
_JSON_OUT = msgspec.json.Encoder()
_MSGPACK_OUT = msgspec.msgpack.Encoder()


def read_act(body: bytes, kind: str, query: Mapping[str, str]) -> ActAsk:
    """The request; a Refusal names the wrong part."""
    kind = kind.partition(";")[0].strip().lower() or JSON
    if kind == NPY:
        return _of_npy(body, query)
    if kind not in KINDS:
        raise Refusal(Cause.INVALID, f"Content-Type {kind!r} is not read here. Known: {', '.join(KINDS)}.")
    try:
        given = (_JSON if kind == JSON else _MSGPACK).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(Cause.INVALID, f"The body is no {kind}: {error}.") from None
    if not isinstance(given, dict):
        raise Refusal(Cause.INVALID, "The body must be an object.")
    for name in given:
        if name not in FIELDS:
            raise Refusal(Cause.INVALID, f"{name!r} is unknown. Known: {', '.join(FIELDS)}.", where=str(name))
    is_one = "observation" in given
    if is_one == ("observations" in given):
        message = "Give either 'observation', a single one, or 'observations', a batch."
        raise Refusal(Cause.INVALID, message, where="observation")
    observations = _value(given["observation" if is_one else "observations"])
    model = given.get("model", "")
    explore = given.get("explore", False)
    seed = given.get("seed")
    _check(isinstance(model, str), "model", "a string")
    _check(isinstance(explore, bool), "explore", "true or false")
    _check(seed is None or (isinstance(seed, int) and 0 <= seed < 2**63), "seed", "a whole number, not negative")
    store = given.get("store", True)
    user = given.get("user", "")
    _check(isinstance(store, bool), "store", "true or false")
    _check(isinstance(user, str), "user", "a string")
    wish = Act(
        observations=_as_one(observations) if is_one else observations,
        preferences=_rows(given.get("preference"), "preference"),
        earned=_rows(given.get("earned"), "earned"),
        states=_rows(given.get("state"), "state"),
        explore=explore,
        seed=seed,
    )
    return ActAsk(model=model, act=wish, is_one=is_one, kind=kind, store=store, user=user)


def write_act(ask: ActAsk, acted: Acted, heading: Heading) -> bytes:
    """The answer in the request's form. A `.npy` body holds the actions alone; the rest is in headers."""
    if ask.kind == NPY:
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(acted.actions), allow_pickle=False)
        return buffer.getvalue()
    actions = _first(acted.actions) if ask.is_one else acted.actions
    answer: dict[str, Any] = {
        "action" if ask.is_one else "actions": _plain(actions),
        "model": heading.model,
        "version": heading.version,
        "number": acted.version,
        "arm": heading.arm,
    }
    if acted.logprobs is not None:
        logprobs = acted.logprobs.tolist()
        answer["logprob" if ask.is_one else "logprobs"] = logprobs[0] if ask.is_one else logprobs
    if acted.states is not None:
        states = acted.states.tolist()
        answer["state"] = states[0] if ask.is_one else states
    return _JSON_OUT.encode(answer) if ask.kind == JSON else _MSGPACK_OUT.encode(answer)


def refuse_control(about: About, endpoint: str) -> None:
    """A Refusal for a control policy, which cannot chat."""
    if about.kind == "control":
        message = f"Endpoint {endpoint!r} has a control policy, which cannot chat: ask /v1/act."
        raise Refusal(Cause.INVALID, message, where="model")


def refuse_language(about: About, name: str) -> None:
    """A Refusal where a language policy is asked to act."""
    if about.kind != "control":
        message = f"Endpoint {name!r} has a language policy: ask /v1/chat/completions."
        raise Refusal(Cause.INVALID, message, where="model")


def refuse_forgetting(about: About, ask: ActAsk) -> None:
    """A Refusal where the answer has no place for the state of the policy's memory."""
    if about.state and ask.kind == NPY:
        message = "This policy has a memory, and its state has no place in a .npy file: ask in JSON or MessagePack."
        raise Refusal(Cause.INVALID, message)


def _of_npy(body: bytes, query: Mapping[str, str]) -> ActAsk:
    for name in query:
        if name not in IN_QUERY:
            raise Refusal(Cause.INVALID, f"{name!r} is unknown. Known: {', '.join(IN_QUERY)}.", where=name)
    try:
        observations = np.load(io.BytesIO(body), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise Refusal(Cause.INVALID, f"The body is no .npy file: {error}.") from None
    seed = query.get("seed")
    _check(seed is None or seed.isdecimal(), "seed", "a whole number, not negative")
    wish = Act(
        observations=observations,
        explore=query.get("explore", "0") in ("1", "true"),
        seed=None if seed is None else int(seed),
    )
    store = query.get("store", "1") not in ("0", "false")
    user = query.get("user", "")
    return ActAsk(model=query.get("model", ""), act=wish, is_one=False, kind=NPY, store=store, user=user)


def _check(is_right: bool, where: str, needed: str) -> None:
    if not is_right:
        raise Refusal(Cause.INVALID, f"{where!r} must be {needed}.", where=where)


def _value(given: Any) -> Any:
    """JSON numbers as arrays; parts of spaces by name or place as they are."""
    if isinstance(given, dict):
        if given.keys() == {"dtype", "shape", "data"} and isinstance(given["data"], bytes):
            return _unpacked(given)
        return {str(name): _value(part) for name, part in given.items()}
    if isinstance(given, list) and given and isinstance(given[0], dict):
        raise Refusal(Cause.INVALID, "Observations with named parts are one object of batches.", where="observations")
    try:
        array = np.asarray(given)
    except ValueError:
        raise Refusal(Cause.INVALID, "The rows of an observation differ in length.", where="observation") from None
    if array.dtype.kind not in "biuf":
        raise Refusal(Cause.INVALID, f"An observation is made of numbers, not of {array.dtype}.", where="observation")
    return array


def _unpacked(given: Mapping[str, Any]) -> NDArray[Any]:
    try:
        return np.frombuffer(given["data"], np.dtype(given["dtype"])).reshape(given["shape"]).copy()
    except (TypeError, ValueError) as error:
        raise Refusal(Cause.INVALID, f"An array is damaged: {error}.", where="observation") from None


def _as_one(value: Any) -> Any:
    return {name: _as_one(part) for name, part in value.items()} if isinstance(value, dict) else value[None]


def _first(value: Any) -> Any:
    return value[0]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _rows(given: Any, where: str) -> NDArray[np.float32] | None:
    if given is None:
        return None
    try:
        rows = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        rows = np.zeros(0, np.float32)
    _check(rows.ndim in (1, 2) and rows.size > 0, where, "a list of numbers, or one for each observation")
    return np.atleast_2d(rows)
