"""Publication against faults planted for real: each is found by the check that is meant to find it."""

import asyncio
import logging
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ray import cloudpickle

from loomrl.algorithms.language.algorithm import METRICS
from loomrl.algorithms.language.publish import Probing, Publisher
from loomrl.config import Sampling
from loomrl.config.engine import Checks
from loomrl.errors import PolicyError
from loomrl.inference.engine import Request
from loomrl.inference.model import open_model
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.sealed import Sealed, seal, stage, unstage
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import RAY, build

pytestmark = RAY

NORMS = ("model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight")
FAR = "tests.algorithms.language_envs:FarEnvironment"


def changed(sealed: Sealed, **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**sealed.weights, **tensors}


def corrupt_staged(engine: Any, sealed: Sealed, folder: Path) -> Sealed:
    file = stage(sealed, folder / "staged")
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(content)
    return unstage(file)


def corrupt_sealed(engine: Any, sealed: Sealed, folder: Path) -> Sealed:
    name = NORMS[0]
    return replace(sealed, weights=changed(sealed, **{name: sealed.weights[name] * 1.01}))


def swap_sealed(engine: Any, sealed: Sealed, folder: Path) -> Sealed:
    one, other = NORMS
    return replace(sealed, weights=changed(sealed, **{one: sealed.weights[other], other: sealed.weights[one]}))


def swap_kept(engine: Any, sealed: Sealed, folder: Path) -> Sealed:
    """Two tensors of equal shape change places behind every checksum: in what the fused step computes with."""
    layer = engine._network._layers[0]
    half = len(layer.gate_up) // 2
    turned = replace(layer, gate_up=torch.cat([layer.gate_up[half:], layer.gate_up[:half]]))
    engine._network._layers[0] = turned
    return sealed


def damage_first_rotations(engine: Any, sealed: Sealed, folder: Path) -> Sealed:
    """In what steps at the first positions turn queries and keys by, right after reading back."""
    table = engine._network._cos_C1D
    read = engine._read_constants

    def spoil(version: int) -> None:
        read(version)
        with torch.inference_mode():
            table[:16] *= -1
        del engine._read_constants

    engine._read_constants = spoil
    return sealed


def miss(engine: Any, sealed: Sealed, folder: Path) -> Sealed:
    """The engine keeps what it has, under the new number, with checksums to match."""
    old = {name: tensor.clone() for name, tensor in engine._network.model.state_dict().items()}
    return seal(old, sealed.version)


PLANTED: dict[str, tuple[Any, str]] = {
    "staged file": (corrupt_staged, "tensors are not what the learner sealed"),
    "sealed weights": (corrupt_sealed, "tensors are not what the learner sealed"),
    "swapped before the seal is checked": (swap_sealed, "tensors are not what the learner sealed"),
    "swapped in the engine": (swap_kept, "off what the learner says"),
    "first rotations": (damage_first_rotations, "off what the learner says|beside them, cosines changed"),
    "missed": (miss, "off what the learner says"),
}


def plant(algo: Any, monkeypatch: pytest.MonkeyPatch, fault: Any, folder: Path, times: int) -> list[int]:
    """The fault, in the next `times` loads; what was loaded."""
    runner = algo.env_runner_group.local_env_runner
    load = runner.load
    loaded = list[int]()

    def faulty(sealed: Sealed) -> None:
        loaded.append(sealed.version)
        load(fault(runner.engine, sealed, folder) if len(loaded) <= times else sealed)

    monkeypatch.setattr(runner, "load", faulty)
    return loaded


