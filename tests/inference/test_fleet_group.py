"""Engines get new weights through a process group: gloo here, where there is no GPU, and otherwise the same code."""

import asyncio
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sample_models import TOLERANCE, answers, drift, model, opening, random_prompt, request

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.vllm import fleet
from loomrl.inference.vllm import fleet as broadcast
from loomrl.inference.vllm.fleet import Broadcast, VllmFleet, open_fleet
from loomrl.inference.weights.sealed import Sealed, seal, stage
from tests.inference.sample_models import processes
from tests.needs import need

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]
ASKED = [request(random_prompt(0, 40), seed=0, max_tokens=8)]


@pytest.fixture(scope="module")
def engines(
    ray_cluster: None, one_thread_in_module: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmFleet]:
    need("vLLM")
    folder = tmp_path_factory.mktemp("model")
    model(0).save_pretrained(folder)
    with open_fleet(VllmEngineConfig(count=2, transport="nccl"), opening(folder)) as opened:
        yield opened


def others(sealed: Sealed, file: Path) -> Path:
    """In place of `stage`: whoever takes the file has other weights than were learnt."""
    return stage(seal(model(9).state_dict(), sealed.version), file)


def assert_have(engines: VllmFleet, seed: int, version: int) -> None:
    for got in engines.probe(ASKED):
        assert drift(model(seed), ASKED, got) <= TOLERANCE
        assert {*got[0].versions_T.tolist()} == {version}


def test_versions_come_through_the_group_and_damaged_ones_change_nothing(
    engines: VllmFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "stage", others)
    for version in (1, 2):
        engines.load(seal(model(version).state_dict(), version))
        assert_have(engines, version, version)
        engines.admit(version)
    assert engines._broadcast is not None
    assert engines._broadcast._built == 1
    broken = seal(model(3).state_dict(), 3)
    broken.weights["model.norm.weight"][0] += 1
    with pytest.raises(PolicyError, match=r"not what the learner sealed \(model\.norm\.weight\)"):
        engines.load(broken)
    (got,) = asyncio.run(answers(engines.client(), ASKED))
    assert drift(model(2), ASKED, [got]) <= TOLERANCE
    engines.load(seal(model(4).state_dict(), 4))
    engines.admit(4)
    assert_have(engines, 4, 4)


def test_an_engine_that_dies_while_weights_are_sent_is_replaced_and_joins_the_next_group(
    engines: VllmFleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, core = processes(engines)[0]
    send = broadcast.send

    def send_to_the_dead(*args: Any) -> None:
        core.send_signal(signal.SIGKILL)
        core.wait()
        send(*args)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "loomrl"):
        patch.setattr(broadcast, "send", send_to_the_dead)
        engines.load(seal(model(5).state_dict(), 5))
    assert "version 5: all engines take the staged file. One was lost on the way: vLLM's engine died" in caplog.text
    engines.admit(5)
    assert_have(engines, 5, 5)
    monkeypatch.setattr(fleet, "stage", others)
    engines.load(seal(model(6).state_dict(), 6))
    engines.admit(6)
    assert_have(engines, 6, 6)


def test_a_group_that_nccl_would_refuse_is_refused_before_engines_start() -> None:
    with pytest.raises(ConfigError, match=r"engine.gpus=0.5: NCCL wants a whole GPU for every member"):
        Broadcast("test", VllmEngineConfig(transport="nccl", gpus=0.5))
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="the learner's process has no GPU to send from"):
            Broadcast("test", VllmEngineConfig(transport="nccl", gpus=1))
