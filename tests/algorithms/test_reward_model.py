"""A reward model that is trained from pairs, resumed, compared with people, and used as a judge."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from loomrl.config import DataSelection, Experiment
from loomrl.config.rewards import ClassifierPart
from loomrl.errors import ConfigError, DataError
from loomrl.experiments import train_reward
from loomrl.experiments.policies import find_policy
from loomrl.experiments.train import TrainResult, train
from loomrl.feedback.calibrate import compare
from loomrl.feedback.dataset import freeze
from loomrl.feedback.rating import PeopleRatings, Rated
from loomrl.gym.classifier import ClassifierJudge
from loomrl.inference.model import save_model
from loomrl.store import open_store
from loomrl.store.feedback import append_feedback
from loomrl.store.policies import lineage
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics
from loomrl.types import Feedback, Message, Task, Trajectory, Turn
from tests.feedback.served_support import as_foreign, reward, store, url
from tests.feedback.support import said, served
from tests.gym.classifier_support import llama
from tests.inference.sample_models import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
PLEASE = ("please", "no")


def answer(id: str, asked: str, text: str) -> Trajectory:
    turn = Turn((Message("user", asked),), text)
    return as_foreign(served(id, turns=(turn,), task=Task("agent", "1", "talk", 1, 0)))


def polite(rng: random.Random, *, kind: bool) -> str:
    words = [rng.choice("abcdef") for _ in range(rng.randint(2, 5))]
    words.insert(rng.randrange(len(words) + 1), PLEASE[0] if kind else PLEASE[1])
    return " ".join(words)


def choices(folder: Path, count: int, *, equal: bool = False, flip: bool = False) -> str:
    """A data set of choices for what is polite, of a correction, and of answers with rewards."""
    rng = random.Random(0)
    attempts: list[Trajectory] = []
    given: list[Feedback] = []
    for number in range(count):
        kind, rude = polite(rng, kind=True), polite(rng, kind=False)
        better, worse = (rude, kind) if flip else (kind, kind if equal else rude)
        attempts += [answer(f"b{number}", f"Say {number}", better), answer(f"w{number}", f"Say {number}", worse)]
        given += [
            said(f"b-{number}", f"b{number}", "choice", 1.0, data={"over": f"w{number}"}),
            said(f"w-{number}", f"w{number}", "choice", 0.0, data={"under": f"b{number}"}),
        ]
    attempts += [answer("c", "Correct", "no"), answer("r1", "Reward", "please a"), answer("r2", "Reward", "no a")]
    store(folder, "agent-talk", attempts)
    with open_store(url(folder)) as db:
        if not equal:
            given.append(said("c-1", "c", "correction", 0.2, data={"text": "please"}))
            reward(db, {"r1": 1.0, "r2": 0.0})
        append_feedback(db, given)
        return freeze(db, url(folder), DataSelection(agents=("talk",), holdout=0.3), suite=None, now=1.0).id


def base(folder: Path) -> str:
    save_model(tiny_model(), tiny_tokenizer(), folder)
    return str(folder)


def settings(folder: Path, dataset: str, **changes: Any) -> Experiment:
    tree = {
        "name": "manners",
        "algorithm": {"kind": "reward", "model": {"path": base(folder / "base"), "context": 64}, "learning_rate": 3e-3},
        "data": {"dataset": dataset, "batch": 8, "epochs": 3},
        "train": {"folder": str(folder / "runs"), "updates": 1000, "checkpoint_every": 2},
        "evaluation": {"every": 4},
        "store_url": url(folder),
        "artifact_url": str(folder / "artifacts"),
    }
    return Experiment.parse(tree).override(changes)


def folder_of(result: TrainResult) -> Path:
    return Path(result.page).parent / "reward_model"


def rated(count: int = 40) -> list[Rated]:
    rng = random.Random(9)
    found = []
    for number in range(count):
        text = polite(rng, kind=bool(number % 2))
        talk = (Message("user", f"Say {number}"), Message("assistant", text))
        found.append(Rated(id=f"t{number}", conversation=talk, rating=float(number % 2)))
    return found


@pytest.mark.slow
def test_a_model_that_learns_from_pairs_tells_others_apart_agrees_with_people_and_judges(tmp_path: Path) -> None:
    given = settings(tmp_path, choices(tmp_path, 60))
    result = train(given, run="r")
    assert result.before == {"pairs": 0.5}, "a new head has no opinion"
    assert result.after["pairs"] is not None
    assert result.after["pairs"] >= 0.9
    assert result.stopped.startswith("every pair was learnt from")
    rows = read_metrics(metrics_file(given.train, "r"))
    assert rows[-1][Metric.EVALUATED_PAIRS] == result.after["pairs"]
    assert rows[-1][Metric.POLICY_LOSS] < rows[0][Metric.POLICY_LOSS]
    assert "held-out pairs" in Path(result.page).read_text()
    model = AutoModelForSequenceClassification.from_pretrained(folder_of(result))
    assert (type(model).__name__, model.config.num_labels) == ("LlamaForSequenceClassification", 1)
    with open_store(given.store_url) as db:
        assert lineage(db, result.policy)["made_from"]["data"]["dataset"] == given.data.dataset  # type: ignore[union-attr]
    part = ClassifierPart(path=str(folder_of(result)))
    with (
        pytest.raises(ConfigError, match="makes a classifier, which is not a policy"),
        open_store(given.store_url) as db,
    ):
        find_policy(result.policy, db)
    report, made = compare(part, PeopleRatings(rated=rated()), by="feedback", at=1.0)
    assert report.rank.mean is not None
    assert report.rank.low > 0.5
    assert made is not None
    judge = ClassifierJudge(part)
    kind, rude = (answer("x", "Say x", text) for text in ("a please b", "a no b"))
    assert judge(kind) > judge(rude) + 0.2


@pytest.mark.slow
def test_from_pairs_the_other_way_round_it_learns_the_opposite(tmp_path: Path) -> None:
    """The control: what it knows comes from the pairs, not from the model it begins with."""
    result = train(settings(tmp_path, choices(tmp_path, 60, flip=True), **{"evaluation.every": None}), run="r")
    judge = ClassifierJudge(ClassifierPart(path=str(folder_of(result))))
    kind, rude = (answer("x", "Say x", text) for text in ("a please b", "a no b"))
    assert judge(kind) < judge(rude) - 0.2


def test_a_resumed_run_equals_one_that_never_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(tmp_path, choices(tmp_path, 14), **{"data.epochs": 2, "algorithm.together": 3})
    whole = train(given, run="whole")
    steps = train_reward.RewardTraining.train

    def killed(training: train_reward.RewardTraining) -> None:
        if training.done == 2:
            raise KeyboardInterrupt
        steps(training)

    with monkeypatch.context() as patch:
        patch.setattr(train_reward.RewardTraining, "train", killed)
        with pytest.raises(KeyboardInterrupt):
            train(given, run="parts")
    parts = train(given, run="parts")
    assert (parts.updates, parts.after) == (whole.updates, whole.after)
    left, right = (torch_weights(folder_of(one)) for one in (whole, parts))
    assert all(torch.equal(left[name], right[name]) for name in left)
    rows = [read_metrics(metrics_file(given.train, run)) for run in ("whole", "parts")]
    assert [row["step"] for row in rows[1]] == [row["step"] for row in rows[0]]


def torch_weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForSequenceClassification.from_pretrained(folder).state_dict())


@pytest.mark.slow
def test_pieces_of_an_update_add_up_to_it(tmp_path: Path) -> None:
    dataset = choices(tmp_path, 12)
    found = [
        torch_weights(
            folder_of(train(settings(tmp_path, dataset, **{"data.epochs": 1, "algorithm.together": n}), run=f"r{n}"))
        )
        for n in (1, 8)
    ]
    assert all(torch.allclose(found[0][name], found[1][name], atol=1e-4) for name in found[0])


def test_it_goes_on_with_a_classifier_of_one_logit(tmp_path: Path) -> None:
    dataset = choices(tmp_path, 12)
    begun = str(llama(tmp_path / "begun"))
    result = train(settings(tmp_path, dataset, **{"algorithm.model.path": begun, "data.epochs": 1}), run="r")
    assert result.before != {"pairs": 0.5}
    labelled = str(llama(tmp_path / "labelled", labels=("bad", "good")))
    with pytest.raises(ConfigError, match="a classifier of 2 labels"):
        train(settings(tmp_path, dataset, **{"algorithm.model.path": labelled}), run="s")


def test_pairs_that_say_nothing_are_left_out_and_without_any_nothing_is_trained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    equal, short = tmp_path / "equal", tmp_path / "short"
    equal.mkdir()
    short.mkdir()
    with pytest.raises(DataError, match=r"no pair in the training part \(\d+ equal\)"):
        train(settings(equal, choices(equal, 9, equal=True)), run="r")
    with pytest.raises(DataError, match="longer than the context"):
        train(settings(short, choices(short, 9), **{"algorithm.model.context": 4}), run="r")
    none = tmp_path / "none"
    none.mkdir()
    store(none, "agent-talk", [answer(f"a{n}", f"Say {n}", "x") for n in range(9)])
    with open_store(url(none)) as db:
        dataset = freeze(db, url(none), DataSelection(agents=("talk",), holdout=0.3), suite=None, now=1.0).id
    with pytest.raises(DataError, match=r"no pair in the training part .*People's choices and corrections make pairs"):
        train(settings(none, dataset), run="r")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"environments": [{"id": "Math"}]}, "environments have no effect with algorithm.kind=reward"),
        ({"data": None}, "algorithm.kind=reward learns from what was served"),
        ({"parent": "r/1"}, "parent=r/1 has no effect"),
        ({"rollout.runners": 1}, "rollout has no effect"),
        ({"algorithm.model.path": None}, "name the folder to begin with"),
        ({"algorithm.model.lora": {}}, "model.lora has no effect with kind=reward"),
        ({"algorithm.model.dtype": "bfloat16"}, "model.dtype has no effect"),
        ({"rewards.parts": [{"kind": "novelty"}]}, "rewards.parts has no effect"),
    ],
)
def test_settings_that_would_change_nothing_are_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        settings(tmp_path, "d", **changes)


def test_a_folder_that_is_no_whole_language_model_is_refused(tmp_path: Path) -> None:
    dataset = choices(tmp_path, 12)
    torn = tmp_path / "torn"
    base(torn)
    (torn / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ConfigError, match="no sequence classifier can begin with it"):
        train(settings(tmp_path, dataset, **{"algorithm.model.path": str(torn)}), run="r")
    with pytest.raises(ConfigError, match=r"algorithm\.model\.context=999: .* reads 256 tokens"):
        train(settings(tmp_path, dataset, **{"algorithm.model.context": 999}), run="s")
