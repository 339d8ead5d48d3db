"""`/v1/act`: what is sent in three forms reaches the policy, and what is wrong is named."""

import asyncio
import io
import json

import msgspec
import numpy as np
import pytest
from gymnasium import spaces

from loomrl.serving.act import JSON, MSGPACK, NPY, read_act, write_act
from loomrl.serving.acting import Acting
from loomrl.serving.answer import Heading
from loomrl.serving.policy import Act
from loomrl.serving.refusal import Refusal
from tests.serving.control_support import control_policy

HEADING = Heading(id="x", created=0.0, model="pole", version="run/3", arm="stable", session="", trajectory="")
SEEN = [[0.1, -0.2, 0.3, 0.0], [-4.0, 2.0, -3.0, 0.5], [4.0, -2.0, 3.0, 1.0], [0.0, 3.0, -4.0, -3.0]]


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


async def acted(body: bytes, kind: str, **query: str) -> bytes:
    ask = read_act(body, kind, query)
    return write_act(ask, await Acting(control_policy(), version="run/3", number=3).act(ask.act), HEADING)


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
    acting = Acting(control_policy(), version="v", number=0)
    sizes = [1, 3, 2, 1]
    batches = [np.random.default_rng(size + 7).normal(size=(size, 4)).astype(np.float32) for size in sizes]
    wrong = Act(observations=np.zeros((1, 5), np.float32))
    *answers, refused = await asyncio.gather(
        *(acting.act(Act(observations=each)) for each in batches), acting.act(wrong), return_exceptions=True
    )
    for answer, batch in zip(answers, batches, strict=True):
        assert answer.actions.tolist() == control_policy().act_batch(batch).tolist()
    assert isinstance(refused, Refusal)


async def test_exploring_is_repeatable_by_seed_and_varies_without() -> None:
    acting = Acting(control_policy(), version="v", number=0)
    many = np.zeros((64, 4), np.float32)

    async def drawn(seed: int | None) -> list[int]:
        return (await acting.act(Act(observations=many, explore=True, seed=seed))).actions.tolist()

    assert await drawn(1) == await drawn(1) != await drawn(2)
    assert len({*await drawn(None)}) == 2


async def test_named_parts_and_choices_are_observations_too() -> None:
    observed = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
    acting = Acting(control_policy(observed), version="v", number=0)
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
        pytest.param(b'{"observation": [1], "temperature": 1}', JSON, "'temperature' is unknown", id="unknown"),
        pytest.param(b'{"observation": [[1, 2], [3]]}', JSON, "differ in length", id="ragged"),
        pytest.param(b'{"observation": ["a"]}', JSON, "numbers", id="words"),
        pytest.param(b'{"observation": [1], "seed": -1}', JSON, "'seed'", id="seed"),
        pytest.param(b'{"observation": [1], "preference": "x"}', JSON, "'preference'", id="preference"),
        pytest.param(b"\x93NUMPY", NPY, "no .npy", id="npy"),
        pytest.param(npy(np.array([object()], object)), NPY, "no .npy", id="pickle"),
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
        await Acting(control_policy(), version="v", number=0).act(Act(observations=observations))


async def test_a_preference_for_a_policy_of_one_objective_is_refused() -> None:
    wish = Act(observations=np.zeros((1, 4), np.float32), preferences=np.ones((1, 2), np.float32))
    with pytest.raises(Refusal, match="one objective"):
        await Acting(control_policy(), version="v", number=0).act(wish)


async def test_a_policy_of_several_objectives_takes_a_preference_for_all_or_for_each() -> None:
    observed = spaces.Dict({"preference": spaces.Box(0, 1, (2,)), "seen": spaces.Box(-1, 1, (3,))})
    policy = control_policy(observed)
    acting = Acting(policy, version="v", number=0)
    assert acting.about.objectives == 2
    seen = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    rows = np.array([[0.2, 0.8]] * 4 + [[1.0, 0.0]], np.float32)
    for preferences in (rows[:1], rows):
        got = (await acting.act(Act(observations=seen, preferences=preferences))).actions.tolist()
        each = [policy.act(seen[i], preference=preferences[i % len(preferences)]) for i in range(5)]
        assert got == [int(action) for action in each]
    with pytest.raises(Refusal, match="2 objectives"):
        await acting.act(Act(observations=seen))
    with pytest.raises(Refusal, match="sum to"):
        await acting.act(Act(observations=seen, preferences=np.ones((1, 2), np.float32)))
