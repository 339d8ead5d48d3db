"""A peer of WEAVE from morl-baselines: trained and evaluated once, in a process of its own. A script.

`PEER SEED STEPS` → `{"hv": …, "steps": …, "cpu_s": …}` on the last line: the hypervolume of mean discounted returns,
greedily, in fresh episodes of the bare environment; steps and CPU seconds of training, including the peer's own
evaluations, which are not among its steps.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import NormalizeObservation
from numpy.typing import NDArray
from torch import Tensor

from loomrl.control.preference import lattice
from loomrl.errors import ConfigError
from loomrl.evaluation.front import hypervolume
from loomrl.experiments.bench.control.contender import cpu_s

EPISODES = 20
"""Episodes for evaluating each policy on a peer's front."""
PREFERENCES = 100
"""Maximum number of preferences for evaluating a steerable policy."""
FRESH = 1_000_003
"""First seed of evaluation episodes, beyond all training seeds."""

NOTHING = 1e-6
"""Discount below which an episode's rewards are ignored."""

Act = Callable[[NDArray[Any]], NDArray[Any]]
"""Actions for observations, one per episode."""


@dataclass(frozen=True, slots=True)
class Task:
    """An environment, with the definition of its returns."""

    environment: str
    gamma: float
    reference: tuple[float, ...]

    def opened(self) -> gymnasium.Env[Any, Any]:
        """As mo-gymnasium registers it, without Gymnasium's checker, which rejects vector rewards."""
        return gymnasium.make(f"mo_gymnasium:{self.environment}", disable_env_checker=True)

    def mean_return(self, act: Act) -> NDArray[np.float64]:
        """Mean discounted return, over the same fresh episodes for every policy, side by side."""
        playing = {FRESH + episode: self.opened() for episode in range(EPISODES)}
        shown = {seed: env.reset(seed=seed)[0] for seed, env in playing.items()}
        earned, share = np.zeros(len(self.reference)), 1.0
        while shown and share > NOTHING:
            actions = act(np.stack(list(shown.values())))
            for seed, action in zip(list(shown), actions, strict=True):
                shown[seed], reward, terminated, truncated, _ = playing[seed].step(action)
                earned += share * np.asarray(reward, np.float64)
                if terminated or truncated:
                    del shown[seed]
            share *= self.gamma
        return earned / EPISODES


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained peer."""

    steps: int
    cpu_s: float
    policies: list[Act]


HOPPER = Task("mo-hopper-2obj-v5", 0.995, (-100.0, -100.0))
MINECART = Task("minecart-v0", 0.98, (-1.0, -1.0, -200.0))


def pgmorl(seed: int, steps: int) -> Trained:
    """Six policies, as in morl-baselines; four fifths of all rounds are warm-up, as in its example (80 of 100)."""
    from morl_baselines.multi_policy.pgmorl.pgmorl import PGMORL
    from morl_baselines.single_policy.ser.mo_ppo import make_env

    environments, policies, length = 4, 6, 2048
    rounds = max(2, round(steps / (environments * policies * length)))
    evolution = max(1, rounds // 5)
    task, before = HOPPER, cpu_s()
    algorithm = PGMORL(
        task.environment,
        origin=np.zeros(2),
        num_envs=environments,
        pop_size=policies,
        steps_per_iteration=length,
        warmup_iterations=rounds - evolution,
        evolutionary_iterations=evolution,
        gamma=task.gamma,
        seed=seed,
        log=False,
        device="cpu",
    )
    algorithm.train(
        rounds * environments * policies * length,
        eval_env=make_env(task.environment, seed + FRESH, 1, "", task.gamma)(),
        ref_point=np.array(task.reference),
    )
    spent = cpu_s() - before
    seen = _normalizer(algorithm.env.envs[0])
    return Trained(
        algorithm.global_step, spent, [_greedy(each.networks, seen) for each in algorithm.archive.individuals]
    )


def gpi_ls(seed: int, steps: int) -> Trained:
    """With the settings of its example for minecart, and one update after each step.

    Replay is prioritised, which is its default: without it 1.3.0 fails with an error.
    """
    from morl_baselines.multi_policy.gpi_pd.gpi_pd import GPILS

    task, before = MINECART, cpu_s()
    algorithm = GPILS(
        task.opened(),
        gamma=task.gamma,
        initial_epsilon=1.0,
        final_epsilon=0.05,
        epsilon_decay_steps=50_000,
        target_net_update_freq=200,
        buffer_size=200_000,
        gradient_updates=1,
        log=False,
        seed=seed,
        device="cpu",
    )
    algorithm.train(
        steps,
        eval_env=task.opened(),
        ref_point=np.array(task.reference),
        timesteps_per_iter=min(10_000, steps),
        checkpoints=False,
    )
    spent = cpu_s() - before
    return Trained(algorithm.global_step, spent, list(_steered(algorithm, len(task.reference))))


def _steered(algorithm: Any, objectives: int) -> Iterator[Act]:
    """The best action of all its policies for one preference, as in its `eval` for one observation."""
    network, support_MH = algorithm.q_nets[0].eval(), torch.stack(algorithm.weight_support)
    for preference in lattice(objectives, PREFERENCES):
        yield partial(_best, network, support_MH, torch.as_tensor(preference))


@torch.no_grad()
def _best(network: Any, support_MH: Tensor, preference_H: Tensor, seen_E: NDArray[Any]) -> NDArray[Any]:
    shown = torch.as_tensor(seen_E, dtype=torch.float32).repeat_interleave(len(support_MH), 0)
    values = network(shown, support_MH.repeat(len(seen_E), 1)) @ preference_H
    best: NDArray[Any] = values.view(len(seen_E), len(support_MH), -1).amax(1).argmax(1).numpy()
    return best


def _greedy(networks: Any, seen: Act) -> Act:
    """The mean action, clipped to its bounds, for normalised observations as in training."""

    @torch.no_grad()
    def act(observation: NDArray[Any]) -> NDArray[Any]:
        mean: NDArray[Any] = networks.actor_mean(torch.as_tensor(seen(observation), dtype=torch.float32)).numpy()
        return mean.clip(-1, 1)

    return act


def _normalizer(env: Any) -> Act:
    """The environment's observation normalisation, frozen."""
    while not isinstance(env, NormalizeObservation):
        env = env.env
    known, epsilon = env.obs_rms, env.epsilon
    return lambda observation: np.clip((observation - known.mean) / np.sqrt(known.var + epsilon), -10, 10)


PEERS = {"pgmorl": (HOPPER, pgmorl), "gpi_ls": (MINECART, gpi_ls)}


def main(peer: str, seed: int, steps: int) -> dict[str, float]:
    """The figures of one run."""
    if peer not in PEERS:
        raise ConfigError(f"peer={peer!r}: unknown. Known: {', '.join(PEERS)}.")
    try:
        import morl_baselines  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"morl_baselines cannot be imported ({error}). docs/benchmarks.md says how to install it."
        ) from error
    torch.set_num_threads(1)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    task, train = PEERS[peer]
    trained = train(seed, steps)
    front_PH = [task.mean_return(act) for act in trained.policies]
    return {"hv": hypervolume(front_PH, task.reference), "steps": trained.steps, "cpu_s": trained.cpu_s}


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        told = main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps(told))
