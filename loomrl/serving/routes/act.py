"""`/v1/act`: observations in, actions out, as JSON, MessagePack or `.npy`.

JSON and MessagePack have the fields of `ActBody`. A policy with a memory answers with its `state`, a list of numbers
(for a batch, one for each observation). The episode's next call gives it back as it is; a call without one begins an
episode. In MessagePack arrays may be `{"dtype", "shape", "data"}`. A `.npy` body is a batch of observations; the rest
stands in the query: `?model=NAME&explore=1`.
"""

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from loomrl.serving.body import Body, Whole, invalid, read_closed
from loomrl.serving.call import Heading
from loomrl.serving.dispatch import ArmReplica, act, candidates
from loomrl.serving.gateway import Gateway, Observed, observing
from loomrl.serving.monitor.monitor import AnswerOrigin, ForbiddenAction
from loomrl.serving.policy import About, ActAsk, ActRequest, ActResult
from loomrl.serving.recording.acts import NewActs, RecordedActs
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import JSON, HttpReply, HttpRequest
from loomrl.serving.split import uniform
from loomrl.store.endpoints import Endpoint, Role
from loomrl.types import Steps

NPY = "application/x-npy"
MSGPACK = "application/msgpack"
KINDS = (JSON, NPY, MSGPACK, "application/x-msgpack")
_JSON = msgspec.json.Decoder()
_MSGPACK = msgspec.msgpack.Decoder()
_JSON_OUT = msgspec.json.Encoder()
_MSGPACK_OUT = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class ActCall:
    """The circumstances of one call."""

    endpoint: Endpoint
    options: Sequence[ArmReplica]
    session: str
    deadline: float
    """On the event loop's clock."""
    observed: Observed


