"""Acts of a session become a trajectory: what was seen, what was done, how likely it was."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from loomrl.config import HubConfig
from loomrl.errors import CorruptPayload
from loomrl.hub.codec import decode, encode
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.acting import ControlServedPolicy
from loomrl.serving.durable import open_recorder
from loomrl.serving.gateway import Gateway
from loomrl.serving.local import LocalGateway, only
from loomrl.serving.recorder import MemoryRecorder
from loomrl.serving.recording.acts import NewActs, RecordedActs, are_acts, decode_acts
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import NoKeys
from loomrl.serving.retention.sweep import Sweeper, SweepTerms
from loomrl.serving.routes.act import is_sampled, read_act
from loomrl.store import LoomDB, open_store
from loomrl.store.sessions import opt_out, read_calls
from loomrl.types import End, Steps
from tests.serving.control_support import control_policy

SEEN = np.random.default_rng(3).normal(size=(12, 4)).round(3)


class Pole:
    """A gateway before a control policy, with a recorder in LoomDB."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.store_url = f"sqlite:///{folder}/loom.db"
        acting = ControlServedPolicy(control_policy(), version="run/3", number=3)
        self.local = LocalGateway({"pole": acting}, open_recorder(self.store_url), **settings)
        self.client = httpx.AsyncClient(base_url=self.local.url, timeout=30)

    async def act(self, session: str, body: dict[str, Any]) -> httpx.Response:
        answer = await self.client.post(f"/sessions/{session}/v1/act", json={"model": "pole", **body})
        assert answer.status_code == 200, answer.text
        return answer

    def db(self) -> LoomDB:
        return open_store(self.store_url)

    async def __aenter__(self) -> "Pole":
        await self.local.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.client.aclose()
        await self.local.__aexit__(None, None, None)


def acts_of(session: str, *, width: int) -> NewActs:
    one_T = np.zeros(1, np.int32)
    steps = Steps(
        observations=np.zeros((1, width)), actions=one_T, logprobs_T=np.zeros(1, np.float32),
        sampled_T=np.zeros(1, np.bool_), versions_T=one_T, lanes_T=one_T, times_T=np.zeros(1), wishes={},
    )  # fmt: skip
    return NewActs(
        session=session, endpoint="pole", key="a", acts=RecordedActs(arm="stable", version="run/3", steps=steps)
    )


@pytest.fixture
async def pole(tmp_path: Path) -> AsyncIterator[Pole]:
    async with Pole(tmp_path) as served:
        yield served


async def test_steps_of_a_session_reach_the_endpoints_hub_as_one_trajectory(pole: Pole) -> None:
    done = []
    for at, seen in enumerate(SEEN):
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
    np.testing.assert_array_equal(steps.observations, SEEN)
    assert steps.actions.tolist() == [each["action"] for each in done]
    assert steps.sampled_T.tolist() == [True, False] * 6
    assert set(steps.versions_T) == {3}
    policy = control_policy()
    for at in range(0, 12, 2):
        action, logprob = policy.sample_batch(SEEN[at : at + 1], generator=torch.Generator().manual_seed(at))
        assert (action[0], logprob[0]) == (steps.actions[at], steps.logprobs_T[at])
        assert done[at]["logprob"] == pytest.approx(float(logprob[0]))
    assert stored.extra["session"]["versions"] == ["run/3"]


async def test_log_probabilities_are_those_of_the_frequencies() -> None:
    acting = ControlServedPolicy(control_policy(), version="v", number=0)
    ask = read_act(b'{"observations": [[0.3, 0.2, -0.1, 0.4]], "explore": true}', "application/json", {})
    many = np.repeat(ask.act.observations, 4000, axis=0)
    actions, logprobs = control_policy().sample_batch(many, generator=torch.Generator().manual_seed(0))
    likely = {int(action): float(np.exp(logprobs[actions == action][0])) for action in np.unique(actions)}
    assert sum(likely.values()) == pytest.approx(1.0, abs=1e-5)
    assert np.mean(actions) == pytest.approx(likely[1], abs=0.03)
    assert (await acting.act(ask.act)).logprobs is not None


async def test_acts_without_a_session_or_against_their_callers_will_are_not_recorded(pole: Pole) -> None:
    with pole.db() as db:
        opt_out(db, "pole", ["ada"], at=0.0)
    alone = await pole.client.post("/v1/act", json={"model": "pole", "observation": SEEN[0].tolist()})
    assert alone.headers["x-loomrl-recorded"] == "false"
    for wish in ({"store": False}, {"user": "ada"}):
        answer = await pole.act("quiet", {"observation": SEEN[0].tolist(), **wish})
        assert answer.headers["x-loomrl-recorded"] == "false"
    assert (await pole.act("quiet", {"observation": SEEN[1].tolist(), "user": "bob"})).json()["action"] in (0, 1)
    with pole.db() as db:
        assert sum(len(decode_acts(row.payload).steps) for row in read_calls(db, "quiet")[1]) == 1


