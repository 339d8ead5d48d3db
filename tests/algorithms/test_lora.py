"""Runs that train low-rank additions: what they publish, keep and refuse."""

from pathlib import Path
from typing import Any

import pytest

from loomrl.config import TorchServing
from loomrl.errors import ConfigError
from loomrl.experiments.policies import exported, find_policy
from loomrl.inference.merged import sealed_adapter, whole_model
from loomrl.inference.model import open_model, open_tokenizer, save_model
from loomrl.inference.weights.adapter import NARROW, WIDEN, merge
from loomrl.inference.weights.sealed import Sealed, checksums, identify
from loomrl.run.version import BASE, copied
from loomrl.serving.deployment.source import SHARED, engine_of, fetch, fetch_adapter, source_of
from loomrl.store import open_store
from loomrl.store.runs import POLICIES
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import RAY, build, finish, resumes, same, train, weights
from tests.inference.sample_models import tiny_model

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


def test_versions_are_additions_beside_one_base_and_are_opened_whole(tmp_path: Path) -> None:
    algo = build(tmp_path, **LORA, **{"train.updates": 2, "train.checkpoint_every": 1})
    learned = finish(algo)
    stored = list((tmp_path / "artifacts/runs").rglob("*.safetensors"))
    assert len(stored) > 1
    assert {file.name for file in stored} == {"adapter_model.safetensors"}
    assert len([*(tmp_path / "artifacts/models").rglob("*.safetensors")]) == 1
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        opened = [fetch(source_of("r", db), db).path, Path(find_policy("r", db).choice.path)]  # type: ignore[union-attr]
        exported("r", db, tmp_path / "out")
        beside = fetch_adapter(source_of("r", db), db, weights_of_base=True)
        first = open_model(beside.path)
        whole = merge(first.state_dict(), first, sealed_adapter(beside.path.parent, 2))
        assert same({name: x.numpy() for name, x in whole.items()}, learned)
        assert open_tokenizer(fetch_adapter(source_of("r/0", db), db).path).chat_template
        shared = [engine_of(source_of(key, db), TorchServing(), db) for key in ("r/0", "r/2", "r@newest")]
        assert shared == [f"{SHARED}{identify(first.state_dict().items())}/{source_of('r', db).context}"] * 3
        base = copied(POLICIES.require(db, "r/2"), db)
        save_model(tiny_model(), None, base.with_name(BASE))
        with pytest.raises(ConfigError, match="is not the base that the low-rank additions were trained on"):
            whole_model(base)
    for folder in (*opened, tmp_path / "out"):
        assert open_tokenizer(folder).chat_template
        assert same({name: x.numpy() for name, x in open_model(folder).state_dict().items()}, learned)
    onwards = {"parent": "r/2", "algorithm.model.build": None, "algorithm.warm_start.steps": 0, "train.updates": 1}
    child = build(tmp_path, run="next", **LORA, **onwards)
    assert same(weights(child), learned)
    child.stop()


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