async def answer_act(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """Answer one call."""
    caller = await gateway.keys.caller(request.token, scope="act")
    body = await request.body(gateway.settings.max_bytes)
    ask = read_act(body, request.headers.get("content-type", JSON), request.query)
    endpoint = gateway.find_endpoint(ask.model, caller)
    deadline = gateway.deadline()
    session = caller.session or request.session
    at = time.time()  # before the policy acts: steps of calls that overlap are sorted by it
    unit = ask.user or session or request.id
    options = list(candidates(gateway.view, endpoint, unit))
    if options:
        refuse_unfit(options[0].policy.about, ask, endpoint.name)
    observed = gateway.observe(endpoint, options, unit, session=session, key=caller.key, is_alone=unit == request.id)
    with observing(observed):
        candidate, acted = await _act(gateway, ask, ActCall(endpoint, options, session, deadline, observed))
    observed.note_answer(candidate)
    version = candidate.policy.about.version
    arm = candidate.arm.name
    recorder = gateway.recorder
    if recorder is not None and is_sampled(gateway, endpoint, session) and await recorder.takes(endpoint.name, ask):
        acts = RecordedActs(arm=arm, version=version, steps=steps_of(ask.act, acted, at))
        new = NewActs(session=session, endpoint=endpoint.name, key=caller.key, user=ask.user, acts=acts)
        await gateway.record(recorder.keep_acts(new), deadline=deadline)
        reply.is_recorded = True
    reply.heading = Heading(
        id=request.id,
        created=0.0,
        model=endpoint.name,
        version=version,
        arm=arm,
        session=session,
        trajectory=session if reply.is_recorded else "",
    )
    await reply.whole(200, write_act(ask, acted, reply.heading), kind=ask.kind)


async def _act(gateway: Gateway, ask: ActAsk, call: ActCall) -> tuple[ArmReplica, ActResult]:
    """The actions of the first replica that answers in time, as far as the monitor allows them."""
    monitor = gateway.monitor
    endpoint = call.endpoint
    if monitor is None or not monitor.has_actions:
        return await act(call.options, ask.act, endpoint=endpoint, deadline=call.deadline)
    monitor.refuse_held(endpoint.name, call.session)
    hits: list[str] = []

    async def act_allowed(options: Sequence[ArmReplica]) -> tuple[ArmReplica, ActResult]:
        candidate, acted = await act(options, ask.act, endpoint=endpoint, deadline=call.deadline)
        origin = AnswerOrigin.of(endpoint, candidate, call.session)
        is_alone = ask.is_one and bool(call.session)
        return candidate, await monitor.judge(acted, ask.act.observations, origin, alone=is_alone, hits=hits)

    try:
        try:
            found = await act_allowed(call.options)
        except ForbiddenAction as forbidden:
            others = [one for one in call.options if one.arm.role is Role.STABLE]
            if not forbidden.may_move or not others:
                raise
            found = await act_allowed(others)
    except Refusal:
        if hits:
            call.observed.note_verdict(violation=True)
        raise
    call.observed.note_verdict(violation=bool(hits))
    return found


def is_sampled(gateway: Gateway, endpoint: Endpoint, session: str) -> bool:
    """True if the session is among the share of those whose acts are recorded."""
    return bool(session) and uniform("record", endpoint.name, session) < gateway.rate


def steps_of(act: ActRequest, acted: ActResult, at: float) -> Steps:
    """A batch of actions as steps to be recorded."""
    count = len(acted.actions)
    wishes: dict[str, Any] = {}
    for name, rows in (("preference", act.preferences), ("earned", act.earned)):
        if rows is not None:
            wishes[name] = np.repeat(rows, count, axis=0) if len(rows) == 1 else rows
    return Steps(
        observations=act.observations,
        actions=np.asarray(acted.actions),
        logprobs_T=np.zeros(count, np.float32) if acted.logprobs is None else acted.logprobs,
        sampled_T=np.full(count, acted.logprobs is not None),
        versions_T=np.full(count, acted.version, np.int32),
        lanes_T=np.arange(count, dtype=np.int32),
        times_T=np.full(count, at),
        wishes=wishes,
    )


# -- requests and answers -----------------------------------------------------------------------------------------


def _read_rows(given: Any) -> NDArray[np.float32]:
    try:
        rows = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        rows = np.zeros(0, np.float32)
    if rows.ndim not in (1, 2) or not rows.size:
        raise ValueError("it must be a list of numbers, or one for each observation.")
    return np.atleast_2d(rows)


Seed = Annotated[Whole, Field(ge=0, lt=2**63)]
Rows = Annotated[NDArray[np.float32], BeforeValidator(_read_rows)]


class ActBody(Body):
    """The request: a single observation, answered with a single action, or a batch."""

    model: str = ""
    observation: Any = None
    observations: Any = None
    preference: Rows | None = None
    """One for all observations, or one for each."""
    earned: Rows | None = None
    state: Rows | None = None
    explore: bool = False
    seed: Seed | None = None
    store: bool = True
    """False: the call must not be recorded."""
    user: str = ""


class ActQuery(Body):
    """The fields beside a `.npy` body."""

    model: str = ""
    explore: Annotated[bool, BeforeValidator(lambda text: text in ("1", "true"))] = False
    seed: (
        Annotated[int, BeforeValidator(lambda text: int(text) if text.isdecimal() else text), Field(lt=2**63)] | None
    ) = None
    store: Annotated[bool, BeforeValidator(lambda text: text not in ("0", "false"))] = True
    user: str = ""


def read_act(body: bytes, kind: str, query: Mapping[str, str]) -> ActAsk:
    """The request; a Refusal names the wrong part."""
    kind = kind.partition(";")[0].strip().lower() or JSON
    if kind == NPY:
        return _read_npy(body, query)
    if kind not in KINDS:
        raise Refusal(RefusalCause.INVALID, f"Content-Type {kind!r} is not read here. Known: {', '.join(KINDS)}.")
    try:
        given = (_JSON if kind == JSON else _MSGPACK).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(RefusalCause.INVALID, f"The body is no {kind}: {error}.") from None
    asked = read_closed(ActBody, given)
    is_one = asked.observation is not None
    if is_one == (asked.observations is not None):
        raise invalid("observation", "Give either 'observation', a single one, or 'observations', a batch.")
    observations = _read_value(asked.observation if is_one else asked.observations)
    wish = ActRequest(
        observations=_as_batch(observations) if is_one else observations,
        preferences=asked.preference,
        earned=asked.earned,
        states=asked.state,
        explore=asked.explore,
        seed=asked.seed,
    )
    return ActAsk(model=asked.model, act=wish, is_one=is_one, kind=kind, store=asked.store, user=asked.user)


def write_act(ask: ActAsk, acted: ActResult, heading: Heading) -> bytes:
    """The answer in the request's form. A `.npy` body holds the actions alone; the rest is in headers."""
    if ask.kind == NPY:
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(acted.actions), allow_pickle=False)
        return buffer.getvalue()
    actions = acted.actions[0] if ask.is_one else acted.actions
    answer: dict[str, Any] = {
        "action" if ask.is_one else "actions": actions.tolist()
        if isinstance(actions, np.ndarray | np.generic)
        else actions,
        "model": heading.model,
        "version": heading.version,
        "number": acted.version,
        "arm": heading.arm,
    }
    for name, rows in (("logprob", acted.logprobs), ("state", acted.states)):
        if rows is not None:
            listed = rows.tolist()
            many = "logprobs" if name == "logprob" else "state"
            answer[name if ask.is_one else many] = listed[0] if ask.is_one else listed
    return _JSON_OUT.encode(answer) if ask.kind == JSON else _MSGPACK_OUT.encode(answer)


