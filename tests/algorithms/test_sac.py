"""SAC: learns what it is asked for, remembers exactly, repeats itself bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loomrl.algorithms.control.learner import Adam, ControlWork
from loomrl.algorithms.control.off_policy import multiplies_bfloat16
from loomrl.algorithms.control.rollout import Rollout
from loomrl.config.control import SAC
from loomrl.errors import ArtifactError, ConfigError
from loomrl.telemetry.metric import Metric
from tests.algorithms.control_support import (
    MARKS,
    Weights,
    agreed,
    learn,
    ppo,
    resumed,
    sac,
    same,
    trained,
    weights,
)

pytestmark = MARKS


@pytest.mark.parametrize(
    ("kind", "bar", "prioritized"),
    [
        pytest.param("box", 0.85, {"alpha": 0.6}, marks=pytest.mark.slow),
        ("discrete", 0.8, None),
        pytest.param("box", 0.85, None, marks=pytest.mark.slow),
        pytest.param("discrete", 0.8, {"alpha": 0.6}, marks=pytest.mark.slow),
    ],
)
def test_what_is_seen_is_done(kind: str, bar: float, prioritized: Any) -> None:
    replay = {"capacity": 5000, "prioritized": prioritized}
    entropy = 0.2 if kind == "discrete" else -4.0
    learn(sac(keywords={"kind": kind}, replay=replay, target_entropy=entropy).build_algo(), bar, 10)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["box", "discrete"])
def test_what_is_seen_is_done_without_target_networks(kind: str) -> None:
    entropy = 0.2 if kind == "discrete" else -4.0
    algo = sac(keywords={"kind": kind}, target_entropy=entropy, batch_norm=True).build_algo()
    learn(algo, 0.8, 10)
    assert not any(name.startswith("targets") for name in weights(algo))


def test_batch_normalisation_learns_its_statistics_from_both_ends_of_a_step_and_judges_by_them() -> None:
    algo = trained(sac("Pendulum-v1", gamma=0.99, batch_norm=True))
    learner = algo.learner_group._learner
    critics = learner.own.critics
    rows = torch.randn(6, 4)
    before = critics.norms[0].running_mean.clone()
    learner.ring.columns["after"][:] = 100.0
    learner.improve()
    moved = critics.norms[0].running_mean - before
    assert moved[0] > 0.4  # a hundredth of the mean of about 0 and 100
    assert moved[:4] == pytest.approx(moved[4:])
    assert torch.allclose(critics(rows)[:, :3], critics(rows[:3]), atol=1e-4)  # no row depends on others


def test_how_far_actions_go_and_what_critics_explain_are_measured() -> None:
    algo = sac(keywords={"kind": "box"}, warmup=32).build_algo()
    told = algo.metrics_of(algo.train())
    assert 0 <= told[Metric.POLICY_SATURATED] < 0.5
    assert 0 < told[Metric.POLICY_DEVIATION] < 3
    assert told[Metric.VALUE_EXPLAINED_VARIANCE] <= 1
    algo = ppo(keywords={"kind": "box"}).build_algo()
    told = algo.metrics_of(algo.train())
    assert told[Metric.POLICY_DEVIATION] == 1.0  # its standard deviation begins at 1, and the bounds are 1 from 0
    assert told[Metric.POLICY_SATURATED] == pytest.approx(0.32, abs=0.1)
    algo = ppo().build_algo()
    assert not {Metric.POLICY_SATURATED, Metric.POLICY_DEVIATION} & algo.metrics_of(algo.train()).keys()


@pytest.mark.parametrize(("n_step", "noise"), [(1, "pink"), pytest.param(3, "white", marks=pytest.mark.slow)])
def test_a_resumed_run_ends_as_one_that_never_stopped(n_step: int, noise: str, tmp_path: Path) -> None:
    settings = {"n_step": n_step, "noise": noise, "normalize_observations": True}
    resumed(sac("Pendulum-v1", sample=70, gamma=0.99, **settings), tmp_path)


def test_pink_noise_reaches_the_actions_and_stays_within_their_bounds() -> None:
    algo = sac("Pendulum-v1", noise="pink", warmup=0).build_algo()
    (rollout,) = algo.env_runner.sample(num_timesteps=200)
    free_T = np.arctanh(rollout.actions[:, 0, 0])
    assert np.corrcoef(free_T[:-1], free_T[1:])[0, 1] > 0.3


def test_a_temperature_without_a_rate_stays_as_it_is() -> None:
    algo = trained(sac(initial_temperature=0.25, temperature_rate=0))
    assert weights(algo)["log_temperature"].exp() == pytest.approx(0.25)
    with pytest.raises(ConfigError, match="target_entropy=-1 has no effect with temperature_rate=0"):
        sac(target_entropy=-1.0, temperature_rate=0).validate()


@pytest.mark.parametrize(
    ("settings", "words"), [({"tau": 0.01}, "no target"), ({"network": {"layer_norm": True}}, "one")]
)
def test_settings_that_batch_normalisation_replaces_are_refused(settings: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sac(batch_norm=True, **settings).validate()


def test_a_partial_network_keeps_the_rest_of_the_algorithms_own() -> None:
    network = SAC.parse({"network": {"hidden": [64]}}, origin="a test").network
    assert (network.hidden, network.activation, network.orthogonal) == ((64,), "relu", False)


@pytest.mark.skipif(not multiplies_bfloat16(torch.device("cpu")), reason="this CPU multiplies no bfloat16")
def test_products_of_bfloat16_are_near_and_end_with_the_update() -> None:
    exact, near = (trained(sac("Pendulum-v1", sample=70, products=kind)) for kind in ("float32", "bfloat16"))
    assert not same(weights(exact), weights(near))
    for name, weight in weights(exact).items():
        assert torch.allclose(weight, weights(near)[name], atol=0.1), name
    assert torch.get_float32_matmul_precision() == "highest"


def test_products_that_a_cpu_has_no_instructions_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)
    with pytest.raises(ConfigError, match="products=bfloat16 has no effect on this CPU"):
        sac(products="bfloat16").build_algo()


def test_noise_of_choices_is_refused() -> None:
    with pytest.raises(ConfigError, match="noise=pink has no effect on Discrete"):
        sac(noise="pink").build_algo()


def test_moments_of_a_dead_unit_end_as_zero_and_numbers_outside_the_step_stay_as_they_are() -> None:
    learner = sac(keywords={"kind": "box"}).build_algo().learner_group._learner
    weights = torch.nn.Parameter(torch.ones(8))
    optimizer = Adam([weights], rate=1e-3)
    learner.step((0 * weights).sum(), optimizer, clip_norm=None)
    optimizer.state[weights]["exp_avg"].fill_(1.2e-38)  # times 0.9 it is denormal
    learner.step((0 * weights).sum(), optimizer, clip_norm=None)
    assert not optimizer.state[weights]["exp_avg"].any()
    assert (torch.full((8,), 1.2e-38) * 0.9).all()


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", [False, True])
def test_two_learners_with_a_memory_each_have_the_same_weights(batch_norm: bool) -> None:
    asked = sac(keywords={"kind": "box"}, batch_norm=batch_norm).env_runners(
        num_envs_per_env_runner=4, rollout_fragment_length=8
    )
    algo = trained(asked.learners(num_learners=2))
    agreed(algo)
    assert min(result.get() for result in algo.learner_group.foreach_learner(lambda learner: learner.ring.steps)) > 64


@pytest.mark.slow
def test_what_runners_collect_is_counted_once_and_by_weights_of_the_last_update_but_one_at_the_oldest() -> None:
    asked = sac(keywords={"kind": "discrete"}, batch=32, warmup=16)
    asked = asked.env_runners(num_env_runners=2, rollout_fragment_length=8)
    algo = asked.reporting(min_sample_timesteps_per_iteration=1).build_algo()
    net = algo.policy().net
    learner = algo.learner_group._learner
    known = [weights(algo)]
    met = []
    algo.work = lambda share: met.append(share) or ControlWork(share)
    for _ in range(12):
        algo.train()
        known.append(weights(algo))
    ages = [age(net, rollout, known[: len(known) - 12 + k]) for k, share in enumerate(met) for rollout in share]
    assert set(ages) == {0, 1}
    taken = sum(rollout.env_steps() for share in met for rollout in share)
    assert algo.env_steps == taken == learner.ring.steps


def age(net: Any, rollout: Rollout, known: list[Weights]) -> int:
    """By how many updates the weights that a rollout was taken with are not the latest that are known."""
    inputs = torch.from_numpy(rollout.inputs)
    seen = torch.from_numpy(rollout.seen[:-1])
    for updates, state in enumerate(reversed(known)):
        net.load_state_dict({name.removeprefix("net."): one for name, one in state.items() if name.startswith("net.")})
        if torch.allclose(net.decide(net.features(seen), seen), inputs, atol=1e-6):
            return updates
    raise AssertionError("by no weights that are known")


@pytest.mark.slow
def test_a_killed_runner_is_replaced_and_counts_nothing_twice(tmp_path: Path) -> None:
    asked = sac("Mortal", {"marker": str(tmp_path / "died")}).env_runners(num_env_runners=2)
    asked = asked.env_runners(rollout_fragment_length=8).fault_tolerance(delay_between_env_runner_restarts_s=0)
    algo = asked.reporting(min_sample_timesteps_per_iteration=16).build_algo()
    gained = []
    for _ in range(12):
        before = algo.env_steps
        algo.training_step()
        algo.restore_env_runners(algo.env_runner_group)
        gained.append(algo.env_steps - before)
    assert (tmp_path / "died").exists()
    assert max(gained) <= 2 * 8
    assert min(gained) < 2 * 7
    assert algo.env_steps == algo.learner_group._learner.ring.steps


@pytest.mark.slow
def test_what_runners_were_collecting_for_another_run_or_stage_is_not_learnt_from(tmp_path: Path) -> None:
    asked = sac("Countdown", {"steps": 3}).env_runners(num_env_runners=1, rollout_fragment_length=8)
    algo = asked.build_algo()
    learner = algo.learner_group._learner
    met = []
    algo.work = lambda share: met.extend(share) or ControlWork(share)
    algo.train()
    algo.save_to_path(tmp_path / "checkpoint")
    steps = algo.env_steps
    algo.train()
    before = {rollout.route for rollout in met}
    algo.restore_from_path(tmp_path / "checkpoint")
    assert algo.env_steps == learner.ring.steps == steps
    met.clear()
    algo.training_step()
    assert before.isdisjoint(rollout.route for rollout in met)
    algo.move_to({"steps": 100})
    met.clear()
    algo.training_step()
    assert min(rollout.seen.min() for rollout in met) > 3
    assert algo.env_steps > steps


@pytest.mark.parametrize(("env", "words"), [("Pictures", "Use ppo"), ("Identity", "Use ppo")])
def test_spaces_that_it_does_not_take_are_named(env: str, words: str) -> None:
    keywords = {"kind": "multi_binary"} if env == "Identity" else {}
    with pytest.raises(ConfigError, match=words):
        sac(env, keywords).build_algo()


def test_a_memory_that_fits_nowhere_is_refused_before_training() -> None:
    with pytest.raises(ConfigError, match=r"replay.capacity=.* needs .* GB"):
        sac(replay={"capacity": 10**12, "memory_gb": 1.0}).build_algo()


@pytest.mark.parametrize(
    ("network", "words"), [({"shared": True}, "set shared=false"), ({"log_std": -1.0}, "initial_temperature")]
)
def test_settings_of_a_network_that_sac_cannot_use_are_refused(network: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sac(network=network).validate()


@pytest.mark.parametrize("network", [{"layer_norm": True}, {"orthogonal": True, "hidden": []}])
def test_every_shape_of_critics_is_taught(network: Any) -> None:
    algo = sac(keywords={"kind": "box"}, network=network).build_algo()
    before = weights(algo)
    algo.train()
    after = weights(algo)
    critics = [name for name in after if name.startswith("critics.")]
    assert any("gains" in name for name in critics) == ("layer_norm" in network)
    assert not any(torch.equal(before[name], after[name]) for name in critics)


def test_a_checkpoint_of_another_memory_is_refused() -> None:
    algo = sac().build_algo()
    other = sac(replay={"capacity": 6000}).build_algo()
    with pytest.raises(ArtifactError, match=r"replay.capacity is 5000 in this checkpoint and 6000 here"):
        other.set_state(algo.get_state())


@pytest.mark.parametrize(
    ("network", "words"),
    [({"hidden": []}, r"network.hidden=\[\] needs our own"), ({"layer_norm": True}, "network.layer_norm")],
)
def test_networks_that_rllibs_own_way_does_not_know_are_refused(network: Any, words: str) -> None:
    asked = sac("Pendulum-v1", network=network).callbacks(on_episode_end=lambda **_: None)
    asked.changes.pop("replay")
    with pytest.raises(ConfigError, match=words):
        asked.build_algo()


@pytest.mark.slow
def test_what_the_fast_way_cannot_do_goes_rllibs_own_way() -> None:
    asked = sac("Pendulum-v1", gamma=0.99).callbacks(on_episode_end=lambda **_: None)
    asked.changes.pop("replay")
    algo = asked.build_algo()
    assert algo.config.fallback_reasons == ("callback on_episode_end",)
    assert algo.train()["env_runners"]["num_env_steps_sampled_lifetime"] >= 200
    with pytest.raises(ConfigError, match=r"policy\(\) .* because of callback on_episode_end"):
        algo.policy()
