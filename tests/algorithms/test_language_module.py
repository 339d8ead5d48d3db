"""The module that learns against the model that samples: dropout, layers computed twice, low-rank additions."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import GPT2Config, GPT2LMHeadModel

from loomrl.algorithms.language import resolved
from loomrl.algorithms.language.algorithm import METRICS
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.learner import LanguageLearner
from loomrl.algorithms.language.module import imitating
from loomrl.config import GRPO, Experiment
from loomrl.errors import ConfigError, LearnerError, StoreError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.data import settled
from loomrl.experiments.policies import exported
from loomrl.experiments.train import train
from loomrl.inference.model import open_model, save_model
from loomrl.store import open_store
from loomrl.store.policies import lineage
from loomrl.store.runs import POLICIES
from loomrl.telemetry.metric import Metric
from tests.algorithms.control_support import same
from tests.algorithms.language_support import RAY, build, experiment, weights
from tests.experiments.runs import weights as stored_weights
from tests.inference.sample_models import random_prompt, tiny_tokenizer

pytestmark = RAY


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GPT-2's own defaults: dropout in embeddings, attention and residuals."""
    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
    config = GPT2Config(vocab_size=len(tokenizer), **sizes, bos_token_id=0, eos_token_id=0)
    assert config.resid_pdrop == config.attn_pdrop == config.embd_pdrop == 0.1
    save_model(GPT2LMHeadModel(config), tokenizer, folder)
    return folder


def begun_with(folder: Path, **model: Any) -> dict[str, Any]:
    return {"algorithm.model": {"path": str(folder), "build": None, "context": 128, **model}}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="one step"),
        pytest.param({"algorithm.optimizer.epochs": 2, "algorithm.kl.coefficient": 0.1}, id="steps and a reference"),
        pytest.param({"algorithm.warm_start.steps": 4, "algorithm.model.lora": {"dropout": 0.5}}, id="imitates, LoRA"),
    ],
)
def test_model_with_dropout_learns_what_its_engine_samples(tmp_path: Path, gpt2: Path, changes: dict[str, Any]) -> None:
    algo = build(tmp_path, **begun_with(gpt2), **changes)
    history = [algo.train()[METRICS] for _ in range(2)]
    algo.stop()
    assert max(line[Metric.PUBLISH_DISTANCE] for line in history) < 1e-4
    assert max(line[Metric.POLICY_DRIFT] for line in history) < 1e-4
    assert max(line[Metric.PUBLISH_REPEATED] for line in history) == 0
    assert history[0][Metric.POLICY_KL] < 1e-3


def test_the_first_weights_of_a_model_that_was_built_are_found_on_a_host_that_is_not_the_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's copy is out of reach there."""
    algo = build(tmp_path)
    spec = algo.config.get_default_rl_module_spec()
    drivers = algo.config.origin
    algo.stop()
    shutil.rmtree(drivers)
    monkeypatch.setattr(resolved, "_fetch_built", resolved._fetch_built.__wrapped__)
    assert spec.build().lm.num_parameters() > 0


def test_dropout_is_on_while_demonstrations_are_imitated_and_only_then(tmp_path: Path, gpt2: Path) -> None:
    algo = build(tmp_path, **begun_with(gpt2))
    own = algo.learner_group._learner._own
    assert not any(part.training for part in own.modules())
    with imitating(own):
        assert all(part.training for part in own.modules())
    assert not any(part.training for part in own.modules())


def test_learner_that_contradicts_itself_is_named_and_no_engine_is_blamed(tmp_path: Path, gpt2: Path) -> None:
    algo = build(tmp_path, **begun_with(gpt2))
    algo.learner_group._learner._own.lm.train()
    with pytest.raises(LearnerError, match=r"asked twice.*draws random numbers.*Engines and weights are not at fault"):
        algo.train()


def test_layers_that_are_computed_twice_learn_the_same(tmp_path: Path, gpt2: Path, monkeypatch: Any) -> None:
    after = []
    for extent in ("none", "full"):
        algo = build(tmp_path / extent, **begun_with(gpt2, recompute=extent))
        layer = algo.learner_group._learner._own.lm.transformer.h[0]
        passes = []
        whole = layer.mlp.forward
        monkeypatch.setattr(layer.mlp, "forward", lambda x, whole=whole, passes=passes: passes.append(1) or whole(x))
        algo.train()
        passes.clear()
        algo.train()
        after.append((weights(algo), len(passes)))
        algo.stop()
    (plain, once), (again, more) = after
    assert more > once
    assert all((plain[name] == again[name]).all() for name in plain)


def test_adapter_beside_the_model_says_what_the_merged_model_says(tmp_path: Path, gpt2: Path) -> None:
    lora = {"rank": 4, "alpha": 16, "targets": ["c_attn", "c_proj"]}
    algo = build(tmp_path, **begun_with(gpt2, lora=lora), **{"train.updates": 1})
    algo.train()
    algo.stop()
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        exported("r", db, tmp_path / "out")
    merged = open_model(tmp_path / "out")
    base = open_model(gpt2)
    ids = torch.from_numpy(random_prompt(0, 40)).long()[None] % 270
    with torch.no_grad():
        before = base(ids).logits.log_softmax(-1)
        expected = merged(ids).logits.log_softmax(-1)
        found = PeftModel.from_pretrained(base, tmp_path / "out" / "adapter")(ids).logits.log_softmax(-1)
    assert (expected - before).abs().max() > 1e-3
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


