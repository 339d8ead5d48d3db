"""`/v1/act`: what is sent in three forms reaches the policy, and what is wrong is named."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from gymnasium import spaces

from loomrl.config import HubConfig
from loomrl.errors import CorruptPayload
from loomrl.hub.codec import decode, encode
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.call import Heading
from loomrl.serving.durable import open_recorder
from loomrl.serving.gateway import Gateway
from loomrl.serving.policy import ActRequest
from loomrl.serving.recorder import MemoryRecorder
from loomrl.serving.recording.acts import are_acts, decode_acts
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.retention.sweep import Sweeper, SweepTerms
from loomrl.serving.routes.act import JSON, MSGPACK, NPY, is_sampled, read_act, write_act
from loomrl.store.sessions import opt_out, read_calls
from loomrl.types import End
from tests.serving.control_support import Pole, acting_policy, control_policy, recorded_act
from tests.serving.local_gateway import LocalGateway, NoKeys, alone
from tests.serving.waiting import refuses

HEADING = Heading(id="x", created=0.0, model="pole", version="run/3", arm="stable", session="", trajectory="")
SEEN = [[0.1, -0.2, 0.3, 0.0], [-4.0, 2.0, -3.0, 0.5], [4.0, -2.0, 3.0, 1.0], [0.0, 3.0, -4.0, -3.0]]


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


async def acted(body: bytes, kind: str, **query: str) -> bytes:
    ask = read_act(body, kind, query)
    return write_act(ask, await acting_policy().act(ask.act), HEADING)


async def test_all_forms_get_the_policys_own_actions() -> None:
    right = control_policy().act_batch(np.array(SEEN, np.float32)).tolist()
    assert set(right) == {0, 1}
    assert json.loads(await acted(json.dumps({"observations": SEEN}).encode(), JSON)) == {
        "actions": right,
        "model": "pole",
        "version": "run/3",
        "number": 3,
        "arm": "stable",
    }
    one = json.loads(await acted(json.dumps({"observation": SEEN[1]}).encode(), JSON))
    assert one["action"] == right[1]
    array = np.array(SEEN, np.float32)
    packed = {"observations": {"dtype": "float32", "shape": [4, 4], "data": array.tobytes()}}
    assert msgspec.msgpack.decode(await acted(msgspec.msgpack.encode(packed), MSGPACK))["actions"] == right
    assert np.load(io.BytesIO(await acted(npy(array), NPY, model="pole"))).tolist() == right


async def test_calls_that_come_together_are_answered_as_if_alone() -> None:
    acting = acting_policy()
    batches = [episodes(1, size)[0] for size in (1, 3, 2, 1)]
    wrong = ActRequest(observations=np.zeros((1, 5), np.float32))
    *answers, refused = await asyncio.gather(
        *(acting.act(ActRequest(observations=each)) for each in batches), acting.act(wrong), return_exceptions=True
    )
    for answer, batch in zip(answers, batches, strict=True):
        assert answer.actions.tolist() == control_policy().act_batch(batch).tolist()
    assert isinstance(refused, Refusal)


async def test_exploring_is_repeatable_by_seed_and_varies_without() -> None:
    acting = acting_policy()
    many = np.zeros((64, 4), np.float32)

    async def drawn(seed: int | None) -> list[int]:
        return (await acting.act(ActRequest(observations=many, explore=True, seed=seed))).actions.tolist()

    assert await drawn(1) == await drawn(1) != await drawn(2)
    assert len({*await drawn(None)}) == 2


async def test_named_parts_and_choices_are_observations_too() -> None:
    observed = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
    acting = acting_policy(observed)
    batch = {"observations": {"a": [[0.5, 0.1], [0, 0]], "b": [2, 0]}}
    ask = read_act(json.dumps(batch).encode(), JSON, {})
    assert (await acting.act(ask.act)).actions.shape == (2,)
    ask = read_act(json.dumps({"observation": {"a": [0.5, 0.1], "b": 2}}).encode(), JSON, {})
    assert (await acting.act(ask.act)).actions.shape == (1,)


@pytest.mark.parametrize(
    ("body", "kind", "named"),
    [
        (b"{", JSON, "no application/json"),
        (b"\xff\xfe", JSON, "no application/json"),
        (b"[1]", JSON, "object"),
        (b'{"observation": [1], "observations": [[1]]}', JSON, "either"),
        (b'{"observation": [1], "temperature": 1}', JSON, "unknown"),
        (b'{"observation": [[1, 2], [3]]}', JSON, "differ in length"),
        (b'{"observation": ["a"]}', JSON, "numbers"),
        (b'{"observation": [1], "seed": -1}', JSON, "got -1"),
        (b'{"observation": [1], "preference": "x"}', JSON, "list of numbers"),
        (b"\x93NUMPY", NPY, "not a .npy"),
        (npy(np.array([object()], object)), NPY, "not a .npy"),
        (b"a=1", "text/plain", "Content-Type"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, kind: str, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        read_act(body, kind, {})


@pytest.mark.parametrize(
    ("observations", "named"),
    [
        (np.zeros((2, 3)), "another shape"),
        (np.full((1, 4), np.nan), "NaN"),
        (np.zeros((0, 4)), "1 to 4096"),
    ],
)
async def test_observations_of_another_space_are_refused(observations: np.ndarray, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        await acting_policy().act(ActRequest(observations=observations))


async def test_a_preference_for_a_policy_of_one_objective_is_refused() -> None:
    wish = ActRequest(observations=np.zeros((1, 4), np.float32), preferences=np.ones((1, 2), np.float32))
    with pytest.raises(Refusal, match="one objective"):
        await acting_policy().act(wish)


async def test_a_policy_of_several_objectives_takes_a_preference_for_all_or_for_each() -> None:
    observed = spaces.Dict({"preference": spaces.Box(0, 1, (2,)), "seen": spaces.Box(-1, 1, (3,))})
    policy, acting = control_policy(observed), acting_policy(observed)
    assert acting.about.objectives == 2
    seen = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    rows = np.array([[0.2, 0.8]] * 4 + [[1.0, 0.0]], np.float32)
    for preferences in (rows[:1], rows):
        got = (await acting.act(ActRequest(observations=seen, preferences=preferences))).actions.tolist()
        each = [policy.act(seen[i], preference=preferences[i % len(preferences)]) for i in range(5)]
        assert got == [int(action) for action in each]
    with pytest.raises(Refusal, match="2 objectives"):
        await acting.act(ActRequest(observations=seen))
    with pytest.raises(Refusal, match="sum to"):
        await acting.act(ActRequest(observations=seen, preferences=np.ones((1, 2), np.float32)))


def episodes(steps: int, count: int) -> np.ndarray:
    return np.random.default_rng(4).normal(size=(steps, count, 4)).astype(np.float32)


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
async def test_the_state_of_a_memory_goes_to_the_caller_and_back(kind: str) -> None:
    form = msgspec.json if kind == JSON else msgspec.msgpack
    policy, acting = control_policy(memory="lstm"), acting_policy(memory="lstm")
    state = policy.state(2)
    assert acting.about.state == 32

    async def told(body: object) -> Any:
        ask = read_act(form.encode(body), kind, {})
        return form.decode(write_act(ask, await acting.act(ask.act), HEADING))

    one, both = {}, {}
    for seen in episodes(5, 2):
        right = policy.act_batch(seen, state=state)
        answer = await told({"observation": seen[1].tolist(), **one})
        one = {"state": answer["state"]}
        assert answer["action"] == right[1]
        answer = await told({"observations": seen.tolist(), **both})
        both = {"state": answer["state"]}
        assert answer["actions"] == right.tolist()
        np.testing.assert_array_equal(np.array(answer["state"], np.float32), state.numbers_BS)


async def test_episodes_that_act_together_keep_their_own_states() -> None:
    policy, acting = control_policy(memory="gru"), acting_policy(memory="gru")
    apart, states = policy.state(6), [None] * 3
    for seen in episodes(4, 6):
        right = policy.act_batch(seen, state=apart)
        asked = [ActRequest(observations=seen[2 * i : 2 * i + 2], states=states[i]) for i in range(3)]
        answers = await asyncio.gather(*(acting.act(each) for each in asked))
        assert np.concatenate([answer.actions for answer in answers]).tolist() == right.tolist()
        states = [answer.states for answer in answers]
    np.testing.assert_allclose(np.concatenate(states), apart.numbers_BS, atol=1e-6)


@pytest.mark.parametrize(
    ("memory", "states", "named"),
    [
        (None, np.zeros((1, 16), np.float32), "has no memory"),
        ("gru", np.zeros((1, 15), np.float32), "give 16 finite numbers for each"),
        ("gru", np.zeros((2, 16), np.float32), "for 1 observations"),
        ("gru", np.full((1, 16), np.nan, np.float32), "finite"),
    ],
)
async def test_a_state_of_another_policy_is_refused(memory: str | None, states: np.ndarray, named: str) -> None:
    acting = acting_policy(memory=memory)
    with pytest.raises(Refusal, match=named):
        await acting.act(ActRequest(observations=np.zeros((1, 4), np.float32), states=states))


@pytest.mark.parametrize("memory", [None, "lstm"])
@pytest.mark.parametrize("explore", [False, True])
async def test_an_act_obeys_its_mask(memory: str | None, explore: bool) -> None:
    observed = spaces.Dict({"action_mask": spaces.MultiBinary(2), "observation": spaces.Box(-4, 4, (4,))})
    acting = acting_policy(observed, memory=memory)
    for allowed in (0, 1):
        mask = [int(choice == allowed) for choice in (0, 1)]
        body = {"observations": {"action_mask": [mask] * 4, "observation": SEEN}, "explore": explore, "seed": 1}
        ask = read_act(json.dumps(body).encode(), JSON, {})
        answer = json.loads(write_act(ask, await acting.act(ask.act), HEADING))
        assert answer["actions"] == [allowed] * 4
        assert answer.get("logprobs", [0.0] * 4) == [0.0] * 4
    nothing = {"observation": {"action_mask": [0, 0], "observation": SEEN[0]}, "explore": explore}
    with pytest.raises(Refusal, match="the action_mask of observation 0 allows no action"):
        await acting.act(read_act(json.dumps(nothing).encode(), JSON, {}).act)


OBSERVED = np.random.default_rng(3).normal(size=(12, 4)).round(3)


@pytest.fixture
async def pole(tmp_path: Path) -> AsyncIterator[Pole]:
    async with Pole(tmp_path) as served:
        yield served


async def test_steps_of_a_session_reach_the_endpoints_hub_as_one_trajectory(pole: Pole) -> None:
    done = []
    for at, seen in enumerate(OBSERVED):
        answer = await pole.act("drive", {"observation": seen.tolist(), "explore": at % 2 == 0, "seed": at})
        assert answer.headers["x-loomrl-recorded"] == "true"
        assert answer.headers["x-loomrl-trajectory"] == "drive"
        done.append(answer.json())
    ended = await pole.client.post("/sessions/drive/complete", json={"reward": 7.5, "success": 1.0})
    assert ended.json() == {"session": "drive", "trajectory": "drive"}
    with pole.db() as db, open_endpoint_hub(pole.store_url, "pole", HubConfig()) as hub:
        assert Sweeper(db, hub, "pole").sweep_sessions(now=2e9).stored == 1
        ((_, stored),) = hub.read()
    assert (stored.turns, stored.end, stored.reward.total, stored.reward.success) == ((), End.TERMINATED, 7.5, 1.0)
    steps = stored.steps
    assert steps is not None
    np.testing.assert_array_equal(steps.observations, OBSERVED)
    assert steps.actions.tolist() == [each["action"] for each in done]
    assert steps.sampled_T.tolist() == [True, False] * 6
    assert set(steps.versions_T) == {3}
    policy = control_policy()
    for at in range(0, 12, 2):
        action, logprob = policy.sample_batch(OBSERVED[at : at + 1], generator=torch.Generator().manual_seed(at))
        assert (action[0], logprob[0]) == (steps.actions[at], steps.logprobs_T[at])
        assert done[at]["logprob"] == pytest.approx(float(logprob[0]))
    assert stored.extra["session"]["versions"] == ["run/3"]


async def test_acts_without_a_session_or_against_their_callers_will_are_not_recorded(pole: Pole) -> None:
    with pole.db() as db:
        opt_out(db, "pole", ["ada"], at=0.0)
    alone = await pole.client.post("/v1/act", json={"model": "pole", "observation": OBSERVED[0].tolist()})
    assert alone.headers["x-loomrl-recorded"] == "false"
    for wish in ({"store": False}, {"user": "ada"}):
        answer = await pole.act("quiet", {"observation": OBSERVED[0].tolist(), **wish})
        assert answer.headers["x-loomrl-recorded"] == "false"
    assert (await pole.act("quiet", {"observation": OBSERVED[1].tolist(), "user": "bob"})).json()["action"] in (0, 1)
    with pole.db() as db:
        assert sum(len(decode_acts(row.payload).steps) for row in read_calls(db, "quiet")[1]) == 1


async def test_batches_name_the_row_and_many_acts_share_a_row_of_the_record(pole: Pole) -> None:
    await asyncio.gather(*(pole.act("fleet", {"observations": OBSERVED[:5].tolist()}) for _ in range(40)))
    with pole.db() as db:
        rows = read_calls(db, "fleet")[1]
    assert all(are_acts(row.payload) for row in rows)
    parts = [decode_acts(row.payload).steps for row in rows]
    assert sum(map(len, parts)) == 200
    assert len(rows) < 40
    assert {tuple(part.lanes_T[at : at + 5]) for part in parts for at in range(0, len(part), 5)} == {(0, 1, 2, 3, 4)}


async def test_an_ended_or_foreign_session_takes_no_acts(pole: Pole) -> None:
    await pole.act("over", {"observation": OBSERVED[0].tolist()})
    await pole.client.post("/sessions/over/complete", json={})
    body = {"model": "pole", "observation": OBSERVED[0].tolist()}
    assert (await pole.client.post("/sessions/over/v1/act", json=body)).status_code == 409
    mine = recorded_act("mine", np.zeros(4))
    store = open_recorder(pole.store_url)
    await store.keep_acts(mine)
    for foreign in (replace(mine, key="b"), replace(mine, endpoint="other")):
        with refuses(RefusalCause.UNKNOWN, match="unknown"):
            await store.keep_acts(foreign)
    await store.close()
    with pole.db() as db:
        assert len(read_calls(db, "mine")[1]) == 1


async def test_steps_of_another_form_than_the_sessions_first_are_refused_by_every_recorder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/loom.db"
    for one, another in ((open_recorder(url), open_recorder(url)), (memory := MemoryRecorder(), memory)):
        await one.keep_acts(recorded_act("s", np.zeros(4)))
        for recorder in (one, another):
            with refuses(RefusalCause.INVALID, match="another form"):
                await recorder.keep_acts(recorded_act("s", np.zeros(5)))
        await another.keep_acts(recorded_act("s", np.zeros(4)))
        assert len((await another.complete("s")).steps or ()) == 2
        await one.close()
        await another.close()


async def test_steps_of_two_forms_on_record_end_as_a_conflict(pole: Pole, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_recorder(pole.store_url)
    await store.keep_acts(recorded_act("s", np.zeros(4)))
    monkeypatch.setattr("loomrl.serving.durable.check_form", lambda *_: None)  # as if two gateways began it at once
    await store.keep_acts(recorded_act("s", np.zeros(5)))
    await store.close()
    with pytest.raises(Refusal, match="different forms") as refused:
        await (again := open_recorder(pole.store_url)).complete("s")
    await again.close()
    assert refused.value.cause is RefusalCause.CONFLICT


async def test_acts_that_are_recorded_after_the_answer_are_all_there_when_the_gateway_ends(tmp_path: Path) -> None:
    async with Pole(tmp_path, mode="after") as served:
        await asyncio.gather(*(served.act(f"s{at % 3}", {"observation": OBSERVED[at].tolist()}) for at in range(12)))
    with served.db() as db, open_endpoint_hub(served.store_url, "pole", HubConfig()) as hub:
        Sweeper(db, hub, "pole", terms=SweepTerms(idle_s=1.0)).sweep_sessions(now=2e9)
        found = [one for _, one in hub.read()]
    assert {(one.id, len(one.steps or ())) for one in found} == {("s0", 4), ("s1", 4), ("s2", 4)}
    assert {one.end for one in found} == {End.TRUNCATED}


async def test_the_rate_is_the_share_of_sessions_and_a_session_is_recorded_whole() -> None:
    gateway = Gateway(view=alone({"pole": acting_policy()}), recorder=MemoryRecorder(), keys=NoKeys(), rate=0.3)
    (endpoint,) = gateway.view.endpoints()
    first, again = ([is_sampled(gateway, endpoint, f"s{number}") for number in range(2000)] for _ in range(2))
    assert first == again
    assert np.mean(first) == pytest.approx(0.3, abs=0.04)


async def test_a_recorder_in_memory_makes_the_same_trajectory() -> None:
    memory = MemoryRecorder()
    async with LocalGateway({"pole": acting_policy()}, memory) as local:
        for seen in OBSERVED[:3]:
            await local.client.post("/sessions/m/v1/act", json={"model": "pole", "observation": seen.tolist()})
        made = await memory.complete("m", reward=2.0)
    assert made.steps is not None
    assert (len(made.steps), made.first_version, made.reward.total) == (3, 3, 2.0)
    assert decode(encode(made)) == made
    assert replace(made, steps=replace(made.steps, lanes_T=made.steps.lanes_T + 1)) != made


def test_damaged_acts_are_named() -> None:
    with pytest.raises(CorruptPayload, match="recorded acts"):
        decode_acts(b"\xc1\x81\xa3arm\x01")
