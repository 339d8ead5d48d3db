"""The memory of a training before it begins: chosen, refused with a remedy, and as measured on real learners."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from transformers import LlamaConfig, LlamaForCausalLM

from loomrl.algorithms.language import footprint as sizes
from loomrl.algorithms.language.build import build_tokenizer
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.footprint import (
    GB,
    PROCESS,
    STEP_OR_CACHE,
    STEP_OR_ENGINE,
    bound_memory,
    fitting_tokens,
    footprint,
    learner_parts,
)
from loomrl.config import Experiment
from loomrl.errors import ConfigError
from loomrl.inference.footprint import ModelShape
from loomrl.inference.model import config_of, save_model
from loomrl.store import open_store
from loomrl.store.runs import RUNS, load_experiment
from tests.algorithms.language_support import RAY, build, experiment, finish, same, train, weights

LEARNER = """
import json, sys
import numpy as np
import torch
from loomrl.algorithms.language.batch import LanguageWork
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.packing import Sample, plan_update
from loomrl.algorithms.language.sample import AGE, ENGINE, REWARD, SHIFT
from loomrl.algorithms.learners import training_data
from loomrl.config import Experiment
from loomrl.process import peak_memory_kb

tree, count, length = json.loads(sys.argv[1])
config = LanguageConfig.of(Experiment.parse(tree))
config.validate()
learner = config.get_default_learner_class()(config=config, module_spec=config.get_default_rl_module_spec())
learner.build()
learner.begin(reference=True)
rng = np.random.default_rng(0)
mask_T = np.arange(length) >= length // 4
zeros_T = np.zeros(length, np.float32)
given = {ENGINE: zeros_T, AGE: zeros_T, SHIFT: zeros_T}
columns = [given | {REWARD: zeros_T + index % 2 * (np.arange(length) == length - 1)} for index in range(count)]
samples = [Sample(rng.integers(0, 300, length).astype(np.int32), mask_T, each) for each in columns]
sizes = [sample.size for sample in samples]
(steps,) = plan_update(sizes, optimizer=config.algorithm.optimizer, learners=1, rng=rng, flat=learner.reads_flat)
assert len(steps[0].micro_batches) == 2
work = LanguageWork("reinforce", tuple(samples), steps, 1e-4, groups=tuple(str(i // 2) for i in range(count)))
for _ in range(2):
    learner.update(training_data=training_data([work]))
print(1024 * peak_memory_kb())
"""
"""Two updates of two passes each, in a process of its own: prints its peak."""
SHAPES = {
    "narrow": {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 4},
    "wide": {
        **{"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8},
        **{"num_key_value_heads": 2, "vocab_size": 8192},
    },
    "words": {
        **{"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 12},
        **{"num_key_value_heads": 4, "vocab_size": 32_768},
    },
}
CASES: list[tuple[str, int, int, dict[str, Any]]] = [
    ("narrow", 2048, 1024, {}),
    ("narrow", 1024, 256, {"dtype": "bfloat16"}),
    ("narrow", 2048, 256, {"lora": {"rank": 8}, "recompute": "full"}),
    ("wide", 1024, 128, {}),
    ("wide", 2048, 512, {}),
    ("wide", 2048, 256, {"recompute": "full"}),
    ("wide", 2048, 256, {"recompute": "selective"}),
    ("wide", 2048, 256, {"recompute": "selective", "dtype": "bfloat16"}),
    ("wide", 1024, 256, {"lora": {"rank": 16}}),
    ("wide", 1024, 256, {"lora": {"rank": 16}, "dtype": "bfloat16"}),
    ("words", 512, 128, {}),
    ("words", 1024, 128, {"lora": {"rank": 32}}),
]
"""Shape, tokens of a pass, tokens of a sample, settings of the model."""
TOKENS = "algorithm.optimizer.micro_batch_tokens"


def planned(monkeypatch: pytest.MonkeyPatch, folder: Path, free_gb: float, **changes: Any) -> int:
    """The tokens of a pass of a model of 270 M parameters in a Llama's shape, on a machine with so much free."""
    monkeypatch.setattr(sizes, "free_memory", lambda: int(free_gb * GB))
    return fitting_tokens(LanguageConfig.of(experiment(folder, **changes)).resolved, ModelShape.of(shaped()))


def shaped() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=320, hidden_size=1024, intermediate_size=4096, num_hidden_layers=16, num_attention_heads=16
    )


def test_a_pass_has_as_many_tokens_as_fit_into_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = {free: planned(monkeypatch, tmp_path, free) for free in (12, 18, 30, 100)}
    assert sorted(chosen.values()) == [*chosen.values()]
    assert 256 <= chosen[12] < chosen[18] < chosen[30] < chosen[100] == 16_384
    leaner = planned(monkeypatch, tmp_path, 12, **{"algorithm.model.recompute": "full"})
    assert leaner > chosen[12]


def test_a_training_that_does_not_fit_is_refused_with_what_is_needed_and_what_would_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"needs (\S+) GB, and 5.0 GB of memory are free on this machine") as refused:
        planned(monkeypatch, tmp_path, 5)
    assert "It fits with algorithm.kl.watch=false" in str(refused.value)
    with pytest.raises(ConfigError, match=r"algorithm\.optimizer\.micro_batch_tokens=auto"):
        planned(monkeypatch, tmp_path, 20, **{TOKENS: 100_000})
    with pytest.raises(ConfigError, match="Take a smaller model or a larger machine"):
        planned(monkeypatch, tmp_path, 0.5)


def test_a_gpu_is_filled_and_not_only_halved_into(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sizes.torch.cuda, "is_available", lambda: True)
    chosen = []
    for free in (20, 40, 60, 1000):
        monkeypatch.setattr(sizes.torch.cuda, "mem_get_info", lambda free=free: (free * GB, 80 * GB))
        chosen.append(planned(monkeypatch, tmp_path, 0, **{"algorithm.learners.gpus": 1.0}))
        resolved = LanguageConfig.of(experiment(tmp_path, **{"algorithm.learners.gpus": 1.0})).resolved
        needed = [
            sum(learner_parts(resolved, ModelShape.of(shaped()), chosen[-1] + more).values()) for more in (0, 256)
        ]
        assert needed[0] <= 0.9 * free * GB < needed[1] or chosen[-1] == 131_072
    assert chosen == sorted({*chosen})
    assert chosen[-1] == 131_072


def test_learners_that_share_rows_have_a_part_of_the_activations_each(tmp_path: Path) -> None:
    learners = {"algorithm.learners.count": 2}
    alone, shared = (
        learner_parts(
            LanguageConfig.of(experiment(tmp_path, **learners, **more)).resolved, ModelShape.of(shaped()), 8192
        )
        for more in ({}, {"algorithm.learners.sequence_parallel": 2})
    )
    assert shared.pop("activations") < 0.51 * alone.pop("activations")
    assert shared == alone


def test_learner_and_engines_that_take_turns_need_the_larger_of_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = {"algorithm.model.context": 2048, "rollout.concurrency": 64}
    apart, by_turns = (
        footprint(LanguageConfig.of(experiment(tmp_path, **words, **more)).resolved, ModelShape.of(shaped()), 4096)
        for more in ({}, {"placement.colocated": True})
    )
    step = apart.parts["learner's activations"] + apart.parts["learner's gradients"]
    assert by_turns.parts[STEP_OR_CACHE] == max(step, apart.parts["engine's cache"])
    assert by_turns.total == pytest.approx(apart.total - min(step, apart.parts["engine's cache"]))
    with pytest.raises(ConfigError, match=r"It fits with algorithm\.kl\.watch=false placement\.colocated=true"):
        planned(monkeypatch, tmp_path, 9.5, **words)


def test_one_gpu_holds_what_learner_and_engines_need_by_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sizes.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sizes.torch.cuda, "mem_get_info", lambda: (25 * GB, 25 * GB))
    words = {
        **{"rollout.runners": 1, "placement.runner.gpus": 0.5, "algorithm.learners.gpus": 0.5, TOKENS: 4096},
        **{"algorithm.model.context": 2048, "rollout.concurrency": 64},
    }
    with pytest.raises(ConfigError, match=r"12\.5 GB of memory are free on the GPU"):
        planned(monkeypatch, tmp_path, 0, **words)
    assert planned(monkeypatch, tmp_path, 0, **words, **{"placement.colocated": True}) == 4096
    with pytest.raises(ConfigError, match=r"needs \d+\.\d GB, and 25\.0 GB of memory are free on the GPU"):
        planned(monkeypatch, tmp_path, 0, **{**words, "placement.colocated": True, "rollout.concurrency": 128})


