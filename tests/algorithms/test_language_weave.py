"""WEAVE over tokens: exact mixtures, several critics, and one policy that does as its preference says."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from loomrl.algorithms.language import lesson
from loomrl.algorithms.language.batch import LanguageWork
from loomrl.algorithms.language.corpus import Flaws
from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.steering import PreferenceSource, evenly
from loomrl.algorithms.language.weave import compare_preferred
from loomrl.config import LanguageWeave, WarmStart
from loomrl.errors import ConfigError
from loomrl.experiments.policies import exported
from loomrl.gym.preference import add_preference, parse_weights, percents, preference_of
from loomrl.hub import EVERYTHING
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.experts import ExpertHead, attach, refuse_experts
from loomrl.inference.model import open_model, open_tokenizer, save_model
from loomrl.store import open_store
from loomrl.telemetry.metric import Metric
from loomrl.types import Message, Reward
from tests.algorithms.language_support import (
    ENVIRONMENTS,
    RAY,
    build,
    experiment,
    finish,
    learn_alike,
    same,
    train,
    weights,
)
from tests.hub.hub_samples import attempt as sample_attempt
from tests.inference.sample_models import tiny_tokenizer


def with_ray(test: Any) -> Any:
    for mark in RAY:
        test = mark(test)
    return test


PULLED = f"{ENVIRONMENTS}PulledEnvironment"
TWO = {
    "environments": [{"id": PULLED}],
    "algorithm.objectives": ["y", "b"],  # in no alphabetical order, which records have
    "algorithm.optimizer.minibatches": 2,
}
ALL = TWO | {"algorithm.experts": 3, "algorithm.expert_rank": 4, "algorithm.critics": 2}


# -- what a preference is ------------------------------------------------------------------------------------------


def test_preferences_are_drawn_evenly_from_all_of_them() -> None:
    rng = random.Random(0)
    drawn = [tuple(evenly(2, 10, rng)) for _ in range(5500)]
    assert len(set(drawn)) == 11
    counts = [drawn.count(weights) for weights in set(drawn)]
    assert min(counts) > 400
    assert max(counts) < 600
    assert len({tuple(evenly(3, 4, rng)) for _ in range(500)}) == 15


def test_a_preference_is_a_line_of_the_system_message() -> None:
    system = Message("system", "Be kind.")
    user = Message("user", "Hello")
    preference = {"right": 0.7, "short": 0.3}
    assert add_preference((user,), preference) == (Message("system", "Preference: right 70, short 30."), user)
    assert add_preference((system, user), preference)[0].content == "Be kind.\nPreference: right 70, short 30."
    assert add_preference((user,), None) == (user,)
    assert sum(percents({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}).values()) == 100
    assert add_preference((user,), {"short": 0.3, "right": 0.7}) == add_preference((user,), preference)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"right": 0.5}, "sum to 0.5"),
        ({"right": 0.5, "shrt": 0.5}, "no objective is named shrt"),
        ({"right": -1, "short": 2}, "not negative"),
        ({"right": "a"}, "finite numbers"),
        ([0.5, 0.5], "an object is needed"),
        ({}, "an object is needed"),
    ],
)
def test_what_is_no_preference_is_refused(given: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_weights(given, ["right", "short"])
    assert parse_weights({"right": 1}, ["right", "short"]) == {"right": 1, "short": 0.0}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"algorithm.precision": 0.2}, "precision has no effect without objectives"),
        ({"algorithm.expert_rank": 4}, "expert_rank=4 has no effect"),
        ({"algorithm.experts": 2, "algorithm.model.lora": {}}, "experts would not be trained"),
        ({"algorithm.experts": 2, "engine": {"kind": "vllm"}}, "cannot sample from a mixture"),
        ({"algorithm.objectives": ["a", "b"], "algorithm.reward_clip": [0, 1]}, "reward_clip"),
        ({"algorithm.objectives": ["a", "b"], "algorithm.dynamic_sampling": True}, "dynamic_sampling"),
        ({"algorithm.objectives": ["a", "b"], "algorithm.kl": {"coefficient": 1, "place": "reward"}}, "kl.place"),
        ({"algorithm.objectives": ["a", "b"], "algorithm.shown": {"a": ["{answer}"]}}, "of each of a, b"),
        ({"algorithm.shown": {"a": ["{answer}"]}}, "shown has no effect"),
        ({"algorithm.baseline": "group"}, "baseline has no effect without objectives"),
        ({"algorithm.objectives": ["a", "b"], "algorithm.baseline": "group"}, "Set critics=1 and normalize_adv"),
        ({"algorithm.warm_start.wrong": {"a": 0.1}}, "wrong is of a, objectives are none"),
        (
            {"algorithm.objectives": ["a", "b"], "algorithm.warm_start.wrong": {"a": 0.1}},
            "wrong is of a, objectives are a, b",
        ),
        ({"evaluation.preferences": 3}, "evaluation.preferences=3 has no effect"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        experiment(tmp_path, "weave", **changes)


def test_a_constraint_weighs_more_while_it_is_not_met() -> None:
    settings = LanguageWeave(
        objectives=("a", "b"),
        preference={"kind": "constrained", "least": {"b": 0.5}, "episodes": 2},  # type: ignore[arg-type]
    )
    steered = PreferenceSource(settings)
    lacking, well = (
        replace(sample_attempt("a"), reward=Reward(1.0, {"a": 1.0 - other, "b": other})) for other in (0.0, 1.0)
    )
    steered.observe([lacking] * 2)
    while_lacking = steered.multipliers
    for _ in range(3):
        steered.observe([well] * 2)
    assert while_lacking[0] == 0
    assert while_lacking[1] > 0
    assert steered.multipliers == (0, 0)


def test_what_pleases_an_objective_is_shown_as_often_as_it_counts() -> None:
    ways = {"right": ["{work} {answer}"], "short": ["{answer}"]}
    flaws = Flaws(WarmStart(), random.Random(0), ways)
    said = (Message("user", "?"), Message("assistant", "work <answer>7</answer>"))
    told = [
        flaws.apply_format(said, family="f", preference={"right": 0.7, "short": 0.3})[-1].content for _ in range(1000)
    ]
    assert set(told) == {"work 7", "7"}
    assert 650 < told.count("work 7") < 750
    assert flaws.apply_format(said, family="f")[-1].content == "work\n<answer>7</answer>"


def test_actions_of_a_conversation_are_shown_by_preference_too() -> None:
    flaws = Flaws(WarmStart(), random.Random(0), {"right": ["{action}"], "kind": ["Please.\n{command}"]})
    said = (Message("user", "?"), Message("assistant", "ASK"), Message("user", "!"), Message("assistant", "GO"))
    told = [flaws.apply_format(said, family="f", preference={"right": 0.7, "kind": 0.3}) for _ in range(1000)]
    kinds = [tuple(message.content for message in one[1::2]) for one in told]
    assert set(kinds) == {("ASK", "GO"), ("Please.\nASK", "Please.\nGO")}
    assert 250 < kinds.count(("Please.\nASK", "Please.\nGO")) < 350


# -- the mixture ---------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer()), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    attach(model, 3, 2)
    with torch.no_grad():
        for parameter in model.get_output_embeddings().parameters():
            parameter += torch.randn_like(parameter) * 0.3
    return model


def test_the_mixture_is_the_weighted_sum_of_its_experts(mixed: LlamaForCausalLM) -> None:
    head: Any = mixed.get_output_embeddings()
    hidden = torch.randn(5, 16)
    each = torch.stack(
        [
            torch.softmax((hidden + hidden @ head.narrow_KRH[k].T @ head.widen_KHR[k].T) @ head.weight.T, -1)
            for k in range(3)
        ]
    )
    weights_KB1 = torch.softmax(hidden @ head.gate.weight.T + head.gate.bias, -1).T[:, :, None]
    torch.testing.assert_close(head(hidden).exp(), (weights_KB1 * each).sum(0))
    assert isinstance(head, ExpertHead)
    assert head.weight is mixed.get_input_embeddings().weight


def test_a_folder_keeps_the_experts_and_vllm_refuses_them(mixed: LlamaForCausalLM, tmp_path: Path) -> None:
    save_model(mixed, tiny_tokenizer(), tmp_path)
    ids = torch.arange(6)[None]
    torch.testing.assert_close(open_model(tmp_path)(ids).logits, mixed(ids).logits)
    with pytest.raises(ConfigError, match="3 experts, whose mixture vLLM cannot sample"):
        refuse_experts(tmp_path, "vLLM")


# -- learning ------------------------------------------------------------------------------------------------------


@with_ray
def test_one_expert_one_critic_and_one_objective_are_ppo_to_the_last_bit(tmp_path: Path) -> None:
    theirs, ours = (finish(build(tmp_path / kind, kind), 2) for kind in ("ppo", "weave"))
    assert same(theirs, ours)


@with_ray
def test_what_is_sampled_from_a_mixture_is_what_is_learnt_and_goes_on_to_the_last_bit(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole", "weave", **ALL, **{"train.updates": 3})
    history = train(whole)
    assert max(line[Metric.POLICY_DRIFT] for line in history) < 1e-4
    assert max(line[Metric.PUBLISH_DISTANCE] for line in history) < 1e-4
    assert history[-1][Metric.VALUE_DISAGREEMENT] > 0
    assert np.isfinite(history[-1][Metric.VALUE_CALIBRATION])
    assert sum(history[-1][Metric.EXPERT_USE.of(str(k))] for k in range(3)) == pytest.approx(1)
    finish(build(tmp_path / "parts", "weave", **ALL, **{"train.updates": 3}), 2)
    ours = finish(build(tmp_path / "parts", "weave", **ALL, **{"train.updates": 3}))
    assert {"lm_head.narrow_KRH", "lm_head.gate.weight"} <= ours.keys()
    assert same(weights(whole), ours)


@pytest.mark.slow
@with_ray
def test_two_learners_learn_what_one_does(tmp_path: Path) -> None:
    one = build(tmp_path / "one", "weave", **ALL)
    learn_alike(one, build(tmp_path / "two", "weave", **ALL, **{"algorithm.learners.count": 2}))


def test_what_is_wrong_in_demonstrations_goes_by_preference_too() -> None:
    flaws = Flaws(WarmStart(wrong={"right": 0.1, "kind": 0.6}), random.Random(0))
    assert flaws.wrong_share({"right": 0.8, "kind": 0.2}) == pytest.approx(0.2)
    assert flaws.wrong_share() == pytest.approx(0.35)
    said = (Message("user", "?"), Message("assistant", "<answer>7</answer>"))
    told = [
        flaws.apply_format(said, family="f", preference={"right": 0.0, "kind": 1.0})[-1].content for _ in range(1000)
    ]
    assert 350 < told.count("<answer>7</answer>") < 450


GROUP = {"algorithm.baseline": "group", "algorithm.normalize_advantages": False}


def test_in_a_group_the_preference_decides_who_was_better_and_the_scale_of_rewards_nothing() -> None:
    paid_NH = np.array([[1.0, 0.0], [0.0, 3.0], [9.0, 0.0], [0.0, 9.0]])

    def made(a: float, scale: float = 1.0) -> list[list[float]]:
        one = Sample(ids_T=np.arange(3), mask_T=np.array([False, True, True]), preference=(a, 1 - a))
        groups = ("g", "g", "h", "h")
        work = LanguageWork("reinforce", (one,) * 4, (), rate=1.0, groups=groups, multipliers=(0.0, 0.0))
        paid = [np.array([[0.0, 0.0], [0.0, 0.0], scale * one_H]) for one_H in paid_NH]
        return [np.round(one_T, 9).tolist() for one_T in compare_preferred(work, paid, ((1, 0), (0, 1)))]

    assert made(0.8) == made(0.8, scale=100) == [[0, 1, 1], [0, -1, -1], [0, 1, 1], [0, -1, -1]]
    assert made(0.6) == [[0, -1, -1], [0, 1, 1], [0, 1, 1], [0, -1, -1]]


@with_ray
@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_dealt_anew", "baseline"),
    [(False, {}), (False, GROUP), (True, {})],
    ids=["steered", "steered by groups", "preferences dealt anew"],
)
def test_a_policy_does_as_its_preference_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_dealt_anew: bool, baseline: dict[str, Any]
) -> None:
    if is_dealt_anew:
        monkeypatch.setattr(lesson, "samples_of", dealt_anew(lesson.samples_of))
    changes: dict[str, Any] = {"train.updates": 80, "rollout.groups_per_update": 16, "algorithm.optimizer.epochs": 2}
    changes |= baseline
    algo = build(tmp_path, "weave", **TWO, **changes, **{"algorithm.precision": 0.5, "train.checkpoint_every": 80})
    train(algo)
    attempts = [t for _, t in algo.source.hub.replay(selection=EVERYTHING)][-512:]
    algo.stop()
    for group in {attempt.group for attempt in attempts}:
        assert len({str(preference_of(t.task)) for t in attempts if t.group == group}) == 1
    wants = np.array([(preference_of(t.task) or {})["y"] for t in attempts])
    got = np.array([t.reward.parts["y"] for t in attempts])
    gap = got[wants > 0.6].mean() - got[wants < 0.4].mean()
    assert (abs(gap) < 0.2) if is_dealt_anew else (gap > 0.75), gap


def dealt_anew(samples_of: Callable[..., Any]) -> Callable[..., Any]:
    """`samples_of`, with the preferences of an update's samples dealt out anew among them."""
    rng = random.Random(0)

    def dealt(groups: Iterable[Any], **terms: Any) -> Any:
        samples, names = samples_of(groups, **terms)
        preferences = [sample.preference for sample in samples]
        rng.shuffle(preferences)
        for sample, preference in zip(samples, preferences, strict=True):
            object.__setattr__(sample, "preference", preference)
        return samples, names

    return dealt


