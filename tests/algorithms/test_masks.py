"""Action masks in training: nothing forbidden is ever done or learnt from, with and without a memory.

`Picky` raises an error where a forbidden action reaches it, and its episodes end with a mask that allows nothing.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from loomrl.algorithms.control.bc import BCConfig
from loomrl.algorithms.control.iql import IQLConfig
from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.algorithms.control.rollout import Sequences
from loomrl.algorithms.control.sac import SACConfig
from loomrl.config import ControlExperiment
from loomrl.control.logged import read_minari
from loomrl.control.policy import ControlPolicy
from loomrl.errors import ConfigError, EpisodeError
from loomrl.experiments.record import Recording, record
from loomrl.experiments.shipped import resolve
from tests.algorithms.control_envs import Picky
from tests.algorithms.control_support import MARKS, learn, ppo, resumed, sac, trained, weave
from tests.algorithms.test_memory import KINDS as MEMORIES
from tests.algorithms.test_ppo_settings import Theirs
from tests.control.logged_support import minari_folder

__all__ = ["minari_folder"]

pytestmark = MARKS
KINDS = ("discrete", "multi_discrete")


BOTH = [(KINDS[at % 2], memory) for at, memory in enumerate((None, *MEMORIES))] + [("multi_discrete", None)]
"""Every kind of action, with and without a memory, and every memory once."""
WAYS = [{"epsilon": 0.2}, {"temperature": 2.0}]


def picky(kind: str = "discrete", memory: str | None = None, keywords: Any = None, **settings: Any) -> Any:
    network = {"memory": None if memory is None else MEMORIES[memory]}
    return ppo("Picky", {"kind": kind} | (keywords or {}), network=network, **settings)


def picky_weave(kind: str = "discrete", memory: str | None = None, **settings: Any) -> Any:
    network = {"memory": None if memory is None else MEMORIES[memory]}
    asked: dict[str, Any] = {"experts": 2, "critics": 2, "exploration": WAYS, "network": network}
    return weave("Picky", {"kind": kind}, **(asked | settings))


def picky_sac(**settings: Any) -> SACConfig:
    network = {"hidden": [32], "activation": "relu", "orthogonal": False}
    rates = {"gamma": 0.5, "actor_rate": 2e-3, "critic_rate": 2e-3}
    return sac("Picky", sample=60, network=network, warmup=60, **(rates | settings))


def custom(name: str) -> dict[str, str]:
    return {"kind": "custom", "entry_point": f"tests.algorithms.control_envs:{name}"}


def experiment(environment: dict[str, Any], **settings: Any) -> ControlExperiment:
    return ControlExperiment.parse({"name": "picky", "environment": environment, **settings}, origin="a test")


@pytest.mark.parametrize(("kind", "memory"), [("discrete", None), ("multi_discrete", "lstm")])
def test_ppo_learns_and_does_nothing_that_is_forbidden(kind: str, memory: str | None) -> None:
    learn(picky(kind, memory, entropy_coefficient=0.01).build_algo(), 0.9, 40)


@pytest.mark.parametrize(("kind", "memory"), [("discrete", "lstm"), ("multi_discrete", None)])
def test_every_expert_of_weave_obeys(kind: str, memory: str | None) -> None:
    learn(picky_weave(kind, memory).build_algo(), 0.75, 30)  # some of what experts do is random


@pytest.mark.parametrize("memory", [None, "gru"])
def test_a_preference_may_stand_around_the_mask(memory: str | None) -> None:
    algo = trained(picky_weave(memory=memory, objectives=["right", "first"]), 2)
    (rollout,) = algo.env_runner.sample()
    mask = algo.env_runner._mask
    assert not mask.forbidden(rollout.seen[:-1][rollout.valid], rollout.actions[rollout.valid]).any()


@pytest.mark.slow
def test_sac_learns_masked_from_its_first_random_step() -> None:
    learn(picky_sac(target_entropy=0.1).build_algo(), 0.85, 60)


def test_sac_wants_no_more_entropy_than_the_mask_leaves() -> None:
    seen = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0, 0.0, 0.0], [0.0] * 6])
    for asked, wanted in ((picky_sac(), [0.0, 0.7 * np.log(2), 0.0]), (picky_sac(target_entropy=0.3), [0.3] * 3)):
        found = asked.build_algo().learner_group._learner._wanted_entropy(seen)
        np.testing.assert_allclose(np.broadcast_to(found, 3), wanted, rtol=1e-6)


def test_the_critics_of_sac_expect_what_is_allowed_after_a_step() -> None:
    algo = trained(picky_sac(), 3)
    learner = algo.learner_group._learner
    own = learner.own
    drawn = learner.ring.draw(32)
    batch = {name: torch.from_numpy(column) for name, column in drawn.columns.items()}
    only = torch.arange(32) % 3
    batch["after"][:, :3] = torch.nn.functional.one_hot(only, 3)
    with torch.no_grad():
        ahead_B = own.targets(own.net.features(batch["after"])).amin(0).gather(1, only[:, None])[:, 0]
        said_2B = own.critics(own.net.features(batch["seen"])).gather(2, batch["actions"].expand(2, -1)[..., None])
    wanted_B = batch["rewards"] + batch["ahead"] * ahead_B
    batch |= {"now": own.net.features(batch["seen"]), "then": own.net.features(batch["after"])}
    batch["weights"] = torch.from_numpy(drawn.weights_B)
    found_2B = learner._critics_step(batch, torch.tensor(0.5))
    torch.testing.assert_close(found_2B, said_2B[..., 0] - wanted_B, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kind", "memory"), BOTH)
def test_the_learner_computes_the_log_probabilities_of_the_runner(kind: str, memory: str | None) -> None:
    algo = trained(picky(kind, memory, epochs=2), 2)
    learner = algo.learner_group._learner
    rollouts = [*algo.env_runner.sample(), *algo.env_runner.sample()]
    table = {
        name: torch.from_numpy(np.concatenate([getattr(r, name)[: len(r.valid)][r.valid] for r in rollouts]))
        for name in ("actions", "inputs", "seen")
    }
    mask = algo.env_runner._mask
    assert not mask.forbidden(table["seen"].numpy(), table["actions"].numpy()).any()
    batches = [table] if memory is None else Sequences(rollouts, "cpu").dealt(table, torch.arange(16).split(6))
    with torch.no_grad():
        for batch in batches:
            inputs, _ = learner.forward(batch)
            said, again = (learner.distribution.logp(x, batch["actions"]) for x in (batch["inputs"], inputs))
            torch.testing.assert_close(again, said, atol=1e-5, rtol=0)
            assert (said > -20).all()
            assert float(said.std()) > 0.01
            torch.testing.assert_close(inputs < -1e29, batch["inputs"] < -1e29)
            assert (batch["inputs"] < -1e29).any()
    assert not all(rollout.valid.all() for rollout in rollouts)


@pytest.mark.parametrize(
    "asked", [lambda: picky(memory="lstm"), picky_weave, lambda: picky("multi_discrete"), picky_sac]
)
def test_a_resumed_run_ends_as_one_that_never_stopped(asked: Any, tmp_path: Path) -> None:
    resumed(asked(), tmp_path)


def test_agents_that_share_a_policy_have_a_mask_each() -> None:
    network = {"memory": MEMORIES["lstm"]}
    algorithm = {"kind": "ppo", "learning_rate": 3e-3, "gamma": 0.0, "minibatch_size": 64, "network": network}
    rollout = {"environments": 4, "steps": 16}
    asked = experiment(custom("PickyTeam"), algorithm=algorithm, rollout=rollout)
    algo = PPOConfig.of(asked).build_algo()
    learn(algo, 0.9, 25)
    (made,) = algo.env_runner.sample()
    masks = made.seen[:-1, :, :3][made.valid.all(1)]
    assert (masks[:, 0] != masks[:, 1]).any()


def test_a_policy_leaves_with_its_mask(tmp_path: Path) -> None:
    algo = trained(picky("multi_discrete", "gru", normalize_observations=True))
    algo.policy().save(tmp_path)
    loaded = ControlPolicy.load(tmp_path)
    (rollout,) = algo.env_runner.sample(num_timesteps=8 * 32, explore=False)
    state = loaded.state(8)
    assert state is not None
    state.numbers_BS = rollout.state[0].copy()
    for seen, valid, actions in zip(rollout.seen[:-1], rollout.valid, rollout.actions, strict=True):
        asked = np.stack([seen[:, 5:7].argmax(1), seen[:, 7:].argmax(1)], 1)
        shown = {"action_mask": seen[:, :5].astype(np.int8), "asked": asked}
        np.testing.assert_array_equal(loaded.act_batch(shown, state=state)[valid], actions[valid])
        state.forget(~valid)


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("stuck", [3, 8])
def test_a_mask_that_allows_nothing_ends_the_run_by_name(stuck: int, memory: str | None) -> None:
    algo = picky(memory=memory, keywords={"stuck": stuck}).build_algo()
    with pytest.raises(EpisodeError, match=rf"Picky: the action_mask before step {stuck} of place 0 allows nothing"):
        algo.train()


def test_it_is_seen_before_training_where_an_episode_begins_with_it() -> None:
    with pytest.raises(EpisodeError, match=r"Picky.*the action_mask before step 1 of place 0 allows nothing"):
        picky(keywords={"stuck": 1}).build_algo()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            lambda: picky().callbacks(on_episode_end=lambda **_: None),
            "has an action_mask in its observations, and RLlib's own modules, used for callback on_episode_end,",
        ),
        (
            lambda: ppo("Picky").rl_module(rl_module_spec=RLModuleSpec(module_class=Theirs)),
            "and a module of your own, Theirs, would not obey it",
        ),
        (lambda: picky_sac().callbacks(on_episode_end=lambda **_: None), "RLlib's own modules, used for callback"),
    ],
    ids=["rllib", "module", "sac"],
)
def test_what_would_not_obey_is_refused_by_name(asked: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asked().build_algo()


# -- logs -----------------------------------------------------------------------------------------------------------


def test_recorded_episodes_are_masked_and_learnt_from(minari_folder: Path, tmp_path: Path) -> None:
    asked = experiment(custom("Picky"), store_url=f"sqlite:///{tmp_path}/loom.db")
    told = record(asked, Recording(id="picky/log-v0", policies=("random",), steps=400))
    assert told["with_logprobs"]
    made = Picky()
    for one in read_minari("picky/log-v0", made.observation_space, made.action_space):
        assert one.logprobs_T is not None
        np.testing.assert_allclose(np.exp(-one.logprobs_T), one.seen[:-1, :3].sum(1), rtol=1e-5)
    for config in (BCConfig(), IQLConfig()):
        asked = config.environment("Picky").logged(minari="picky/log-v0").debugging(seed=3)
        asked.updates_per_iteration = 20
        (rollout,) = trained(asked).env_runner.sample(num_timesteps=200)  # the environment raises at what is forbidden
        assert rollout.valid.sum() > 150


def test_what_was_recorded_with_the_mask_of_an_info_is_read_with_it(minari_folder: Path, tmp_path: Path) -> None:
    taxi = experiment({"id": "Taxi-v3", "info_mask": True}, store_url=f"sqlite:///{tmp_path}/loom.db")
    assert record(taxi, Recording(id="taxi/log-v0", policies=("random",), steps=60))["steps"] == 60
    algo = BCConfig.of(taxi).logged(minari="taxi/log-v0").build_algo()
    assert algo.learner_group._learner.data.steps == 60


# -- shipped --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_keys_are_found_with_mask_and_memory_and_never_without_a_memory() -> None:
    shipped = resolve(["control/keys", "seed=1"])
    assert isinstance(shipped, ControlExperiment)
    best = []
    for experiment in (shipped, shipped.override({"algorithm.network.memory": None})):
        algo = PPOConfig.of(experiment).build_algo()
        found = 0.0
        while algo.env_steps < experiment.train.steps and found < 0.98:
            algo.train()
            found = max(found, algo.window.success_of(100) or 0.0)
        best.append(found)
        algo.stop()
    assert best[0] >= 0.98
    assert best[1] < 0.5
