"""One row of the zoo, trained once in a process of its own: `WHO ROW SEED`, a script.

Prints the return of 100 greedy episodes, CPU seconds, steps, memory and the learning curve as JSON on the last line.
CPU seconds are all from the start of the process to the end of training.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.wrappers import DtypeObservation, FlattenObservation

from loomrl.config import ControlExperiment
from loomrl.control.environment import open_environment
from loomrl.control.play import Scripted
from loomrl.control.space import acts, flatten, seen, translator
from loomrl.experiments.bench.control.contender import cpu_s, peak_mb
from loomrl.experiments.bench.control.zoo_peers import PEERS
from loomrl.own_ray import ensure_ray

EPISODES = 100
POINTS = 40
"""Points of a learning curve."""

Point = tuple[int, float]
"""Steps, and the mean return of the latest 100 training episodes."""


class Curve:
    """A learning curve with few points."""

    def __init__(self, steps: int) -> None:
        self.points: list[Point] = []
        self._every = steps / POINTS

    def add(self, steps: int, mean: float | None) -> None:
        """A point, if the last one is long ago."""
        if mean is not None and steps >= (self.points[-1][0] if self.points else 0) + self._every:
            self.points.append((steps, round(mean, 2)))


def ours(experiment: ControlExperiment) -> tuple[Any, int, Curve]:
    """Train `experiment`; returns its last policy."""
    from loomrl.experiments.algorithms import open_algorithm

    algo = open_algorithm(experiment).build_algo()
    curve = Curve(experiment.train.steps)
    target = experiment.train.stop.target
    while algo.env_steps < experiment.train.steps:
        algo.train()
        mean = algo.window.mean_of(100)
        curve.add(algo.env_steps, mean)
        if target is not None and mean is not None and mean >= target:
            break
    return algo.policy(), algo.env_steps, curve


def sb3(experiment: ControlExperiment, peer: dict[str, Any]) -> tuple[Any, int, Curve]:
    """Train Stable-Baselines3 with its zoo's settings in the experiment's environment."""
    model, normalize = _open_sb3(experiment, peer)
    steps = int(peer.get("steps", experiment.train.steps))
    curve = Curve(steps)

    def look(known: dict[str, Any], _: dict[str, Any]) -> bool:
        latest = known["self"].ep_info_buffer
        curve.add(known["self"].num_timesteps, np.mean([each["r"] for each in latest]).item() if latest else None)
        return True

    model.learn(steps, callback=look)
    policy = Scripted(lambda observations: model.predict(normalize(observations), deterministic=True)[0])
    return policy, model.num_timesteps, curve


def time_sb3(experiment: ControlExperiment, peer: dict[str, Any]) -> float:
    """CPU seconds that Stable-Baselines3's whole training would take, by the rate of its first steps."""
    model, _ = _open_sb3(experiment, peer)
    opened = cpu_s()
    model.learn(peer["timed"])
    return opened + (cpu_s() - opened) * float(peer["steps"] / model.num_timesteps)


def rllib(experiment: ControlExperiment) -> tuple[Any, int, Curve]:
    """Train RLlib's PPO with its defaults in eight of the experiment's environments."""
    import torch
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune import register_env

    ensure_ray(num_cpus=1)
    opened = partial(open_environment, experiment.environment, experiment.environment.settings)
    register_env("zoo", lambda _: DtypeObservation(FlattenObservation(opened()), np.float32))
    config: Any = PPOConfig().environment("zoo").env_runners(num_env_runners=0, num_envs_per_env_runner=8)
    algo = config.debugging(seed=experiment.seed).build_algo()
    curve = Curve(experiment.train.steps)
    taken = 0
    while taken < experiment.train.steps:
        found = algo.train()["env_runners"]
        taken = int(found["num_env_steps_sampled_lifetime"])
        curve.add(taken, found.get("episode_return_mean"))
    module = algo.get_module()
    one = opened()
    numbers = flatten(one.observation_space)
    to_action = translator(acts(one.action_space), squashed=True)  # RLlib's real actions are from -1 to 1

    @torch.no_grad()
    def act(observations: Any) -> Any:
        inputs = module.forward_inference({"obs": torch.as_tensor(numbers(observations))})["action_dist_inputs"]
        is_choice = isinstance(one.action_space, Discrete)
        return to_action((inputs.argmax(-1) if is_choice else inputs.chunk(2, -1)[0]).numpy())

    return Scripted(act), taken, curve


