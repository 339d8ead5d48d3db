"""DQN: every form of its values learns what they are, and what it explores, remembers and exports is exact."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot, smooth_l1_loss

from loomrl.algorithms.control.dqn import DQNConfig, quantile_loss
from loomrl.control.policy import ControlPolicy
from loomrl.errors import ArtifactError, ConfigError
from loomrl.telemetry.metric import Metric
from tests.algorithms.control_envs import ACTIONS
from tests.algorithms.control_support import MARKS, agreed, dqn, learn, resumed, trained

pytestmark = MARKS
FORMS: dict[str, dict[str, Any]] = {
    "double": {},
    "single": {"double": False},
    "dueling": {"dueling": True},
    "n_step": {"n_step": 2},
    "prioritized": {"replay": {"capacity": 5000, "prioritized": {"alpha": 0.6}}},
    "quantiles": {"quantiles": 4},
    "all": {"dueling": True, "quantiles": 4, "n_step": 2, "replay": {"capacity": 5000, "prioritized": {}}},
}


def expected(algo: Any, seen: Any) -> Any:
    """What the network expects of each choice."""
    net = algo.learner_group._learner.own.net
    with torch.no_grad():
        return net.values(net.features(torch.as_tensor(seen, dtype=torch.float32))).mean(-1)


@pytest.mark.parametrize(
    "form", ["double", "all", *(pytest.param(one, marks=pytest.mark.slow) for one in list(FORMS)[1:-1])]
)
def test_the_values_are_the_discounted_returns(form: str) -> None:
    algo = trained(dqn("Countdown", gamma=0.5, sample=400, **FORMS[form]))
    returns = torch.tensor([[1.75], [1.5], [1.0]]).expand(3, 2)
    torch.testing.assert_close(expected(algo, [[3.0], [2.0], [1.0]]), returns, atol=0.2, rtol=0)


def test_what_is_seen_is_done_and_measured() -> None:
    algo = dqn(exploration={"steps": 300, "end": 0.0}).build_algo()
    learn(algo, 0.8, 10)
    told = algo.metrics_of(algo.train())
    assert told[Metric.POLICY_ENTROPY] == told[Metric.POLICY_RANDOM] == 0.0
    assert told[Metric.VALUE_EXPLAINED_VARIANCE] > 0.5
    (greedy,) = algo.env_runner.sample(num_timesteps=64, explore=False)
    assert greedy.rewards[greedy.valid].mean() == 1.0


def masked(**settings: Any) -> Any:
    return dqn("Picky", sample=64, warmup=0, **settings)


@pytest.mark.parametrize("form", ["double", "single"])
def test_the_best_choice_after_a_step_is_an_allowed_one_and_by_the_right_network(form: str) -> None:
    learner = trained(masked(gamma=0.5, **FORMS[form])).learner_group._learner
    own = learner.own
    with torch.no_grad():
        own.targets.policy[-1].bias += torch.tensor([0.0, 3.0, 6.0])  # they disagree
    _, batch = learner.draw()
    allowed_BA = one_hot(torch.arange(64) % 3, 3) + one_hot(torch.arange(64) % 2, 3) > 0
    batch["after"][:, :3] = allowed_BA
    online_BA, target_BA = (net.values(net.features(batch["after"]))[..., 0] for net in (own.net, own.targets))
    judging_BA = online_BA if form == "double" else target_BA
    ahead_B = target_BA[torch.arange(64), judging_BA.masked_fill(~allowed_BA, -1e9).argmax(1)]
    torch.testing.assert_close(learner._wanted(batch)[:, 0], batch["rewards"] + batch["ahead"] * ahead_B)
    assert (batch["ahead"] > 0).any()


def test_random_and_greedy_choices_obey_the_mask() -> None:
    learn(masked(exploration={"steps": 300}).build_algo(), 0.8, 25)  # a choice that is not allowed is an error there


def test_quantiles_are_those_of_what_is_wanted_and_one_is_learnt_as_by_huber() -> None:
    said_B1, wanted_B1 = torch.randn(2, 9, 1, generator=torch.Generator().manual_seed(1)) * 2
    huber = smooth_l1_loss(said_B1[:, 0], wanted_B1[:, 0], reduction="none")
    torch.testing.assert_close(quantile_loss(said_B1, wanted_B1), huber)
    wanted = torch.linspace(-100, 100, 2001)[None]
    for said, slope in (([-50.0, 50.0], 0.0), ([-40.0, 50.0], 0.1)):
        said_12 = torch.tensor([said], requires_grad=True)
        quantile_loss(said_12, wanted).sum().backward()
        assert float(said_12.grad[0, 0]) == pytest.approx(slope, abs=0.01)


def test_the_target_network_follows_when_it_is_its_turn_and_by_its_share() -> None:
    learner = dqn(target_every=6, tau=0.5).build_algo().learner_group._learner  # half an update per step
    learner.ring.append({name: column[:8] for name, column in learner.ring.columns.items()})
    own = learner.own
    weights = [*zip(own.targets.parameters(), own.net.parameters(), strict=True)]
    with torch.no_grad():
        for target, _ in weights:
            target += 1.0
    before = [target.clone() for target, _ in weights]
    for update in range(1, 4):
        learner.improve()
        has_followed = [not torch.equal(*pair) for pair in zip(before, own.targets.parameters(), strict=True)]
        assert all(has_followed) if update == 3 else not any(has_followed)
    for old, (target, online) in zip(before, weights, strict=True):
        torch.testing.assert_close(target, (old + online) / 2)


def test_the_share_of_random_choices_falls_with_the_steps_and_is_what_is_sampled() -> None:
    algo = dqn(exploration={"begin": 0.9, "end": 0.3, "steps": 1000}).build_algo()
    net = algo.learner_group._learner.own.net
    assert float(net.epsilon) == pytest.approx(0.9)
    algo.train()
    share = 0.9 - 0.6 * algo.env_steps / 1000
    assert float(net.epsilon) == pytest.approx(share)
    (made,) = algo.env_runner.sample(num_timesteps=4 * 400)
    chances = np.exp(made.inputs)
    np.testing.assert_allclose(
        np.sort(chances, -1), np.broadcast_to([share / 3, share / 3, 1 - share * 2 / 3], chances.shape), rtol=1e-5
    )
    assert (made.actions != made.inputs.argmax(-1)).mean() == pytest.approx(share * 2 / 3, abs=0.05)
    with torch.no_grad():
        net.epsilon.fill_(1.0)
    (made,) = algo.env_runner.sample(num_timesteps=64, explore=False)
    np.testing.assert_array_equal(
        made.actions, expected(algo, made.seen[:-1].reshape(-1, 3)).argmax(-1).reshape(made.actions.shape)
    )


def test_a_resumed_run_ends_as_one_that_never_stopped(tmp_path: Path) -> None:
    asked = dqn(
        "Countdown",
        sample=70,
        gamma=0.9,
        updates_per_step=0.1,
        normalize_observations=True,
        target_every=70,
        **FORMS["all"],
    )
    whole, again = resumed(asked, tmp_path)
    assert whole.learner_group._learner.updates == again.learner_group._learner.updates


def test_a_checkpoint_of_values_in_another_form_is_refused() -> None:
    algo = dqn(dueling=True, quantiles=3).build_algo()  # as many numbers as 4 quantiles without
    with pytest.raises(ArtifactError, match="dueling is True there and False here; quantiles is 3 there and 4 here"):
        dqn(quantiles=4).build_algo().set_state(algo.get_state())


def test_an_exported_policy_is_greedy_explores_as_the_training_did_and_knows_its_values(tmp_path: Path) -> None:
    algo = trained(masked(exploration={"end": 0.5, "steps": 10}, dueling=True, quantiles=3))
    policy = algo.policy()
    policy.save(tmp_path)
    loaded = ControlPolicy.load(tmp_path)
    shown = {"asked": np.full(800, 2), "action_mask": np.tile(np.array([1, 1, 0], np.int8), (800, 1))}
    one = {"asked": 2, "action_mask": shown["action_mask"][0]}
    greedy = loaded.act(one)
    assert greedy == policy.act(one) == loaded.act_batch(shown)[0]
    drawn, logprobs = loaded.sample_batch(shown, generator=torch.Generator().manual_seed(2))
    assert set(drawn) == {1, 2}
    assert (drawn == greedy).mean() == pytest.approx(0.75, abs=0.05)
    np.testing.assert_allclose(np.exp(logprobs), np.where(drawn == greedy, 0.75, 0.25), rtol=1e-5)
    assert loaded.has_value
    (best,) = expected(algo, [[1, 1, 0, 0, 1, 0]])[:, :2].amax(-1).tolist()
    assert loaded.value(one) == pytest.approx(best, abs=1e-5)
    onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'loomrl[onnx]'")
    from onnx.reference import ReferenceEvaluator

    loaded.to_onnx(tmp_path / "policy.onnx")
    inputs, actions = ReferenceEvaluator(onnx.load(tmp_path / "policy.onnx")).run(
        None, {"seen": np.array([[1, 1, 0, 0, 1, 0]], np.float32)}
    )
    assert actions[0] + 1 == greedy
    np.testing.assert_allclose(np.exp(inputs[0, :2]).max(), 0.75, rtol=1e-5)


def test_pictures_are_taken() -> None:
    learner = trained(dqn("Pictures", sample=1, updates_per_step=0.02, batch=8)).learner_group._learner
    assert learner.updates > 0
    assert learner.ring.columns["seen"].dtype == np.uint8


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(ACTIONS.keys() - {"discrete"}))
def test_other_actions_than_one_choice_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"dqn decides one choice among several, not .*Use ppo or sac"):
        dqn(keywords={"kind": kind}).build_algo()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"network": {"shared": True}}, "network.shared=True has no effect: dqn has one tower"),
        ({"network": {"log_std": -1.0}}, "network.log_std=-1.0 has no effect"),
        ({"network": {"memory": {"kind": "gru"}}}, "network.memory=gru: dqn learns from single steps"),
        ({"exploration": {"end": 0.5, "begin": 0.1}}, "end=0.5 is above begin=0.1"),
        ({"exploration": {"end": 2.0}}, "exploration.end"),
        ({"quantiles": 0}, "quantiles"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        dqn(**settings).validate()


# -- other processes ------------------------------------------------------------------------------------------------


def remote(**settings: Any) -> DQNConfig:
    return dqn(sample=600, **settings).env_runners(rollout_fragment_length=8)


@pytest.mark.slow
def test_remote_runners_explore_by_the_share_of_the_learner() -> None:
    asked = remote(exploration={"steps": 400, "end": 0.0}).env_runners(num_env_runners=2)
    algo = asked.build_algo()
    learn(algo, 0.9, 10)
    shares = algo.env_runner_group.foreach_env_runner(lambda one: float(one.module.net.epsilon), local_env_runner=False)
    assert shares == [0.0, 0.0]


@pytest.mark.slow
def test_two_learners_have_the_same_weights_and_target_networks() -> None:
    algo = trained(remote(**FORMS["all"]).learners(num_learners=2), 2)
    weights = agreed(algo)
    assert any(name.startswith("targets.") for name in weights)
    counts = algo.learner_group.foreach_learner(lambda learner: (learner.updates, learner.played))
    (count,) = {one.get() for one in counts}
    assert count[0] > 0
    assert count[1] == algo.env_steps


@pytest.mark.slow
def test_what_the_fast_way_cannot_do_goes_rllibs_own_way() -> None:
    asked = DQNConfig().environment("CartPole-v1").training(double=False, dueling=True, warmup=64)
    asked = asked.callbacks(on_episode_end=lambda **_: None).reporting(min_sample_timesteps_per_iteration=200)
    algo = asked.build_algo()
    assert algo.config.fallback_reasons == ("callback on_episode_end",)
    assert algo.train()["env_runners"]["num_env_steps_sampled_lifetime"] >= 200
    assert (algo.get_module().uses_dueling, algo.get_module().uses_double_q) == (True, False)
