"""Every experiment file and sweep that ships makes two updates: its own settings, but small, and without GPUs.

Files are found, not listed: a new one is run by itself.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from loomrl.config import AnyExperiment, ControlExperiment, Experiment, LoopExperiment, ServingExperiment
from loomrl.config.sweep import Sweep
from loomrl.experiments import chats, shipped, sweep_file
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.bench.control.zoo_peers import PEERS
from loomrl.experiments.record import Recording, record
from loomrl.experiments.sweep import sweep
from loomrl.experiments.train import train
from loomrl.inference.model import save_model
from loomrl.own_ray import own_ray
from tests.algorithms.language_support import QUIET, embedded
from tests.experiments.runs import places
from tests.feedback.served_support import frozen_production
from tests.inference.sample_models import tiny_model, tiny_tokenizer

pytestmark = [
    pytest.mark.system,
    QUIET,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::SyntaxWarning"),
]
KINDS = ("rollout", "learner", "engine")
UPON = {"language/on_cluster": ("language/math_tiny",)}
"""Experiments laid upon another one; they start remote runners and a remote learner."""
LONG = {
    "language/math_tiny_multitask",  # imports reasoning_gym
    "language/league_tiny",
    "language/agent_tiny",  # trained in test_agent_tiny.py
    "language/smol_tools",  # the same agent
    *(f"control/{row}" for row in PEERS if row not in ("cartpole", "pendulum")),  # trained by `loomrl bench zoo`
}
NAMES = [name for name in shipped.names() if not name.startswith(("serving/", "loop/"))]


@pytest.fixture(scope="module")
def ray_of_every_kind() -> Iterator[None]:
    """One node that is a node of every kind."""
    ray.shutdown()  # the one that the tests above share
    with own_ray(num_cpus=6, resources=dict.fromkeys(KINDS, 10)):
        yield


def small(experiment: AnyExperiment, folder: Path, *, steps: int = 16) -> AnyExperiment:
    """Two updates of it, with results in this folder; those of control of so many steps in each environment."""
    if isinstance(experiment, ControlExperiment):
        less = experiment.override(places(folder) | control(experiment, steps))
        if less.data is not None:
            return less.override({"train.steps": 2})
        return less.override({"train.steps": 2 * max(32, open_algorithm(less).steps_per_update)})
    return embedded(experiment).override(places(folder) | language(experiment, folder))


def control(experiment: ControlExperiment, steps: int) -> dict[str, Any]:
    """Updates of so many steps in two environments; those of SAC and DQN stay as they are."""
    changes: dict[str, Any] = {"train.tell_every": 1, "evaluation.every": None, "evaluation.episodes": 1}
    changes |= {"learners.gpus": 0, "rollout.runners": min(1, experiment.rollout.runners)}
    if experiment.evaluation.preferences is not None:
        changes["evaluation.preferences"] = 2
    if experiment.data is not None:  # which has its updates, and no rollouts
        return {name: value for name, value in changes.items() if not name.startswith("rollout")}
    if experiment.algorithm.kind in ("sac", "dqn"):
        batch = 8 * (experiment.rollout.steps or 1)  # with a memory, of sequences as long as a rollout
        return changes | {"algorithm.warmup": 8, "algorithm.batch": batch}
    return changes | {"rollout.environments": 2, "rollout.steps": steps, "algorithm.minibatch_size": 16}


def language(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """Two updates of a model of one narrow layer."""
    if experiment.data is not None and experiment.data.file is not None:
        made = {"data.file": str(folder / "chats.jsonl"), "algorithm.model.path": str(folder / "tiny")}
        chats.write(folder / "chats.jsonl")
        save_model(tiny_model(), tiny_tokenizer(), folder / "tiny")
        return made | {"algorithm.model.context": 192, "algorithm.sampling.max_tokens": 4, "train.updates": 2}
    if experiment.data is not None:  # of the policy that was served
        batch = {"data.batch": 8, "data.epochs": 2, "algorithm.learners.gpus": 0, "algorithm.sampling.max_tokens": 4}
        batch |= {"algorithm.model.context": 128}  # as many positions as the served one has
        return batch | {"train.updates": 2, "train.checkpoint_every": 2, "evaluation.episodes": 2}
    build = {"hidden_size": 16, "intermediate_size": 32, "layers": 1, "heads": 2}
    changes: dict[str, Any] = {f"algorithm.model.build.{name}": value for name, value in build.items()}
    if experiment.algorithm.model.path is not None:
        model = tiny_model()
        model.config.max_position_embeddings = 1024  # for the description of a tool, in a token a letter
        save_model(model, tiny_tokenizer(), folder / "tiny")
        changes = {"algorithm.model.path": str(folder / "tiny"), "algorithm.model.context": 1024}
    changes |= {"algorithm.warm_start.steps": min(2, experiment.algorithm.warm_start.steps)}
    if experiment.algorithm.warm_start.tasks is not None:
        changes |= {"algorithm.warm_start.tasks": 20}
    changes |= {"algorithm.sampling.max_tokens": 4, "algorithm.learners.gpus": 0}
    changes |= {"rollout.runners": min(2, experiment.rollout.runners), "placement.runner.gpus": 0}
    changes |= {"rollout.groups_per_update": 2 * len(experiment.environments), "rollout.group_size": 2}
    changes |= {"train.updates": 2, "train.checkpoint_every": 2, "evaluation.episodes": 2}
    return changes


def test_every_shipped_service_and_loop_is_one_and_every_experiment_has_its_algorithm() -> None:
    """Served: `test_serve.py`; coordinated: `tests/coordinator`."""
    kinds = {"serving": ServingExperiment, "loop": LoopExperiment}
    for name in shipped.names():
        experiment = shipped.resolve_any([name])
        folder = name.partition("/")[0]
        assert isinstance(experiment, kinds.get(folder, ControlExperiment | Experiment)), name
        if folder not in kinds and name not in UPON:
            open_algorithm(experiment)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in NAMES if name not in UPON],
)
def test_every_shipped_experiment_makes_two_updates(
    name: str, tmp_path: Path, ray_cluster: None, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "minari").mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    makes_two_updates(small(shipped.resolve([name]), tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", UPON)
def test_so_does_one_upon_another(name: str, tmp_path: Path, ray_of_every_kind: None, one_thread: None) -> None:
    makes_two_updates(small(shipped.resolve([*UPON[name], name]), tmp_path))


def makes_two_updates(experiment: AnyExperiment) -> None:
    if isinstance(experiment, ControlExperiment) and experiment.data is not None:
        record(experiment, Recording(id=str(experiment.data.minari), policies=["random"], steps=30))
    if isinstance(experiment, Experiment) and experiment.data is not None and experiment.data.dataset is not None:
        frozen_production(Path(experiment.artifact_url).parent, experiment.data.dataset)
    result = train(experiment, run="r")
    assert result.updates >= 2
    assert Path(result.page).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", sweep_file.names())
def test_every_shipped_sweep_makes_two_trials_of_two_updates(
    name: str, tmp_path: Path, ray_of_every_kind: None, one_thread: None
) -> None:
    asked = sweep_file.resolve_sweep([name])
    experiment = small(asked.experiment, tmp_path, steps=256)  # in which episodes end, so that there are returns
    tree = asked.model_dump(mode="json") | {"experiment": experiment.model_dump(mode="json"), "samples": 2}
    tree |= {"budget": None, "concurrency": 1, "window": 1}
    tree["space"].pop("algorithm.minibatch_size", None)  # of batches that are larger than these
    tree["scheduler"] = tree["scheduler"] and {"kind": tree["scheduler"]["kind"]}
    result = sweep(Sweep.parse(tree, origin=name), run="s")
    assert len(result.trials) == 2
    assert all(trial.score is not None for trial in result.trials)
