"""Engines in Ray actors: balanced, given weights as one, and replaced when they die or hang, with nothing lost."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray import cloudpickle
from sample_models import (
    TOLERANCE,
    VOCABULARY,
    answers,
    drift,
    logprobs,
    model,
    opening,
    random_prompt,
    request,
    tiny_model,
)

from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.publish import Probing, Publisher
from loomrl.config.engine import Checks, VllmEngineConfig
from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.engine import Completion, CompletionPiece
from loomrl.inference.vllm import fleet_client
from loomrl.inference.vllm.fleet import VllmFleet, open_fleet
from loomrl.inference.vllm.fleet_client import FleetClient
from loomrl.inference.weights.sealed import Sealed, seal
from tests.inference.sample_models import processes
from tests.needs import needs

pytestmark = [
    needs("vLLM"),
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model(0).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def fleet(ray_cluster: None, one_thread_in_module: None, folder: Path) -> Iterator[VllmFleet]:
    with open_fleet(VllmEngineConfig(count=2), opening(folder)) as opened:
        yield opened
    assert not list(Path("/dev/shm").glob(f"*-of-{os.getpid()}"))


def test_all_engines_have_what_was_admitted_and_share_the_work(fleet: VllmFleet) -> None:
    client = fleet.client()
    asked = [request(random_prompt(seed // 4, 40), seed=seed, max_tokens=8) for seed in range(32)]
    fleet.load(seal(model(1).state_dict(), 3))
    for answers_of_one in fleet.probe(asked[:2]):
        assert drift(model(1), asked[:2], answers_of_one) <= TOLERANCE
    fleet.admit(3)
    assert client.version == 3
    before = fleet.request_statistics()().sampled_tokens
    got = asyncio.run(answers(client, asked))
    assert drift(model(1), asked, got) <= TOLERANCE
    assert {int(version) for one in got for version in one.versions_T} == {3}
    assert fleet.request_statistics()().sampled_tokens - before == 32 * 8
    shares = [ray.get(actor.statistics.remote())[1].sampled_tokens for actor in fleet._actors]
    assert min(shares) >= 32 * 8 / 4


def test_rejected_weights_are_replaced_by_good_ones(fleet: VllmFleet) -> None:
    fleet.load(seal(model(2).state_dict(), 4))
    with pytest.raises(PolicyError, match="cannot be admitted: the engines were given 4"):
        fleet.admit(5)
    fleet.reject("probes are off")
    with pytest.raises(PolicyError, match="version 4 were rejected: probes are off"):
        asyncio.run(fleet.client().generate(request([1])))
    broken = seal(model(2).state_dict(), 5)
    broken.weights["model.norm.weight"][0] += 1
    with pytest.raises(PolicyError, match=r"not what the learner sealed \(model\.norm\.weight\)"):
        fleet.load(broken)
    fleet.load(seal(model(1).state_dict(), 6))
    fleet.admit(6)
    asked = [request([1, 2, 3])]
    assert drift(model(1), asked, asyncio.run(answers(fleet.client(), asked))) <= TOLERANCE


def test_engines_that_gave_their_caches_back_answer_again_and_take_weights(fleet: VllmFleet) -> None:
    fleet.load(seal(model(1).state_dict(), 7))
    fleet.admit(7)
    asked = [request(random_prompt(seed, 40), max_tokens=8) for seed in range(4)]
    for seed, version in ((1, 7), (2, 8)):
        fleet.release()
        for actor in fleet._actors:
            assert ray.get(actor.__ray_call__.remote(sleeping))
        if version == 8:
            fleet.load(seal(model(2).state_dict(), 8))
            fleet.admit(8)
        assert drift(model(seed), asked, asyncio.run(answers(fleet.client(), asked))) <= TOLERANCE
        for actor in fleet._actors:
            assert not ray.get(actor.__ray_call__.remote(sleeping))


def sleeping(actor: Any) -> bool:
    """True if vLLM was told to sleep, and not to wake up: it takes no step. Its CPU build keeps the memory."""
    return bool(actor._engine._asleep)


def test_a_build_of_vllm_that_cannot_sleep_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="Sleep mode is not supported on current platform"):
        open_fleet(VllmEngineConfig(settings={"enable_sleep_mode": True}), opening(folder))


class Learnt:
    """Weights that are sealed, and a plain forward pass with them, in place of a learner."""

    def __init__(self, seed: int) -> None:
        self.model = model(seed)

    def seal(self, version: int) -> Sealed:
        return seal(self.model.state_dict(), version)

    def recompute(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        cut = [int(sample.mask_T.argmax()) for sample in samples]
        return [
            logprobs(self.model, request(sample.ids_T[:at]), sample.ids_T[at:])
            for sample, at in zip(samples, cut, strict=True)
        ]


def never_reset(actor: Any) -> None:
    """vLLM keeps its prefix cache, and says that it does not."""

    async def kept(**_: Any) -> bool:
        return True

    actor._engine._llm.reset_prefix_cache = kept


def never_update(actor: Any) -> None:
    """vLLM ends an update that brought no weights."""

    async def missed(_: Any) -> None:
        return None

    actor._engine._llm.update_weights = missed


def mended(actor: Any) -> None:
    for name in ("reset_prefix_cache", "update_weights"):
        vars(actor._engine._llm).pop(name, None)


async def joined(pieces: AsyncIterator[CompletionPiece]) -> tuple[Completion, int]:
    """The completion of a stream, and the number of its pieces."""
    came = [piece async for piece in pieces]
    assert came[-1].finish is not None
    ids, logp, versions = ([getattr(piece, name) for piece in came] for name in ("ids_T", "logprobs_T", "versions_T"))
    return Completion(*map(np.concatenate, (ids, logp, versions)), came[-1].finish), len(came)


async def test_a_fleet_streams_and_a_closed_stream_costs_nothing(fleet: VllmFleet) -> None:
    client = fleet.client()
    asked = [request(random_prompt(seed, 20), seed=seed, max_tokens=30) for seed in range(4)]
    got = await asyncio.gather(*(joined(client.stream(one)) for one in asked))
    assert [one.ids_T.tolist() for one, _ in got] == [one.ids_T.tolist() for one in await answers(client, asked)]
    assert min(count for _, count in got) > 3
    for _ in range(12):
        async with aclosing(client.stream(request([1, 2], max_tokens=150))) as pieces:
            await anext(pieces)
    await asyncio.sleep(0.3)
    before = [ray.get(actor.statistics.remote())[1] for actor in fleet._actors]
    await asyncio.sleep(0.5)
    after = [ray.get(actor.statistics.remote())[1] for actor in fleet._actors]
    assert [each.sampled_tokens for each in before] == [each.sampled_tokens for each in after]
    with pytest.raises(PolicyError, match="192 tokens in context=192"):
        await anext(client.stream(request([1] * 192)))


async def test_a_stream_goes_on_after_its_engine_died(fleet: VllmFleet) -> None:
    client, asked = fleet.client(), request([5, 6, 7], max_tokens=120)
    stream, came = client.stream(asked), []
    async for piece in stream:
        came.append(piece)
        if len(came) == 2:
            index = client._open.index(1)
            _, core = processes(fleet)[index]
            core.kill()

    async def told() -> AsyncIterator[CompletionPiece]:
        for piece in came:
            yield piece

    whole, _ = await joined(told())
    assert len(whole.ids_T) == 120
    assert drift(model(1), [asked], [whole]) <= TOLERANCE


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (never_reset, r"Engine 1, probe \d: .* off what the learner says"),
        (never_update, "tensors arrived and are not what was sealed where the engine computes with them"),
    ],
)
def test_stale_cache_is_seen_by_the_probes_and_a_missed_update_by_reading_back(
    fleet: VllmFleet, fault: Any, said: str
) -> None:
    probing = Probing.of(Checks(), vocabulary=VOCABULARY, context=192, dtype="float32")
    learnt = Learnt(10)
    publisher = Publisher(fleet, lambda call: call(learnt), probing)
    publisher.publish(20)
    learnt.model = model(11)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not know where tests are
    ray.get(fleet._actors[1].__ray_call__.remote(fault))
    with pytest.raises(PolicyError, match=f"published twice.*{said}"):
        publisher.publish(21)
    with pytest.raises(PolicyError, match="version 21 were rejected"):
        asyncio.run(fleet.client().generate(request([1])))
    ray.get(fleet._actors[1].__ray_call__.remote(mended))
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    publisher.publish(22)
    asked = [request([1, 2, 3])]
    assert drift(learnt.model, asked, asyncio.run(answers(fleet.client(), asked))) <= TOLERANCE


def test_engines_that_die_or_hang_are_replaced_and_nothing_is_lost(
    fleet: VllmFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_client, "PING_S", 1.0)
    monkeypatch.setattr(fleet_client, "SILENT_S", 10.0)
    fleet.load(seal(model(2).state_dict(), 7))
    fleet.admit(7)
    client = fleet.client()
    asked = [request(random_prompt(seed, 5), seed=seed, max_tokens=180) for seed in range(24)]
    (_, killed), (_, hung) = processes(fleet)

    async def play() -> list[Completion]:
        tasks = [asyncio.create_task(client.generate(one)) for one in asked]
        await asyncio.sleep(0.2)
        killed.send_signal(signal.SIGKILL)
        hung.send_signal(signal.SIGSTOP)
        assert not any(task.done() for task in tasks)
        with pytest.raises(PolicyError, match=r"no engine answered for 5 s\. engine \d: .*(died|said nothing)"):
            await impatient(fleet).generate(request([1]))
        return list(await asyncio.gather(*tasks))

    got = asyncio.run(play())
    assert drift(model(2), asked, got) <= TOLERANCE
    assert all(len(one.ids_T) == 180 and set(one.versions_T.tolist()) == {7} for one in got)
    assert not killed.is_running()
    assert not hung.is_running()
    for answers_of_one in fleet.probe(asked[:1]):
        assert drift(model(2), asked[:1], answers_of_one) <= TOLERANCE


def impatient(fleet: VllmFleet) -> FleetClient:
    return FleetClient(fleet._name, 2, timeout_s=5.0)


def test_more_engines_than_ray_has_room_for_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.count=9 with 1 CPU each: Ray has 4 in all"):
        open_fleet(VllmEngineConfig(count=9), opening(folder))


def test_engines_that_would_wait_for_a_cpu_forever_do_not(fleet: VllmFleet, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"of 3 engines did not start within engine.start_timeout_s=1"):
        open_fleet(VllmEngineConfig(count=3, start_timeout_s=1.0), opening(folder))


def test_memory_that_is_too_small_for_the_context_is_said(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"is larger than the available KV cache memory.*Raise engine.memory_gb"):
        open_fleet(VllmEngineConfig(memory_gb=0.0001), opening(folder))


def test_an_engine_that_dies_at_start_says_why(tmp_path: Path) -> None:
    tiny_model(head_dim=8).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"attention configuration: head_dim=8.*Choose engine.kind=torch"):
        open_fleet(VllmEngineConfig(), opening(tmp_path))