@with_ray
def test_an_objective_that_nobody_pays_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no reward has a part named beauty; known: b, y"):
        build(tmp_path, "weave", **(TWO | {"algorithm.objectives": ["y", "beauty"]}))


@with_ray
def test_a_policy_leaves_with_a_preference_for_good(tmp_path: Path) -> None:
    finish(build(tmp_path, "weave", **TWO, **{"train.updates": 1}))
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        exported("r", db, tmp_path / "free")
        exported("r", db, tmp_path / "fixed", preference={"y": 0.7, "b": 0.3})
        with pytest.raises(ConfigError, match="no objective is named beauty"):
            exported("r", db, tmp_path / "wrong", preference={"beauty": 1.0})
    free, fixed = (ChatTemplate(open_tokenizer(tmp_path / name)) for name in ("free", "fixed"))
    assert (free.objectives, fixed.objectives) == (("y", "b"), ())
    for said in ((Message("user", "Hi"),), (Message("system", "Be kind."), Message("user", "Hi"))):
        told = free.opening(add_preference(said, {"y": 0.7, "b": 0.3})).ids
        np.testing.assert_array_equal(fixed.opening(said).ids, told)
    ids = torch.arange(5)[None]
    model = open_model(tmp_path / "fixed")
    transformers_own = AutoModelForCausalLM.from_pretrained(tmp_path / "fixed")
    torch.testing.assert_close(model(ids).logits, transformers_own(ids).logits)