# -- algorithms of one's own that are not quite right yet -------------------------------------------------------------


class Bare(LanguageConfig):
    pass


class Averaging(LanguageLearner):
    def policy_loss(self, scores: Any, columns: Any, old_K: Any) -> Any:
        return super().policy_loss(scores, columns, old_K).mean()


class Listing(LanguageLearner):
    def advantages(self, rewards: Any, masks: Any, *, groups: Any, values: Any) -> Any:
        return [np.zeros(len(mask_T)) for mask_T in masks]


def own(folder: Path, name: str, **settings: Any) -> Any:
    base = experiment(folder).model_dump(mode="json")["algorithm"]
    chosen = {key: base[key] for key in ("model", "sampling", "optimizer")} | settings
    algorithm = {"kind": "custom", "entry_point": f"{__name__}:{name}", "settings": chosen}
    return experiment(folder, algorithm=algorithm)


def test_subclass_that_overrides_nothing_is_grpo_with_its_settings(tmp_path: Path) -> None:
    config = open_algorithm(own(tmp_path, "Bare", scale=False)).training(clip={"low": 0.1})
    assert isinstance(config.algorithm, GRPO)
    assert not config.algorithm.scale
    assert config.algorithm.clip.low == 0.1


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        (
            "Averaging",
            {},
            r"'Averaging' is not a subclass of loomrl\.algorithms\.language\.config\.LanguageConfig\. Name",
        ),
        ("Bare", {"scael": 1}, r"algorithm\.settings of .*:Bare: .*scael=1.*Did you mean 'scale'"),
        ("Bare", {"kind": "ppo"}, r"kind='ppo'.*'grpo'"),
    ],
)
def test_what_is_misnamed_is_said_before_anything_runs(
    tmp_path: Path, name: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said.replace(".*", r"(.|\n)*")):
        _ = open_algorithm(own(tmp_path, name, **settings)).algorithm


def test_configuration_itself_is_no_algorithm_of_ones_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Build its subclass .*:Bare, which overrides get_default_learner_class"):
        _ = LanguageConfig.of(own(tmp_path, "Bare")).algorithm


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (Averaging, r"Averaging\.policy_loss made numbers of shape \(\) for \d+ action tokens: return one per token"),
        (Listing, r"Listing\.advantages made a list that does not fit its masks: return .*Estimate"),
    ],
)
def test_what_a_learner_returns_amiss_is_said_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learner: type, said: str
) -> None:
    monkeypatch.setattr(Bare, "get_default_learner_class", lambda self: learner)
    algo = open_algorithm(own(tmp_path, "Bare"), run="r").build_algo()
    with pytest.raises(LearnerError, match=said):
        algo.train()


def onwards(folder: Path, parent: str, **changes: Any) -> Experiment:
    """Other settings, from the weights of this version."""
    begins = {"parent": parent, "algorithm.model.build": None, "algorithm.warm_start.steps": 0}
    return experiment(folder, "rloo", **{"train.updates": 1, "seed": 9, **begins, **changes})


def test_a_run_begins_with_the_weights_of_a_version_of_another_algorithm(tmp_path: Path) -> None:
    train(experiment(tmp_path, "ppo", **{"train.updates": 2}), run="first")
    last = train(onwards(tmp_path, "first"), run="next")
    assert policy_weights_are(tmp_path, "next/0", "first/2")
    assert not policy_weights_are(tmp_path, "next/1", "first/2")
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        assert POLICIES.require(db, "next/0").parent == "first/2"
        assert "first/2" in str(lineage(db, last.policy))
        exported("first/2", db, tmp_path / "out")
    loose = settled(onwards(tmp_path, str(tmp_path / "out")))
    assert isinstance(loose, Experiment)
    assert (loose.parent, loose.algorithm.model.path) == (None, str(tmp_path / "out"))  # type: ignore[union-attr]
    again = train(onwards(tmp_path, "first/2"), run="next")
    assert again.policy == last.policy


def policy_weights_are(folder: Path, version: str, other: str) -> bool:
    """Without the value heads, of which not every algorithm has one."""
    settings = experiment(folder)
    found = [stored_weights(settings, each) for each in (version, other)]
    return same(*({name: tensor for name, tensor in each.items() if "value" not in name} for each in found))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm.warm_start.steps": 3}, "warm_start.steps is given, and parent=r/1"),
        ({"algorithm.model.build": {"layers": 1}}, "set model.build=null"),
    ],
)
def test_what_a_run_would_not_begin_with_is_refused(tmp_path: Path, changes: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        onwards(tmp_path, "r/1", **changes)


def test_a_parent_that_is_unknown_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nobody"):
        train(onwards(tmp_path, "nobody/3"), run="r")