def refuse_unfit(about: About, ask: ActAsk, endpoint: str) -> None:
    """A Refusal for a language policy, and where the answer has no place for the state of the policy's memory."""
    if about.kind != "control":
        raise invalid("model", f"Endpoint {endpoint!r} has a language policy: ask /v1/chat/completions.")
    if about.state and ask.kind == NPY:
        message = "This policy has a memory, and its state has no place in a .npy file: ask in JSON or MessagePack."
        raise Refusal(RefusalCause.INVALID, message)


def _read_npy(body: bytes, query: Mapping[str, str]) -> ActAsk:
    asked = read_closed(ActQuery, dict(query))
    try:
        observations = np.load(io.BytesIO(body), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise Refusal(RefusalCause.INVALID, f"The body is not a .npy file: {error}.") from None
    wish = ActRequest(observations=observations, explore=asked.explore, seed=asked.seed)
    return ActAsk(model=asked.model, act=wish, is_one=False, kind=NPY, store=asked.store, user=asked.user)


def _read_value(given: Any) -> Any:
    """JSON numbers as arrays; parts of spaces by name or place as they are."""
    if isinstance(given, dict):
        if given.keys() == {"dtype", "shape", "data"} and isinstance(given["data"], bytes):
            return _unpack(given)
        return {str(name): _read_value(part) for name, part in given.items()}
    if isinstance(given, list) and given and isinstance(given[0], dict):
        raise invalid("observations", "Observations with named parts are one object of batches.")
    try:
        array = np.asarray(given)
    except ValueError:
        raise invalid("observation", "The rows of an observation differ in length.") from None
    if array.dtype.kind not in "biuf":
        raise invalid("observation", f"An observation is made of numbers, not of {array.dtype}.")
    return array


def _unpack(given: Mapping[str, Any]) -> NDArray[Any]:
    try:
        return np.frombuffer(given["data"], np.dtype(given["dtype"])).reshape(given["shape"]).copy()
    except (TypeError, ValueError) as error:
        raise invalid("observation", f"An array is damaged: {error}.") from None


def _as_batch(value: Any) -> Any:
    return {name: _as_batch(part) for name, part in value.items()} if isinstance(value, dict) else value[None]