def test_on_one_gpu_a_process_may_take_what_the_other_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bounds: list[float] = []
    monkeypatch.setattr(sizes.torch.cuda, "mem_get_info", lambda: (20 * GB, 25 * GB))
    monkeypatch.setattr(sizes.torch.cuda, "set_per_process_memory_fraction", bounds.append)
    shaped().save_pretrained(tmp_path / "model")
    gpu = {
        **{"rollout.runners": 1, "placement.runner.gpus": 0.5, "algorithm.learners.gpus": 0.5},
        **{"algorithm.model.path": str(tmp_path / "model"), "algorithm.model.build": None},
    }
    for turns in (False, True):
        resolved = LanguageConfig.of(experiment(tmp_path, **gpu, **{"placement.colocated": turns})).resolved
        for learns in (True, False):
            bound_memory(resolved, learns=learns)
    shape = ModelShape.of(shaped())
    parts = learner_parts(resolved, shape, 256)
    kept = sum(parts.values()) - parts["activations"] - parts["gradients"]
    assert bounds == pytest.approx([1 - shape.engine_bytes("float32") / (25 * GB), 1 - kept / (25 * GB)])
    both = footprint(resolved, shape, 4096)
    assert both.parts[STEP_OR_CACHE] >= 4 * shape.parameters  # those that it lends


