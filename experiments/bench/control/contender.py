"""One contender of `loomrl bench control` at one task, in a process of its own. A script.

`WHO WORK` → `{"cpu_s": …, "wall_s": …, "steps": …, "peak_mb": …}` on the last line. CPU is that of this process and its
descendants. Preparations (imports, Ray, the first updates) are not counted.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Wrapper, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from loomrl.own_ray import ensure_ray

HIDDEN = {"ppo": (64, 64), "sac": (256, 256)}
BATCH = 256
FRAGMENT = 128
EPOCHS = 4
RATE = 1e-3
PLAIN = {"normalize_observations": False, "normalize_rewards": False}
"""The others' defaults, for equal work."""
WARMUP = 200
"""Steps of SAC before its first update."""

Advance = Callable[[int], int]
"""Take at least this many more steps; returns the number taken."""


def ours_ppo(environments: int) -> Advance:
    """LoomRL's PPO with its own learner."""
    from loomrl.algorithms.control.ppo import PPOConfig

    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .training(learning_rate=RATE, minibatch_size=BATCH, epochs=EPOCHS, **PLAIN)
    )
    return _rllib(config.env_runners(num_envs_per_env_runner=environments, rollout_fragment_length=FRAGMENT))


def ours_array(environments: int) -> Advance:
    """LoomRL's PPO with an environment that costs nothing."""
    from loomrl.algorithms.control.ppo import PPOConfig

    gymnasium.register("Drift-v0", vector_entry_point="loomrl.experiments.bench.control.contender:Drift")
    config = (
        PPOConfig()
        .environment("Drift-v0")
        .training(learning_rate=RATE, minibatch_size=8 * environments, epochs=EPOCHS, **PLAIN)
    )
    return _rllib(config.env_runners(num_envs_per_env_runner=environments, rollout_fragment_length=FRAGMENT))


class Drift(VectorEnv[Any, Any, Any]):
    """Points that two choices push to and fro, in arrays: 33 million steps per CPU second at 1,024 places."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's declaration

    def __init__(self, num_envs: int, steps: int = 200) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (4,))
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._steps = steps

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin everywhere, at any step of an episode."""
        self._chance = np.random.default_rng(seed)
        self._seen = self._chance.uniform(-0.05, 0.05, (self.num_envs, 4)).astype(np.float32)
        self._taken = self._chance.integers(self._steps, size=self.num_envs)
        self._over = np.zeros(self.num_envs, bool)
        return self._seen, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Push."""
        seen = self._seen
        seen[:, 0] += np.float32(0.02) * seen[:, 1]
        seen[:, 1] += (actions - 0.5) * np.float32(0.04) + np.float32(0.01) * seen[:, 0]
        self._taken += 1
        begins = np.flatnonzero(self._over)
        seen[begins] = self._chance.uniform(-0.05, 0.05, (len(begins), 4))
        self._taken[begins] = 0
        terminated = (np.abs(seen[:, 0]) > 0.5) & ~self._over
        truncated = (self._taken >= self._steps) & ~terminated
        rewards = np.where(self._over, 0.0, 1.0 - np.abs(seen[:, 0]))
        self._over = terminated | truncated
        return seen, rewards, terminated, truncated, {}


def rllib_ppo(environments: int) -> Advance:
    """RLlib's PPO with its defaults."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    model = DefaultModelConfig(fcnet_hiddens=list(HIDDEN["ppo"]), fcnet_activation="tanh", vf_share_layers=False)
    config = PPOConfig().environment("CartPole-v1").rl_module(model_config=model)
    config = config.training(
        lr=RATE,
        train_batch_size_per_learner=environments * FRAGMENT,
        minibatch_size=BATCH,
        num_epochs=EPOCHS,
        use_kl_loss=False,
    )
    runners = {"num_envs_per_env_runner": environments, "rollout_fragment_length": FRAGMENT}
    return _rllib(config.env_runners(num_env_runners=0, **runners))


def sb3_ppo(environments: int) -> Advance:
    """Stable-Baselines3."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    layers = {"pi": list(HIDDEN["ppo"]), "vf": list(HIDDEN["ppo"])}
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=environments),
        n_steps=FRAGMENT,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        learning_rate=RATE,
        policy_kwargs={"net_arch": layers},
        device="cpu",
    )
    return _sb3(model)


def ours_sac(environments: int) -> Advance:
    """LoomRL's SAC with its own learner."""
    from loomrl.algorithms.control.sac import SACConfig

    rates: dict[str, Any] = {"actor_rate": RATE, "critic_rate": RATE, "temperature_rate": RATE}
    config = SACConfig().environment("Pendulum-v1").training(batch=BATCH, warmup=WARMUP, **rates)
    return _rllib(config.env_runners(num_envs_per_env_runner=environments).reporting(**{_PER_ITERATION: 200}))