@pytest.fixture
def warm(tmp_path: Path) -> Any:
    """An algorithm that has published once."""
    algo = build(tmp_path)
    algo.train()
    yield algo
    algo.stop()


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.slow
def test_what_stays_wrong_stops_the_run_by_name_and_nobody_acts_with_it(
    warm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    fault, said = PLANTED[name]
    loaded = plant(warm, monkeypatch, fault, tmp_path, 99)
    with pytest.raises(PolicyError, match=f"version 2 was published twice.*({said}).*Resume the run"):
        warm.train()
    assert loaded == [2, 2]
    runner = warm.env_runner_group.local_env_runner
    request = Request(torch.arange(4).numpy().astype("int32"), Sampling(max_tokens=2), frozenset(), 0)
    with pytest.raises(PolicyError, match=r"rejected|changed in the engine"):
        asyncio.run(runner.engine.generate(request))
    played = warm._runners.play(warm.source.plan(warm.actor(2), 0))
    assert {attempt.failure.boundary for attempt in played if attempt.failure} == {"policy"}
    assert all(attempt.failure for attempt in played)


def test_missed_update_too_small_for_the_tolerance_is_seen_by_answers_that_did_not_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo = build(tmp_path, **{"algorithm.optimizer.learning_rate": 3e-5})
    history = [algo.train()[METRICS] for _ in range(3)]
    assert max(line[Metric.PUBLISH_REPEATED] for line in history) == 0
    plant(algo, monkeypatch, miss, tmp_path, 99)
    with pytest.raises(PolicyError, match="bit by bit as it did before the update"):
        algo.train()


def test_damage_that_only_early_positions_read_is_seen_by_the_shortest_probe(
    warm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plant(warm, monkeypatch, damage_first_rotations, tmp_path, 1)
    shortest = len(warm._publisher.probing.requests) - 1
    with caplog.at_level(logging.WARNING), pytest.raises(PolicyError, match="beside them, cosines changed"):
        warm.train()
    assert f"version 2 is published once more: Engine 0, probe {shortest}: a log-probability is" in caplog.text


@pytest.mark.parametrize("name", ["staged file", "missed"])
def test_what_goes_wrong_once_is_published_again(
    warm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = plant(warm, monkeypatch, PLANTED[name][0], tmp_path, 1)
    with caplog.at_level(logging.WARNING):
        found = warm.train()[METRICS]
    assert loaded == [2, 2]
    assert found[Metric.PUBLISH_REPEATED] == 1
    assert found[Metric.PUBLISH_DISTANCE] < 1e-4
    assert found[Metric.FAILURES] == 0
    assert "version 2 is published once more" in caplog.text
    assert warm.train()[METRICS][Metric.POLICY_DRIFT] < 1e-4


@pytest.mark.slow
def test_fault_in_a_remote_runner_is_named_with_the_runner(tmp_path: Path) -> None:
    algo = build(tmp_path, **{"rollout.runners": 1, "environments": [{"id": FAR}]})
    assert algo.train()[METRICS][Metric.PUBLISH_DISTANCE] < 1e-4
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not know where tests are
    algo.env_runner_group.foreach_env_runner(lambda runner: swap_kept(runner.engine, None, None) and None)
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    with pytest.raises(PolicyError, match=r"published twice.*Engine 0, probe \d: .* off what the learner says"):
        algo.train()


LONG = 800
"""Tokens of a request that is open for a second at least."""


class Threaded:
    """One engine on an event loop of its own, which goes on while others compute.

    Before its first weights, requests with the same prompts are opened, so long that they outlive two publications.
    """

    def __init__(self, engine: TorchEngine, requests: Sequence[Request] = ()) -> None:
        self.engine = engine
        self.requests = requests
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.siblings: list[asyncio.Task[Any]] = []
        self.answers: list[Any] = []

    def load(self, sealed: Sealed) -> None:
        self.run(self._load(sealed))

    async def _load(self, sealed: Sealed) -> None:
        """Probed at once, while requests with the probes' prompts are open that were begun with the old weights."""
        if self.requests and not self.siblings:
            long = [replace(one, sampling=Sampling(max_tokens=LONG)) for one in self.requests]
            self.siblings = [asyncio.create_task(self.engine.generate(one)) for one in long]
            while self.engine.statistics.sampled_tokens < len(long):  # noqa: ASYNC110 - steps of this loop
                await asyncio.sleep(0)
        await self.engine.take(sealed)
        self.answers = await self.engine.probe(self.requests)

    def probe(self, requests: Sequence[Request]) -> list[list[Any]]:
        return [self.answers if requests == self.requests else self.run(self.engine.probe(requests))]

    def admit(self, version: int) -> None:
        self.run(self.engine.admit(version))

    def reject(self, cause: str) -> None:
        self.run(self.engine.reject(cause))

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def close(self) -> None:
        self.run(asyncio.wait(self.siblings)) if self.siblings else None
        self.run(self.engine.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Forgetful(TorchEngine):
    """Never computes anew what it has cached."""

    @property
    def _stale(self) -> bool:
        return False

    @_stale.setter
    def _stale(self, value: bool) -> None:
        pass


@pytest.mark.parametrize("engine", [TorchEngine, Forgetful])
def test_stale_cache_is_seen_and_its_requests_are_not_answered(warm: Any, engine: type[TorchEngine]) -> None:
    probing = Probing.of_run(warm.config)
    model = open_model(warm.config.origin)
    model.config.max_position_embeddings = 1024
    fleet = Threaded(engine(model, slots=8, context=1024, version=0), probing.requests)
    publisher = Publisher(fleet, warm._first_of, probing)
    with closing(fleet):
        if engine is TorchEngine:
            publisher.publish(1)
            answers = [fleet.run(sibling_done(one)) for one in fleet.siblings]
            assert {*answers[0].versions_T.tolist()} == {0, 1}
        else:
            with pytest.raises(PolicyError, match="off what the learner says"):
                publisher.publish(1)
            for one in fleet.siblings:
                with pytest.raises(PolicyError, match="rejected"):
                    fleet.run(sibling_done(one))


async def sibling_done(task: asyncio.Task[Any]) -> Any:
    return await task


def test_probes_stand_at_positions_from_the_first_to_the_last_that_is_probed() -> None:
    lengths = [len(one.prompt_T) for one in Probing.of(Checks(), vocabulary=9, context=4096, dtype="float32").requests]
    assert lengths == [257, 129, 1]
    short = Probing.of(Checks(probes=2), vocabulary=9, context=40, dtype="float32")
    assert [len(one.prompt_T) for one in short.requests] == [32, 1]


def test_remedy_is_not_the_engine_that_failed(warm: Any) -> None:
    assert "engine.kind=torch" not in Probing.of_run(warm.config).remedy


def test_drift_beyond_what_is_allowed_is_an_alarm_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    algo = build(tmp_path, **{"algorithm.model.dtype": "bfloat16", "engine.checks.drift": 1e-4})
    with caplog.at_level(logging.WARNING):
        history = [algo.train()[METRICS] for _ in range(3)]
    state = algo.learner_group._learner.whole_state()
    learnt = {**state["module"], **{str(key): one["exp_avg"] for key, one in state["optimizer"]["state"].items()}}
    assert {tensor.dtype for tensor in learnt.values()} == {torch.float32}
    assert {tensor.dtype for tensor in algo.weights().values()} == {torch.bfloat16}
    algo.stop()
    assert [line[Metric.POLICY_DRIFT_ALARM] for line in history] == [1, 1, 1]
    assert max(line[Metric.PUBLISH_DISTANCE] for line in history) < 0.1
    assert caplog.text.count("more than engine.checks.drift=0.0001") == 1


def test_nothing_alive_is_nothing_proved(warm: Any) -> None:
    class Empty(Threaded):
        def probe(self, requests: Sequence[Request]) -> list[list[Any]]:
            return []

    fleet = Empty(TorchEngine(open_model(warm.config.origin), slots=8, context=128))
    with pytest.raises(PolicyError, match="No engine answered"):
        Publisher(fleet, warm._first_of, Probing.of_run(warm.config)).publish(1)
    fleet.close()
