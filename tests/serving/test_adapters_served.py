"""Versions that are additions to one base, served by one engine: each answers as its merged model does."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from loomrl.config import TorchServing, VllmServing
from loomrl.config.release import ReleasePlan
from loomrl.inference import open as inference_open
from loomrl.inference.torch.engine import TorchEngine
from loomrl.release.ledger import ReleaseDraft, begin_release, command_release
from loomrl.release.passage import Command
from loomrl.serving.call import ChatMessage, Drawing, TokensDrawn
from loomrl.serving.channel.link import ChannelLink
from loomrl.serving.deployment import policies, station
from loomrl.serving.deployment.opening import open_speech
from loomrl.serving.deployment.source import engine_of, fetch, source_of
from loomrl.serving.deployment.station import EndpointEngines
from loomrl.serving.policy import Continuation, ServedPolicy
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, Role, set_endpoint
from loomrl.store.replicas import Replica, ReplicaRole, ReplicaState, live_replicas
from loomrl.store.runs import RUNS, load_experiment
from loomrl.types import Verdict
from tests.inference.sample_models import additions, tiny_model
from tests.needs import needs
from tests.serving.service_support import PretrainedBase, Service, record, service, start
from tests.serving.waiting import until

pytestmark = pytest.mark.usefixtures("one_thread")
TWO = ({"what": "a/1", "share": 0.5}, {"what": "b/2", "role": "canary", "share": 0.5})


@pytest.fixture
def db(tmp_path: Path) -> Any:
    """A LoomDB with two runs of a version each, additions to one base."""
    with open_store(f"sqlite:///{tmp_path}/loom.db") as opened:
        for number, run in enumerate("ab", start=1):
            add(opened, tmp_path, run, number)
        yield opened


def add(db: LoomDB, folder: Path, run: str, number: int, *, rank: int = 3, head_dim: int = 8, claims: str = "") -> None:
    known = [each.id for each in RUNS.latest(db)]
    experiment = load_experiment(RUNS.require(db, run)) if run in known else start(db, folder, run)
    base = PretrainedBase(tiny_model(head_dim=head_dim), claims=claims)
    record(db, experiment, number, run=run, additions=additions(base.model, number, rank=rank), base=base)


Serve = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def serve(
    db: LoomDB, tmp_path: Path, unused_tcp_port_factory: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> Serve:
    """A service of these arms, in which nothing waits long. `bases`: the models that were opened for it."""
    monkeypatch.setattr(station, "SPARE_S", 0.1)
    monkeypatch.setattr(policies, "LOOK_S", 0.05)
    monkeypatch.setattr(policies, "RETRY_S", 0.1)

    @asynccontextmanager
    async def opened(*arms: dict[str, Any], **more: Any) -> AsyncIterator[Service]:
        how = {"gateways": {"front": "none"}, "record": {"mode": "off"}, **more}
        async with service(tmp_path, unused_tcp_port_factory, arms=list(arms), **how) as served:
            yield served

    return opened


@pytest.fixture
def bases(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The models that engines were opened with."""
    found: list[Path] = []
    plain = inference_open.open_model

    def counting(path: Path, **settings: Any) -> Any:
        found.append(path)
        return plain(path, **settings)

    monkeypatch.setattr(inference_open, "open_model", counting)
    return found


def rows(db: LoomDB) -> dict[str, Replica]:
    return {row.policy: row for row in live_replicas(db, role=ReplicaRole.POLICY)}


def ready(db: LoomDB, *keys: str) -> bool:
    return {key for key, row in rows(db).items() if row.state is ReplicaState.READY} == set(keys)