def _open_sb3(experiment: ControlExperiment, peer: dict[str, Any]) -> tuple[Any, Callable[[Any], Any]]:
    """The model, and what its policy does to observations."""
    import stable_baselines3
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    def make() -> Any:
        made = open_environment(experiment.environment, experiment.environment.settings)
        if peer.get("normalize"):  # its rollout buffer would cast normalised observations to the space's integers
            made = DtypeObservation(made, np.float32)
        return Monitor(made)

    environments: Any = DummyVecEnv([make] * peer.get("environments", 1))
    settings = {name: _schedule(value) for name, value in peer.get("settings", {}).items()}
    if peer.get("normalize"):
        environments = VecNormalize(environments, gamma=settings.get("gamma", 0.99))
    kind = getattr(stable_baselines3, peer["kind"].upper())
    policy = "CnnPolicy" if seen(environments.observation_space).kind == "pixels" else "MlpPolicy"
    model = kind(policy, environments, seed=experiment.seed, device="cpu", policy_kwargs=_network(peer), **settings)
    return model, environments.normalize_obs if peer.get("normalize") else lambda observations: observations


def _schedule(value: Any) -> Any:
    """`linear 0.1` as a function of what remains of the training."""
    if isinstance(value, str) and value.startswith("linear "):
        first = float(value.removeprefix("linear "))
        return lambda remaining: remaining * first
    return value


def _network(peer: dict[str, Any]) -> dict[str, Any]:
    import torch

    network = dict(peer.get("network", {}))
    if "activation_fn" in network:
        network["activation_fn"] = {"relu": torch.nn.ReLU}[network["activation_fn"]]
    return network


def run(who: str, row: str, seed: int, steps: int | None) -> dict[str, Any]:
    """Train and judge once; `steps` for a smoke test."""
    from loomrl.experiments.evaluate_control import play_evaluation
    from loomrl.experiments.shipped import resolve

    experiment: Any = resolve([f"control/{row}", f"seed={seed}", f"evaluation.episodes={EPISODES}"])
    peer = PEERS[row]
    if who == "sb3":  # which has no masks
        experiment = experiment.override({"environment.info_mask": False} | peer.get("overrides", {}))
    if who == "sb3" and "timed" in peer and steps is None:
        return {"cpu_s": round(time_sb3(experiment, peer), 1), "steps": peer["steps"], "peak_mb": round(peak_mb())}
    if steps is not None:
        experiment = experiment.override({"train.steps": steps, "evaluation.episodes": 2})
        peer = {**peer, "steps": steps}
    train: dict[str, Callable[[ControlExperiment], tuple[Any, int, Curve]]]
    train = {"ours": ours, "sb3": partial(sb3, peer=peer), "rllib": rllib}
    policy, taken, curve = train[who](experiment)
    spent = cpu_s()
    outcome = play_evaluation(policy, experiment)
    return {
        "return": round(float(np.mean(outcome.returns)), 2),
        "cpu_s": round(spent, 1),
        "steps": taken,
        "peak_mb": round(peak_mb()),
        "curve": curve.points,
    }


def main() -> None:
    """Run once; see the module's docstring."""
    import torch

    torch.set_num_threads(1)
    who, row, seed, *steps = sys.argv[1:]
    print(json.dumps(run(who, row, int(seed), int(steps[0]) if steps else None)))


if __name__ == "__main__":
    main()
