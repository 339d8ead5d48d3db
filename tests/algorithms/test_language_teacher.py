"""On-policy distillation: what a teacher finds likely is learnt, with any reward."""

from pathlib import Path
from typing import Any

import pytest
import torch

from loomrl.errors import ConfigError
from loomrl.experiments.policies import exported
from loomrl.inference.model import save_model
from loomrl.store import open_store
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import QUIET, build, experiment, learn, resumes, train

pytestmark = QUIET


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, ray_cluster: Any) -> tuple[Path, Path]:
    """A model before and after it has learnt to say what is in ASCII."""
    folder = tmp_path_factory.mktemp("teacher")
    algo = build(folder, "ppo", **{"train.updates": 24, "train.checkpoint_every": 24})
    learn(algo, gain=0.3)
    taught = algo.keep()
    algo.stop()
    with open_store(f"sqlite:///{folder}/loom.db") as db:
        exported("r/0", db, folder / "pupil")
        exported(taught, db, folder / "teacher")
    return folder / "pupil", folder / "teacher"


def taught(pupil: Path, teacher: Path | None, **changes: Any) -> dict[str, Any]:
    kl = {"coefficient": 1, "estimator": "k1", "place": "reward", "teacher": str(teacher)}
    return {
        "algorithm.model": {"path": str(pupil), "build": None, "context": 128},
        "algorithm.gamma": 0,
        "algorithm.kl": kl if teacher else {},
        "algorithm.reward_clip": (-1e-6, 1e-6),  # nothing else teaches
        "train.updates": 12,
        **changes,
    }


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
def test_a_pupil_becomes_its_teacher_without_a_reward(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    pupil, teacher = folders
    history = learn(build(tmp_path, "reinforce", **taught(pupil, teacher)), gain=0.15)
    assert history[-1][Metric.POLICY_KL] < 0.7 * history[0][Metric.POLICY_KL]
    control = train(build(tmp_path / "control", "reinforce", **taught(pupil, pupil)), 4)  # its own teacher
    assert abs(control[-1][Metric.SUCCESS] - history[0][Metric.SUCCESS]) < 0.1


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
def test_it_goes_on_to_the_last_bit_and_the_teacher_is_in_no_checkpoint(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    changes = taught(*folders, **{"train.updates": 3})
    resumes(tmp_path, "reinforce", stops=2, **changes)
    algo = build(tmp_path, "reinforce", **changes)
    train(algo, 1)
    assert algo.whole_state()["learner"]["reference"] == {}


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
def test_a_teacher_of_another_vocabulary_is_refused(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.inference.sample_models import tiny_tokenizer

    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), num_attention_heads=2, **sizes))
    save_model(model, tokenizer, tmp_path / "stranger")
    algo = build(tmp_path, "reinforce", **taught(folders[0], tmp_path / "stranger"))
    with pytest.raises(ConfigError, match="another vocabulary"):
        algo.train()


def test_a_teacher_that_nobody_hears_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no effect with coefficient=0"):
        experiment(tmp_path, "grpo", **{"algorithm.kl": {"teacher": "folder"}})