async def drawn(policy: ServedPolicy, max_tokens: int = 12) -> list[list[Any]]:
    """Ids, log-probabilities and versions of two answers, one of them sampled."""
    found: list[list[Any]] = [[], [], []]
    for temperature in (0.0, 1.0):
        drawing = Drawing(max_tokens=max_tokens, temperature=temperature, seed=3)
        asked = Continuation(messages=(ChatMessage(role="user", text="What is 1 + 1?"),), drawing=drawing)
        async for event in policy.answer(asked):
            if isinstance(event, TokensDrawn):
                for column, new in zip(found, (event.ids_T, event.logprobs_T, event.versions_T), strict=True):
                    column += new.tolist()
    return found


async def linked(db: LoomDB, key: str) -> list[list[Any]]:
    link = await ChannelLink.open(rows(db)[key].address, token="secret")
    try:
        return await drawn(link)
    finally:
        await link.close()


async def merged(db: LoomDB, key: str) -> list[list[Any]]:
    source = source_of(key, db)
    files = fetch(source, db)
    whole = await open_speech(source, files, TorchServing(slots=2))
    files.discard()
    return await drawn(whole)


async def called(served: Service, arm: str) -> tuple[int, str]:
    """Status, and the version that answered; of the endpoint without an arm."""
    body = {
        "model": f"policy@{arm}" if arm else "policy",
        "messages": [{"role": "user", "content": "ab"}],
        "max_tokens": 4,
    }
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{served.url}/v1/chat/completions", json=body)
    return answer.status_code, answer.headers.get("x-loomrl-version", "")


async def answers(served: Service, arm: str, version: str) -> None:
    """Calls until this version answers."""
    async with asyncio.timeout(30):
        while await called(served, arm) != (200, version):  # noqa: ASYNC110 - gateways need a moment to know
            await asyncio.sleep(0.02)


def shift(db: LoomDB, stable: str, canary: str = "") -> None:
    """The arms of a release, before it or at its end."""
    arms = [Arm(name="stable", policy=stable, share=0.5 if canary else 1.0)]
    if canary:
        arms.append(Arm(name="canary", policy=canary, share=0.5, role=Role.CANARY))
    set_endpoint(db, "policy", arms, at=1.0)


async def test_incumbent_and_canary_share_one_base_through_a_release_and_a_rollback(
    db: LoomDB, tmp_path: Path, serve: Serve, bases: list[Path]
) -> None:
    add(db, tmp_path, "c", 3)
    alone = {key: await merged(db, key) for key in ("a/1", "b/2", "c/3")}
    bases.clear()

    async def answers_as_merged(*keys: str) -> None:
        await until(lambda: ready(db, *keys))
        for key in keys:
            ids, logprobs, versions = await linked(db, key)
            assert (ids, versions) == (alone[key][0], alone[key][2])
            assert logprobs == pytest.approx(alone[key][1], abs=1e-4)

    async with serve({"what": "a/1"}) as served:
        (process,) = served.policies
        draft = ReleaseDraft(
            endpoint="policy",
            challenger="b/2",
            plan=ReleasePlan(strategy="immediate"),
            verdict=Verdict(True, ("tests",)),
            who="ann",
        )
        begin_release(db, draft, at=time.time())
        await answers(served, "", "b/2")
        await answers_as_merged("a/1", "b/2")
        command_release(db, "policy", Command.ROLLBACK, who="ann", why="a test", at=time.time())
        await answers(served, "", "a/1")
        shift(db, "a/1", "c/3")
        await answers_as_merged("a/1", "c/3")
        assert len(process._channels) == 2
    assert len(bases) == 1
    assert rows(db) == {}


