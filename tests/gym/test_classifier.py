"""A sequence classifier as a part of the reward: its scores, what it cannot read, and folders that are refused."""

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from loomrl.config import Experiment, RewardPipeline
from loomrl.config.rewards import ClassifierPart, RewardConfig
from loomrl.errors import ConfigError
from loomrl.experiments.preflight import check_parts
from loomrl.feedback.reward.inspection import Inspection
from loomrl.feedback.reward.pipeline import Pipeline
from loomrl.gym.classifier import ClassifierJudge, open_classifier
from loomrl.gym.judge import conversation
from loomrl.gym.rewards import open_shaping
from loomrl.inference.model import save_model
from loomrl.types import End, Reward
from tests.feedback.support import served
from tests.gym.classifier_support import POSITIONS, bert, counting, llama
from tests.gym.test_rank import group
from tests.inference.sample_models import tiny_model, tiny_tokenizer

TEXTS = ("a", "Quite another answer.", "", "something in between", "<|end|>")


@pytest.fixture(autouse=True)
def _forget() -> None:
    open_classifier.cache_clear()


def alone(folder: Path, text: str, *, template: bool) -> torch.Tensor:
    """The logits of one attempt by itself, as its author would compute them."""
    tokenizer = tiny_tokenizer()
    said = [{"role": "user", "content": "Write."}, {"role": "assistant", "content": text}]
    whole = tokenizer.apply_chat_template(said, tokenize=False) if template else text
    ids = tokenizer(whole, add_special_tokens=not template)["input_ids"]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_score_is_the_classifiers_own_whatever_is_in_the_batch(tmp_path: Path, batch: int) -> None:
    """One text is the token of padding, with which every conversation ends as well."""
    folder = llama(tmp_path / "m")
    logits = [alone(folder, text, template=True)[0].item() for text in TEXTS]
    assert max(logits) - min(logits) > 0.01
    for scale, of in (("probability", lambda x: 1 / (1 + math.exp(-x))), ("logit", float)):
        part = ClassifierPart(path=str(folder), scale=scale, batch=batch, weight=2.0)
        shaped = list(open_shaping(RewardConfig(parts=(part,))).shape(group(*TEXTS)))
        found = [one.reward.parts["classifier"] for one in shaped]
        assert found == pytest.approx([2 * of(logit) for logit in logits], abs=1e-4)
        assert shaped[0].extra["grades"]["classifier"] == {"judge": "m", "score": found[0] / 2, "reasons": {}}


def test_a_named_label_is_read_and_without_a_chat_template_the_answers_alone(tmp_path: Path) -> None:
    folder = bert(tmp_path / "m")
    texts = [text for text in TEXTS if text]
    for label, place in (("rude", 0), ("polite", 1)):
        part = ClassifierPart(path=str(folder), label=label, batch=3)
        shaped = open_shaping(RewardConfig(parts=(part,))).shape(group(*texts))
        expected = [alone(folder, text, template=False).softmax(0)[place].item() for text in texts]
        assert [one.reward.parts["classifier"] for one in shaped] == pytest.approx(expected, abs=1e-4)


def test_nothing_is_cut_an_attempt_that_is_too_long_has_no_score(tmp_path: Path) -> None:
    part = ClassifierPart(path=str(llama(tmp_path / "m")))
    long, short = open_shaping(RewardConfig(parts=(part,))).shape(group("ab " * POSITIONS, "a"))
    assert (long.end, long.reward, long.failure.boundary) == (End.FAILED, Reward(), "judge")  # type: ignore[union-attr]
    assert f"reads 1 to {POSITIONS} tokens, and the attempt has" in long.failure.message  # type: ignore[union-attr]
    assert short.end is End.TERMINATED


def test_a_score_that_is_no_number_is_none(tmp_path: Path) -> None:
    folder = llama(tmp_path / "m")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.score.weight.fill_(math.nan)
    model.save_pretrained(folder)
    (shaped, _) = open_shaping(RewardConfig(parts=(ClassifierPart(path=str(folder)),))).shape(group("a", "b"))
    assert "a finite number is needed" in shaped.failure.message  # type: ignore[union-attr]


def test_a_run_is_not_resumed_with_other_weights(tmp_path: Path) -> None:
    config = RewardConfig(parts=(ClassifierPart(path=str(llama(tmp_path / "m"))),))
    state = json.loads(json.dumps(open_shaping(config).state_dict()))
    open_shaping(config).load_state_dict(state)
    llama(tmp_path / "m", seed=1)
    open_classifier.cache_clear()
    with pytest.raises(ConfigError, match="'classifier' is judged by another"):
        open_shaping(config).load_state_dict(state)


def test_it_scores_what_was_served_too(tmp_path: Path) -> None:
    part = ClassifierPart(path=str(counting(tmp_path / "m", "g")), name="kind")
    settings = RewardPipeline(parts=(part,))
    inspection = Inspection(settings)
    few, many = served("a", "no"), served("b", "gggg")
    assert inspection.takes_time(few)
    found = inspection.inspect([few, many])
    low, high = (Pipeline(settings).case(one, found=found[one.id]).scores["kind"] for one in (few, many))
    assert low.value is not None
    assert high.value is not None
    assert low.value < high.value - 0.1
    assert high.reasoning == "m scores it so"
    scored = ClassifierJudge(part).score_all([conversation(many)])
    assert scored == [high.value]
    with pytest.raises(ConfigError, match="scale=logit of 'kind' is not within 0"):
        RewardPipeline(parts=(part.override({"scale": "logit"}),))


def test_folders_and_labels_that_would_score_at_random_are_refused(tmp_path: Path) -> None:
    causal = tmp_path / "causal"
    save_model(tiny_model(), tiny_tokenizer(), causal)
    headless = tmp_path / "headless"
    save_model(tiny_model(), tiny_tokenizer(), headless)
    config = json.loads((headless / "config.json").read_text())
    (headless / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForSequenceClassification"]}))
    strange = llama(tmp_path / "strange")
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<{number}>" for number in range(9)])
    tokenizer.save_pretrained(strange)
    torn = llama(tmp_path / "torn")
    (torn / "model.safetensors").write_bytes((torn / "model.safetensors").read_bytes()[:999])
    plain, labelled = llama(tmp_path / "plain"), llama(tmp_path / "labelled", labels=("bad", "good"))
    for folder, label, said in (
        (tmp_path / "nowhere", None, "no config.json"),
        (causal, None, r"is LlamaForCausalLM and no sequence classifier"),
        (headless, None, r"weights, such as score\.weight, are missing and would be random"),
        (strange, None, r"its tokenizer has 291 ids and the model 282"),
        (torn, None, "the classifier cannot be read"),
        (plain, "good", "has one logit. Leave label out"),
        (labelled, None, r"label=None is unknown. Known: bad, good"),
        (labelled, "god", r"Did you mean 'good'"),
    ):
        with pytest.raises(ConfigError, match=said):
            open_shaping(RewardConfig(parts=(ClassifierPart(path=str(folder), label=label),)))
    settings = Experiment.parse({"name": "x", "rewards": {"parts": [{"kind": "classifier", "path": "nowhere"}]}})
    with pytest.raises(ConfigError, match=r"rewards\.parts\.0\.path='nowhere': there is no such folder"):
        check_parts(settings)
    with pytest.raises(ConfigError, match=r"scale=logit with calibration='c\.json'"):
        ClassifierPart(path="m", scale="logit", calibration="c.json")
