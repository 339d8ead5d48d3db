"""`/v1/act`: what is sent in three forms reaches the policy, and what is wrong is named."""

import asyncio
import io
import json

import msgspec
import numpy as np
import pytest
from gymnasium import spaces

from loomrl.serving.acting import ControlServedPolicy
from loomrl.serving.call import Heading
from loomrl.serving.policy import ActRequest
from loomrl.serving.refusal import Refusal
from loomrl.serving.routes.act import JSON, MSGPACK, NPY, read_act, refuse_unfit, write_act
from tests.serving.control_support import control_policy

HEADING = Heading(id="x", created=0.0, model="pole", version="run/3", arm="stable", session="", trajectory="")
SEEN = [[0.1, -0.2, 0.3, 0.0], [-4.0, 2.0, -3.0, 0.5], [4.0, -2.0, 3.0, 1.0], [0.0, 3.0, -4.0, -3.0]]


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


async def acted(body: bytes, kind: str, **query: str) -> bytes:
    ask = read_act(body, kind, query)
    return write_act(ask, await ControlServedPolicy(control_policy(), version="run/3", number=3).act(ask.act), HEADING)


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
    acting = ControlServedPolicy(control_policy(), version="v", number=0)
    sizes = [1, 3, 2, 1]
    batches = [np.random.default_rng(size + 7).normal(size=(size, 4)).astype(np.float32) for size in sizes]
    wrong = ActRequest(observations=np.zeros((1, 5), np.float32))
    *answers, refused = await asyncio.gather(
        *(acting.act(ActRequest(observations=each)) for each in batches), acting.act(wrong), return_exceptions=True
    )
    for answer, batch in zip(answers, batches, strict=True):
        assert answer.actions.tolist() == control_policy().act_batch(batch).tolist()
    assert isinstance(refused, Refusal)


async def test_exploring_is_repeatable_by_seed_and_varies_without() -> None:
    acting = ControlServedPolicy(control_policy(), version="v", number=0)
    many = np.zeros((64, 4), np.float32)

    async def drawn(seed: int | None) -> list[int]:
        return (await acting.act(ActRequest(observations=many, explore=True, seed=seed))).actions.tolist()

    assert await drawn(1) == await drawn(1) != await drawn(2)
    assert len({*await drawn(None)}) == 2


async def test_named_parts_and_choices_are_observations_too() -> None:
    observed = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
    acting = ControlServedPolicy(control_policy(observed), version="v", number=0)
    batch = {"observations": {"a": [[0.5, 0.1], [0, 0]], "b": [2, 0]}}
    ask = read_act(json.dumps(batch).encode(), JSON, {})
    assert (await acting.act(ask.act)).actions.shape == (2,)
    ask = read_act(json.dumps({"observation": {"a": [0.5, 0.1], "b": 2}}).encode(), JSON, {})
    assert (await acting.act(ask.act)).actions.shape == (1,)


