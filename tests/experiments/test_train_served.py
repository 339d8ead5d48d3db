"""On the command line: a data set is frozen and shown, a run is trained on it, killed, and resumed unharmed."""

import json
from pathlib import Path

import pytest

from loomrl.config import Experiment
from loomrl.errors import LoomError
from loomrl.experiments.train import resumed, train
from loomrl.store import open_store
from loomrl.store.runs import POLICIES
from tests.algorithms.language_support import ASCII, QUIET
from tests.command_line import typed_json
from tests.experiments.runs import assert_same, kill_after_an_update, places
from tests.feedback.served_support import frozen_production, store, url
from tests.feedback.test_dataset import session

pytestmark = [pytest.mark.system, QUIET]


def test_data_set_is_frozen_listed_and_shown(tmp_path: Path) -> None:
    store(tmp_path, "agent-7", [session(f"s{n}", domain=("coding", "writing")[n % 2]) for n in range(6)])
    at = ("--store", url(tmp_path))
    made = typed_json("data", "freeze", 'agents=["7"]', "holdout=0", "limit=4", *at)
    assert made["id"].startswith("7-")
    assert (made["sizes"], made["counts"]) == ({"train": 4, "holdout": 0}, {"limit": 2})
    assert [one["id"] for one in typed_json("data", "list", *at)["datasets"]] == [made["id"]]
    assert not typed_json("data", "list", "--trajectory", "nobody", *at)["datasets"]
    shown = typed_json("data", "show", "7", "--rows", *at)
    assert shown["domains"] == {"coding": {"train": 2, "holdout": 0}, "writing": {"train": 2, "holdout": 0}}
    assert (shown["with_ids"], shown["with_reward"], shown["feedback"], shown["versions"]) == (4, 0, {}, [])
    assert len(shown["rows"]) == 4
    for words, said in (('agents=["7"] min_rewards=1', "min_rewards"), ("a min_reward=1", "'a'")):
        with pytest.raises(LoomError, match=said) as refused:
            typed_json("data", "freeze", *words.split(), *at)
        assert "min_reward left out" not in str(refused.value)


def experiment(folder: Path, dataset: str) -> Experiment:
    """Eight updates, a checkpoint after every second."""
    return Experiment.parse(
        {
            "name": "served",
            "seed": 1,
            "environments": [{"id": ASCII}],
            "data": {"dataset": dataset, "batch": 8, "epochs": 2},
            "algorithm": {"kind": "kto", "model": {"context": 128}, "sampling": {"max_tokens": 6}},
            "train": {"updates": 8, "checkpoint_every": 2},
            "evaluation": {"episodes": 8, "levels": [1]},
        }
    ).override(places(folder))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_run_trains_on_nothing_twice_and_equals_one_that_never_stopped(
    tmp_path: Path, ray_cluster: None
) -> None:
    dataset = frozen_production(tmp_path, "assistant")
    settings = experiment(tmp_path, "assistant")
    (tmp_path / "e.yaml").write_text(json.dumps(settings.plain))
    for _ in range(3):
        kill_after_an_update(tmp_path, "killed", str(tmp_path / "e.yaml"))
    again, run = resumed(settings, "killed")
    assert train(again, run=run).updates == train(settings, run="whole").updates == 8
    assert_same(settings, "killed", "whole")
    with open_store(url(tmp_path)) as db:
        versions = POLICIES.latest(db, run="killed")
        assert [version.number for version in versions] == [8, 6, 4, 2, 0]
        assert versions[-1].parent == "served/0"
        assert {version.data["dataset"] for version in versions} == {dataset}