def rllib_sac(environments: int) -> Advance:
    """RLlib's SAC with its defaults."""
    from ray.rllib.algorithms.sac import SACConfig

    config = (
        SACConfig()
        .environment("Pendulum-v1")
        .training(
            actor_lr=RATE,
            critic_lr=RATE,
            alpha_lr=RATE,
            lr=None,
            train_batch_size_per_learner=BATCH,
            num_steps_sampled_before_learning_starts=WARMUP,
        )
    )
    first, *rest = HIDDEN["sac"]  # RLlib has an encoder, then heads
    config = config.rl_module(model_config={"fcnet_hiddens": [first], "head_fcnet_hiddens": rest})
    config = config.env_runners(num_env_runners=0, num_envs_per_env_runner=environments, rollout_fragment_length=1)
    return _rllib(config.reporting(min_time_s_per_iteration=0, **{_PER_ITERATION: 200}))


def sb3_sac(environments: int) -> Advance:
    """Stable-Baselines3."""
    from stable_baselines3 import SAC
    from stable_baselines3.common.env_util import make_vec_env

    venv = make_vec_env("Pendulum-v1", n_envs=environments)
    return _sb3(SAC("MlpPolicy", venv, learning_rate=RATE, learning_starts=WARMUP, batch_size=BATCH, device="cpu"))


def alone_slow(environments: int) -> Advance:
    """LoomRL in this process, with steps of a millisecond."""
    return _slow(environments, runners=0)


def two_slow(environments: int) -> Advance:
    """LoomRL with two runners, with steps of a millisecond."""
    return _slow(environments, runners=2)


class Slow(Wrapper[Any, Any, Any, Any]):
    """CartPole whose step keeps a core busy for a millisecond."""

    def __init__(self, context: Any = None) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        """A step that lasts a millisecond."""
        until = time.perf_counter() + 0.001
        told = super().step(action)
        while time.perf_counter() < until:
            pass
        return told


def _slow(environments: int, *, runners: int) -> Advance:
    from loomrl.algorithms.control.ppo import PPOConfig
    from loomrl.experiments.bench.control.contender import Slow  # no runner could import the script's

    config = PPOConfig().environment(Slow).training(learning_rate=RATE, minibatch_size=BATCH, epochs=EPOCHS, **PLAIN)
    each = environments // max(1, runners)
    config = config.env_runners(num_env_runners=runners, num_envs_per_env_runner=each, rollout_fragment_length=FRAGMENT)
    return _rllib(config, cpus=1 + runners)


_PER_ITERATION = "min_sample_timesteps_per_iteration"
CONTENDERS = {
    f"{who}_{work}": make
    for work, makers in {"ppo": (ours_ppo, rllib_ppo, sb3_ppo), "sac": (ours_sac, rllib_sac, sb3_sac)}.items()
    for who, make in zip(("ours", "rllib", "sb3"), makers, strict=True)
} | {"ours_array": ours_array, "alone_slow": alone_slow, "two_slow": two_slow}


def _rllib(config: Any, *, cpus: int = 1) -> Advance:
    ensure_ray(num_cpus=cpus)
    algo = config.build_algo()

    def advance(steps: int) -> int:
        taken = 0
        while taken < steps:
            taken += int(algo.train()["env_runners"]["num_env_steps_sampled"])
        return taken

    return advance


def _sb3(model: Any) -> Advance:
    def advance(steps: int) -> int:
        before = model.num_timesteps
        model.learn(steps, reset_num_timesteps=False)
        return int(model.num_timesteps - before)

    return advance


def cpu_s() -> float:
    """CPU seconds of this process and all its descendants."""
    seconds = {}
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it ended meanwhile
            continue
        parents[int(folder.name)] = int(fields[1])
        seconds[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(seconds.get(pid, 0.0) for pid in family)


def peak_mb() -> float:
    """The greatest resident memory of this process so far."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Run one contender; see the module's docstring."""
    import torch

    torch.set_num_threads(1)
    who = sys.argv[1]
    numbers = json.loads(sys.argv[2])
    advance = CONTENDERS[who](numbers["environments"])
    advance(numbers["before"])
    spent = cpu_s()
    begun = time.perf_counter()
    steps = advance(numbers["steps"])
    told = {"cpu_s": cpu_s() - spent, "wall_s": time.perf_counter() - begun}
    print(json.dumps(told | {"steps": steps, "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()