@pytest.mark.parametrize(
    ("body", "kind", "named"),
    [
        pytest.param(b"{", JSON, "no application/json", id="half"),
        pytest.param(b"\xff\xfe", JSON, "no application/json", id="bytes"),
        pytest.param(b"[1]", JSON, "object", id="list"),
        pytest.param(b'{"observation": [1], "observations": [[1]]}', JSON, "either", id="both"),
        pytest.param(b'{"observation": [1], "temperature": 1}', JSON, "unknown", id="unknown"),
        pytest.param(b'{"observation": [[1, 2], [3]]}', JSON, "differ in length", id="ragged"),
        pytest.param(b'{"observation": ["a"]}', JSON, "numbers", id="words"),
        pytest.param(b'{"observation": [1], "seed": -1}', JSON, "got -1", id="seed"),
        pytest.param(b'{"observation": [1], "preference": "x"}', JSON, "list of numbers", id="preference"),
        pytest.param(b"\x93NUMPY", NPY, "not a .npy", id="npy"),
        pytest.param(npy(np.array([object()], object)), NPY, "not a .npy", id="pickle"),
        pytest.param(b"a=1", "text/plain", "Content-Type", id="form"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, kind: str, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        read_act(body, kind, {})


@pytest.mark.parametrize(
    ("observations", "named"),
    [
        pytest.param(np.zeros((2, 3)), "another shape", id="shape"),
        pytest.param(np.full((1, 4), np.nan), "NaN", id="nan"),
        pytest.param(np.zeros((0, 4)), "1 to 4096", id="none"),
    ],
)
async def test_observations_of_another_space_are_refused(observations: np.ndarray, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        await ControlServedPolicy(control_policy(), version="v", number=0).act(ActRequest(observations=observations))


async def test_a_preference_for_a_policy_of_one_objective_is_refused() -> None:
    wish = ActRequest(observations=np.zeros((1, 4), np.float32), preferences=np.ones((1, 2), np.float32))
    with pytest.raises(Refusal, match="one objective"):
        await ControlServedPolicy(control_policy(), version="v", number=0).act(wish)


async def test_a_policy_of_several_objectives_takes_a_preference_for_all_or_for_each() -> None:
    observed = spaces.Dict({"preference": spaces.Box(0, 1, (2,)), "seen": spaces.Box(-1, 1, (3,))})
    policy = control_policy(observed)
    acting = ControlServedPolicy(policy, version="v", number=0)
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
    encode, decode = (
        (msgspec.json.encode, msgspec.json.decode) if kind == JSON else (msgspec.msgpack.encode, msgspec.msgpack.decode)
    )
    policy = control_policy(memory="lstm")
    acting, state = ControlServedPolicy(policy, version="run/3", number=3), policy.state(2)
    assert acting.about.state == 32
    one, both = {}, {}
    for seen in episodes(5, 2):
        right = policy.act_batch(seen, state=state)
        ask = read_act(encode({"observation": seen[1].tolist(), **one}), kind, {})
        answer = decode(write_act(ask, await acting.act(ask.act), HEADING))
        one = {"state": answer["state"]}
        assert answer["action"] == right[1]
        ask = read_act(encode({"observations": seen.tolist(), **both}), kind, {})
        answer = decode(write_act(ask, await acting.act(ask.act), HEADING))
        both = {"state": answer["state"]}
        assert answer["actions"] == right.tolist()
        np.testing.assert_array_equal(np.array(answer["state"], np.float32), state.numbers_BS)


async def test_episodes_that_act_together_keep_their_own_states() -> None:
    policy = control_policy(memory="gru")
    acting, steps = ControlServedPolicy(policy, version="v", number=0), episodes(4, 6)
    alone, states = policy.state(6), [None] * 3
    for seen in steps:
        right = policy.act_batch(seen, state=alone)
        asked = [ActRequest(observations=seen[2 * i : 2 * i + 2], states=states[i]) for i in range(3)]
        answers = await asyncio.gather(*(acting.act(each) for each in asked))
        assert np.concatenate([answer.actions for answer in answers]).tolist() == right.tolist()
        states = [answer.states for answer in answers]
    np.testing.assert_allclose(np.concatenate(states), alone.numbers_BS, atol=1e-6)


@pytest.mark.parametrize(
    ("memory", "states", "named"),
    [
        pytest.param(None, np.zeros((1, 16), np.float32), "has no memory", id="none"),
        pytest.param("gru", np.zeros((1, 15), np.float32), "give 16 finite numbers for each", id="size"),
        pytest.param("gru", np.zeros((2, 16), np.float32), "for 1 observations", id="rows"),
        pytest.param("gru", np.full((1, 16), np.nan, np.float32), "finite", id="nan"),
    ],
)
async def test_a_state_of_another_policy_is_refused(memory: str | None, states: np.ndarray, named: str) -> None:
    acting = ControlServedPolicy(control_policy(memory=memory), version="v", number=0)
    with pytest.raises(Refusal, match=named):
        await acting.act(ActRequest(observations=np.zeros((1, 4), np.float32), states=states))


def test_a_body_without_a_place_for_the_state_is_refused() -> None:
    ask = read_act(npy(np.zeros((1, 4), np.float32)), NPY, {})
    refuse_unfit(ControlServedPolicy(control_policy(), version="v", number=0).about, ask, "pole")
    with pytest.raises(Refusal, match="no place in a"):
        refuse_unfit(ControlServedPolicy(control_policy(memory="gru"), version="v", number=0).about, ask, "pole")


@pytest.mark.parametrize("memory", [None, "lstm"])
@pytest.mark.parametrize("explore", [False, True])
async def test_an_act_obeys_its_mask(memory: str | None, explore: bool) -> None:
    observed = spaces.Dict({"action_mask": spaces.MultiBinary(2), "observation": spaces.Box(-4, 4, (4,))})
    acting = ControlServedPolicy(control_policy(observed, memory=memory), version="run/3", number=3)
    for allowed in (0, 1):
        mask = [int(choice == allowed) for choice in (0, 1)]
        body = {"observations": {"action_mask": [mask] * 4, "observation": SEEN}, "explore": explore, "seed": 1}
        ask = read_act(json.dumps(body).encode(), JSON, {})
        answer = json.loads(write_act(ask, await acting.act(ask.act), HEADING))
        assert answer["actions"] == [allowed] * 4
        assert answer.get("logprobs", [0.0] * 4) == [0.0] * 4
    nothing = {"observation": {"action_mask": [0, 0], "observation": SEEN[0]}, "explore": explore}
    with pytest.raises(Refusal, match="the action_mask of observation 0 allows nothing"):
        await acting.act(read_act(json.dumps(nothing).encode(), JSON, {}).act)