def test_vllm_that_sleeps_needs_its_weights_and_cache_or_the_learner_s_activations(tmp_path: Path) -> None:
    words = {
        **{"engine.kind": "vllm", "engine.gpus": 0.5, "engine.memory_gb": 4, "algorithm.learners.gpus": 0.5},
        **{"placement.colocated": True, "algorithm.model.dtype": "bfloat16"},
    }
    shape = ModelShape.of(shaped())
    found = footprint(LanguageConfig.of(experiment(tmp_path, **words)).resolved, shape, 256)
    assert found.parts[STEP_OR_ENGINE] == 2 * shape.parameters + 4 * 2**30


@pytest.mark.slow
def test_the_estimate_of_a_learner_is_within_a_sixth_of_its_peak_nine_times_in_ten(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(["a b"] * 200, vocabulary=320)
    for name, shape in SHAPES.items():
        config = LlamaConfig(**{"vocab_size": 2048, "tie_word_embeddings": True, **shape})
        save_model(LlamaForCausalLM(config), tokenizer, tmp_path / name)
    apart = {}
    for name, tokens, length, settings in CASES:
        model = {"path": str(tmp_path / name), "context": 1024, **settings}
        small = experiment(tmp_path, **{TOKENS: tokens}).plain
        tree = {**small, "algorithm": {"kind": "grpo", "model": model, "optimizer": {"micro_batch_tokens": tokens}}}
        asked = json.dumps([tree, 2 * tokens // length, length])
        done = subprocess.run([sys.executable, "-c", LEARNER, asked], capture_output=True, text=True, check=True)
        peak = int(done.stdout.split()[-1])
        resolved = LanguageConfig.of(Experiment.parse(tree)).resolved
        shape = ModelShape.of(config_of(tmp_path / name))
        planned = PROCESS + sum(learner_parts(resolved, shape, tokens).values())
        apart[name, tokens, length, str(settings)] = planned / peak - 1
    assert sum(abs(each) <= 0.15 for each in apart.values()) >= 0.9 * len(apart), apart


class TestRun:
    """With a small model on a real machine."""

    pytestmark = RAY

    def test_a_model_that_does_not_fit_is_refused_before_it_is_built(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sizes, "free_memory", lambda: 30 * GB)
        wide = {"hidden_size": 4096, "intermediate_size": 16_384, "layers": 32, "heads": 32}
        with pytest.raises(ConfigError, match=r"needs \d+\.\d GB, and 30\.0 GB of memory are free on this machine"):
            build(tmp_path, **{f"algorithm.model.build.{name}": size for name, size in wide.items()})
        assert not (tmp_path / "artifacts" / "models").exists()

    def test_the_engine_has_no_cache_while_the_learner_steps_and_the_weights_are_the_same(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words = {"train.updates": 3}
        apart = finish(build(tmp_path / "apart", **words))
        algo = build(tmp_path / "turns", **words, **{"placement.colocated": True})
        kept = algo.env_runner_group.local_env_runner.engine._network.kept
        held: list[bool] = []
        for name in ("_update", "_publish"):
            plain = getattr(algo, name)
            monkeypatch.setattr(algo, name, lambda *a, plain=plain: (held.append(bool(kept._layers)), plain(*a))[1])
        train(algo)
        assert held == [False] * 7
        assert kept._layers
        assert same(apart, weights(algo))
        algo.stop()

    @pytest.mark.slow
    @pytest.mark.parametrize("lora", [None, {"rank": 4}], ids=["all weights", "lora"])
    def test_an_engine_in_another_process_reads_the_learner_s_memory_until_the_learner_steps(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: dict[str, int] | None
    ) -> None:
        words = {"train.updates": 3, "rollout.runners": 1, "algorithm.model.lora": lora}
        apart = finish(build(tmp_path / "apart", **words))
        algo = build(tmp_path / "turns", **words, **{"placement.colocated": True})
        learner = algo.learner_group._learner
        lent: list[bool] = []
        for owner, name in ((algo, "_publish"), (learner, "learn")):
            plain = getattr(owner, name)
            monkeypatch.setattr(
                owner, name, lambda *a, plain=plain: (plain(*a), lent.append(learner._lent is not None))[0]
            )
        train(algo)
        assert lent == [True] + [False, True] * 3
        assert same(apart, weights(algo))
        ray.kill(algo._runners.actors[1], no_restart=False)  # the next one opens what is lent, too
        assert all(one.failure is None for one in algo.trial("again", algo.experiment.evaluation))
        algo.stop()

    def test_the_number_is_on_record_and_a_resumed_run_keeps_it_on_a_machine_with_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = build(tmp_path / "whole", **{TOKENS: 64, "train.updates": 4})
        train(whole)
        monkeypatch.setattr(sizes, "LEAST_TOKENS", 64)
        monkeypatch.setattr(sizes, "_needed", lambda resolved, shape, tokens: tokens / 64)
        monkeypatch.setattr(sizes, "free_memory", lambda: 1.2)
        finish(build(tmp_path / "parts", **{"train.updates": 4}), 2)
        with open_store(f"sqlite:///{tmp_path}/parts/loom.db") as db:
            own: Any = load_experiment(RUNS.require(db, "r"))
        assert own.algorithm.optimizer.micro_batch_tokens == 64
        monkeypatch.setattr(sizes, "free_memory", lambda: 1e9)
        again = build(tmp_path / "parts", **{"train.updates": 4})
        train(again)
        assert again.experiment.algorithm.optimizer.micro_batch_tokens == 64
        assert same(weights(whole), weights(again))
