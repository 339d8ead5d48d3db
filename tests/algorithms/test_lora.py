"""Runs that train low-rank additions: what they publish, keep and refuse."""

from pathlib import Path
from typing import Any

import pytest

from loomrl.errors import ConfigError
from loomrl.inference.weights.adapter import NARROW, WIDEN
from loomrl.inference.weights.sealed import Sealed, checksums
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import RAY, build, resumes, train

pytestmark = RAY
LORA = {"algorithm.model.lora": {"rank": 4, "alpha": 8}}


def test_run_publishes_its_additions_alone_and_the_engine_samples_as_the_learner_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo = build(tmp_path, **LORA, **{"algorithm.model.dtype": "bfloat16", "algorithm.optimizer.learning_rate": 1e-3})
    runner = algo.env_runner_group.local_env_runner
    before = checksums(runner.engine._network.model.state_dict())
    published: list[Sealed] = []
    load = runner.load
    monkeypatch.setattr(runner, "load", lambda sealed: published.append(sealed) or load(sealed))
    history = train(algo, 3)
    assert [sealed.version for sealed in published] == [0, 1, 2, 3]
    assert all(name.endswith((NARROW, WIDEN)) for name in published[-1].weights)
    assert checksums(runner.engine._network.model.state_dict()) == before
    assert max(line[Metric.PUBLISH_DISTANCE] for line in history) < 0.05
    own = algo.learner_group._learner._own.state_dict()
    widened = {name: x for name, x in own.items() if "lora_B" in name}
    assert widened
    for name, tensor in widened.items():
        there = published[-1].weights[name.removeprefix("lm.").replace(".default.", ".")]
        assert (there == tensor * 2).all()  # alpha / rank
        assert there.any()
    algo.stop()


def test_run_resumes_from_its_additions_bit_by_bit_and_stores_no_second_base(tmp_path: Path) -> None:
    resumes(tmp_path, "grpo", **LORA, **{"train.updates": 3})


def test_checkpoint_of_another_base_is_refused(tmp_path: Path) -> None:
    algo = build(tmp_path, **LORA)
    learner: Any = algo.learner_group._learner
    state = learner.whole_state()
    assert not any("base_layer" in name for name in state["module"])
    with pytest.raises(ConfigError, match=r"additions to a model of identity 0123.*Give algorithm\.model\.path"):
        learner.load_whole_state({**state, "base": "0123"})
    algo.stop()


def test_layer_that_is_not_linear_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"embed_tokens is not a linear layer\. Choose from .*q_proj"):
        build(tmp_path, **{"algorithm.model.lora": {"targets": ["embed_tokens"]}})