async def test_batches_name_the_row_and_many_acts_share_a_row_of_the_record(pole: Pole) -> None:
    await asyncio.gather(*(pole.act("fleet", {"observations": SEEN[:5].tolist()}) for _ in range(40)))
    with pole.db() as db:
        rows = read_calls(db, "fleet")[1]
    assert all(are_acts(row.payload) for row in rows)
    parts = [decode_acts(row.payload).steps for row in rows]
    assert sum(map(len, parts)) == 200
    assert len(rows) < 40
    assert {tuple(part.lanes_T[at : at + 5]) for part in parts for at in range(0, len(part), 5)} == {(0, 1, 2, 3, 4)}


async def test_an_ended_or_foreign_session_takes_no_acts(pole: Pole) -> None:
    await pole.act("over", {"observation": SEEN[0].tolist()})
    await pole.client.post("/sessions/over/complete", json={})
    body = {"model": "pole", "observation": SEEN[0].tolist()}
    assert (await pole.client.post("/sessions/over/v1/act", json=body)).status_code == 409
    mine = acts_of("mine", width=4)
    store = open_recorder(pole.store_url)
    await store.keep_acts(mine)
    for foreign in (replace(mine, key="b"), replace(mine, endpoint="other")):
        with pytest.raises(Refusal, match="unknown") as refused:
            await store.keep_acts(foreign)
        assert refused.value.cause is RefusalCause.UNKNOWN
    await store.close()
    with pole.db() as db:
        assert len(read_calls(db, "mine")[1]) == 1


async def test_steps_of_another_form_than_the_sessions_first_are_refused_by_every_recorder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/loom.db"
    for one, another in ((open_recorder(url), open_recorder(url)), (memory := MemoryRecorder(), memory)):
        await one.keep_acts(acts_of("s", width=4))
        for recorder in (one, another):
            with pytest.raises(Refusal, match="another form") as refused:
                await recorder.keep_acts(acts_of("s", width=5))
            assert refused.value.cause is RefusalCause.INVALID
        await another.keep_acts(acts_of("s", width=4))
        assert len((await another.complete("s")).steps or ()) == 2
        await one.close()
        await another.close()


async def test_steps_of_two_forms_on_record_end_as_a_conflict(pole: Pole, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_recorder(pole.store_url)
    await store.keep_acts(acts_of("s", width=4))
    monkeypatch.setattr("loomrl.serving.durable.check_form", lambda *_: None)  # as if two gateways began it at once
    await store.keep_acts(acts_of("s", width=5))
    await store.close()
    with pytest.raises(Refusal, match="different forms") as refused:
        await (again := open_recorder(pole.store_url)).complete("s")
    await again.close()
    assert refused.value.cause is RefusalCause.CONFLICT


async def test_acts_that_are_recorded_after_the_answer_are_all_there_when_the_gateway_ends(tmp_path: Path) -> None:
    async with Pole(tmp_path, mode="after") as served:
        await asyncio.gather(*(served.act(f"s{at % 3}", {"observation": SEEN[at].tolist()}) for at in range(12)))
    with served.db() as db, open_endpoint_hub(served.store_url, "pole", HubConfig()) as hub:
        Sweeper(db, hub, "pole", terms=SweepTerms(idle_s=1.0)).sweep_sessions(now=2e9)
        found = [one for _, one in hub.read()]
    assert {(one.id, len(one.steps or ())) for one in found} == {("s0", 4), ("s1", 4), ("s2", 4)}
    assert {one.end for one in found} == {End.TRUNCATED}


async def test_the_rate_is_the_share_of_sessions_and_a_session_is_recorded_whole() -> None:
    acting = ControlServedPolicy(control_policy(), version="v", number=0)
    gateway = Gateway(view=only("pole", acting), recorder=MemoryRecorder(), keys=NoKeys(), rate=0.3)
    (endpoint,) = gateway.view.endpoints()
    names = [f"s{number}" for number in range(2000)]
    first = [is_sampled(gateway, endpoint, name) for name in names]
    again = [is_sampled(gateway, endpoint, name) for name in names]
    assert first == again
    assert np.mean(first) == pytest.approx(0.3, abs=0.04)


async def test_a_recorder_in_memory_makes_the_same_trajectory() -> None:
    acting = ControlServedPolicy(control_policy(), version="v", number=4)
    memory = MemoryRecorder()
    async with LocalGateway({"pole": acting}, memory) as local, httpx.AsyncClient(base_url=local.url) as client:
        for seen in SEEN[:3]:
            await client.post("/sessions/m/v1/act", json={"model": "pole", "observation": seen.tolist()})
        made = await memory.complete("m", reward=2.0)
    assert made.steps is not None
    assert (len(made.steps), made.first_version, made.reward.total) == (3, 4, 2.0)
    assert decode(encode(made)) == made
    assert replace(made, steps=replace(made.steps, lanes_T=made.steps.lanes_T + 1)) != made


def test_damaged_acts_are_named() -> None:
    with pytest.raises(CorruptPayload, match="recorded acts"):
        decode_acts(b"\xc1\x81\xa3arm\x01")
