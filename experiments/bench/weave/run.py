"""One run of `loomrl bench weave`, in a process of its own. A script with a JSON result on its last line.

front NAME SEED PLAN    the shipped experiment: hypervolume of its best version, and its training cost
solve KIND SEED STEPS   CartPole by `ppo` or `weave` until it is solved
cost ROUNDS STEPS       CPU time per step of `weave` over that of `ppo`, alternating
"""

import json
import math
import sys
from collections.abc import Callable
from typing import Any

from loomrl.experiments.bench.control.contender import BATCH, EPOCHS, FRAGMENT, RATE, cpu_s
from loomrl.experiments.bench.control.solve import SOLVED
from loomrl.own_ray import ensure_ray

ENVIRONMENTS = 8
UNSEEN = 1_000_003
"""Seed of the final evaluation, not used for choosing the best version."""


def front(name: str, seed: str, plan: str) -> dict[str, Any]:
    """`control/NAME` to its end. The best of its evaluated versions is evaluated again as `plan` says."""
    from loomrl.experiments.algorithms import open_algorithm
    from loomrl.experiments.evaluate_control import judged

    told = json.loads(plan)
    experiment = _experiment(f"control/{name}", seed, told["words"])
    algo, every = open_algorithm(experiment).build_algo(), experiment.evaluation.every or experiment.train.steps
    best, best_hv, best_steps, spent = None, -math.inf, 0, 0.0
    while algo.env_steps < experiment.train.steps:
        before, begun = algo.env_steps, cpu_s()
        algo.train()
        spent += cpu_s() - begun
        if algo.env_steps // every > before // every or algo.env_steps >= experiment.train.steps:
            policy = algo.policy()
            found = judged(policy, experiment, name=name).as_dict()["hypervolume"]
            if found > best_hv:
                best, best_hv, best_steps = policy, found, algo.env_steps
    assert best is not None
    asked = {f"evaluation.{key}": told[key] for key in ("episodes", "preferences")} | {"evaluation.seed": UNSEEN}
    report = judged(best, experiment.override(asked), name=name).as_dict()
    return {
        "hv": report["hypervolume"],
        "points": len(report["front"]),
        "front": report["front"],
        "steps": algo.env_steps,
        "best_steps": best_steps,
        "cpu_s": spent,
    }


def solve(kind: str, seed: str, steps: str) -> dict[str, Any]:
    """`control/cartpole` with this algorithm; `steps` is null if they were not enough."""
    from loomrl.experiments.algorithms import open_algorithm

    shipped = _experiment("control/cartpole", seed, [])
    same = shipped.algorithm.model_dump(exclude_unset=True) | {"kind": kind}  # another kind alone drops the settings
    algo = open_algorithm(shipped.override({"algorithm": same})).build_algo()
    begun = cpu_s()
    while algo.env_steps < int(steps) and (algo.window.mean_of(100) or 0.0) < SOLVED:
        algo.train()
    mean = algo.window.mean_of(100) or 0.0
    return {"steps": algo.env_steps if mean >= SOLVED else None, "return": mean, "cpu_s": cpu_s() - begun}


def cost(rounds: str, steps: str) -> dict[str, Any]:
    """Both take the same steps of CartPole, round after round, with equal settings except for the threads."""
    from loomrl.algorithms.ppo import PPOConfig
    from loomrl.algorithms.weave.algorithm import WeaveConfig

    both = [_cartpole(config) for config in (PPOConfig(), WeaveConfig().training(experts=4, critics=4))]
    each = [[_spent(algo, int(steps)) for algo in both] for _ in range(1 + int(rounds))][1:]
    return {"ratios": [weave / ppo for ppo, weave in each], "cpu_s": each, "steps": int(steps)}


def _cartpole(config: Any) -> Any:
    config = config.environment("CartPole-v1").training(learning_rate=RATE, minibatch_size=BATCH, epochs=EPOCHS)
    runners = {"num_envs_per_env_runner": ENVIRONMENTS, "rollout_fragment_length": FRAGMENT}
    return config.env_runners(**runners).build_algo()


def _spent(algo: Any, steps: int) -> float:
    """CPU seconds per step, over at least `steps` more."""
    first, begun = algo.env_steps, cpu_s()
    while algo.env_steps < first + steps:
        algo.train()
    taken: int = algo.env_steps - first
    return (cpu_s() - begun) / taken


def _experiment(name: str, seed: str, words: list[str]) -> Any:
    from loomrl.experiments.shipped import resolve

    return resolve([name, f"seed={seed}", *words])


TASKS: dict[str, Callable[..., dict[str, Any]]] = {"front": front, "solve": solve, "cost": cost}


def main() -> None:
    """Run one part; see the module's docstring."""
    import torch

    torch.set_num_threads(1)
    ensure_ray(num_cpus=3)
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))


if __name__ == "__main__":
    main()