async def test_calls_of_a_version_that_no_arm_names_any_more_are_finished(
    db: LoomDB, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TorchEngine._step

    def slow_step(engine: TorchEngine) -> bool:
        time.sleep(0.02)
        return step(engine)

    monkeypatch.setattr(TorchEngine, "_step", slow_step)
    async with serve(*TWO) as served:
        link = await ChannelLink.open(rows(db)["b/2"].address, token="secret")
        asked = Continuation(messages=(ChatMessage(role="user", text="a"),), drawing=Drawing(max_tokens=100, seed=1))
        events = link.answer(asked)
        found = [await anext(events), await anext(events)]
        shift(db, "a/1")
        found += [event async for event in events]
        assert sum(len(event.ids_T) for event in found if isinstance(event, TokensDrawn)) == 100
        await link.close()
        await until(lambda: ready(db, "a/1"))
        assert await called(served, "stable") == (200, "a/1")


async def test_a_policy_that_cannot_be_opened_says_why_and_is_tried_again_while_others_answer(
    db: LoomDB, tmp_path: Path, serve: Serve, bases: list[Path]
) -> None:
    add(db, tmp_path, "none", 4, rank=0)
    (weights,) = tmp_path.glob(  # noqa: ASYNC240
        "artifacts/runs/b/000002/.files-*/adapter/adapter_model.safetensors"
    )
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    async with serve({"what": "a/1"}) as served:
        for key, said in (("none/4", "rank r=0, and 1 or more is needed"), ("b/2", "adapter_model.safetensors' is")):
            shift(db, "a/1", key)
            await until(lambda key=key: key in rows(db))
            failed = rows(db)[key]
            assert (failed.state, failed.address) == (ReplicaState.FAILED, "")
            assert said in failed.error
            assert "\n" not in failed.error
            assert await called(served, "stable") == (200, "a/1")
        weights.write_bytes(whole)
        await until(lambda: ready(db, "a/1", "b/2"))
        assert rows(db).keys() == {"a/1", "b/2"}
        await answers(served, "canary", "b/2")
        assert len(bases) == 1
        add(db, tmp_path, "strange", 5, claims=32 * "0")
        shift(db, "a/1", "strange/5")
        (strange,) = {*(EndpointEngines(served.station.experiment, db).read() or {})} - {served.policies[0]._engine}
        await served.add(strange)
        assert "it was trained on base 000000000000, the engine has base" in rows(db)["strange/5"].error
        assert await called(served, "stable") == (200, "a/1")


async def test_follower_of_a_run_takes_its_next_version_as_an_adapter(
    db: LoomDB, tmp_path: Path, serve: Serve, bases: list[Path]
) -> None:
    async with serve({"what": "a", "follow": "newest"}) as served:
        assert await called(served, "stable") == (200, "a/1")
        add(db, tmp_path, "a", 2)
        await until(lambda: rows(db)["a@newest"].version == "a/2")
        assert set((await linked(db, "a@newest"))[2]) == {2}
        assert len(bases) == 1
        await answers(served, "stable", "a/2")


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(600)
@needs("vLLM")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
async def test_vllm_serves_incumbent_and_canary_beside_one_base(db: LoomDB, tmp_path: Path, serve: Serve) -> None:
    for number, run in enumerate("xy", start=1):
        add(db, tmp_path, run, number, head_dim=32)
    alone = {key: await merged(db, key) for key in ("x/1", "y/2")}
    arms = ({"what": "x/1", "share": 0.5}, {"what": "y/2", "role": "canary", "share": 0.5})
    async with serve(*arms, engine={"kind": "vllm", "settings": {"enable_lora": True}}) as served:
        assert len(served.policies) == 1
        for arm, key in (("stable", "x/1"), ("canary", "y/2")):
            assert await called(served, arm) == (200, key)
            ids, logprobs, versions = await linked(db, key)
            assert ids[:12] == alone[key][0][:12], "the greedy answer"
            assert logprobs[:12] == pytest.approx(alone[key][1][:12], abs=1e-3)
            assert set(versions) == {int(key[-1])}


def test_only_engines_that_hold_adapters_share_a_base(db: LoomDB) -> None:
    sources = [source_of(key, db) for key in ("a/1", "b/2")]
    for engine in (TorchServing(), VllmServing(settings={"enable_lora": True})):
        assert len({engine_of(source, engine, db) for source in sources}) == 1
    for engine in (VllmServing(), TorchServing(dtype="float16")):
        assert [engine_of(source, engine, db) for source in sources] == ["a/1", "b/2"]
