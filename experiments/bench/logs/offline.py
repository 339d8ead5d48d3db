"""Learning from logged episodes, and on from there: IQL and behaviour cloning on half good, half random data.

Controls: IQL on the same episodes with rewards shuffled among all steps, which must lose what it has over cloning; and
SAC that goes on from a clone of the offline policy, with neither its critics nor the data.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

from loomrl.config import ControlExperiment
from loomrl.control.environment import open_environment
from loomrl.control.logged import summary
from loomrl.control.minari import Recorded, read_minari, write_minari
from loomrl.control.play import RandomPolicy
from loomrl.experiments.algorithms import open_algorithm, ray_running
from loomrl.experiments.evaluate_control import played
from loomrl.experiments.record import Recording, record
from loomrl.experiments.shipped import resolve

MIXED, SHUFFLED = "pendulum/mixed-v0", "pendulum/shuffled-v0"
CLONING = 500
"""Steps that fit SAC's policy to the offline one."""


@dataclass(frozen=True, slots=True)
class Size:
    """Amount of work."""

    seeds: Sequence[int] = (1, 2, 3)
    good: int = 3_000
    """Environment steps that make the good policy, by SAC."""
    steps: int = 10_000
    """Of the data set."""
    updates: int = 10_000
    online: int = 2_000
    """Environment steps after the offline training."""
    every: int = 200
    episodes: int = 20


FULL = Size()
QUICK = Size(seeds=(1,), good=120, steps=400, updates=20, online=20, every=10, episodes=1)


def measure(size: Size) -> dict[str, Any]:
    """Mean returns by seed, and the worst evaluation online as a share of what was learnt offline."""
    with TemporaryDirectory(prefix="loomrl-offline-") as name, _data_in(Path(name, "minari")), ray_running(2):
        torch.set_num_threads(1)
        experiment = resolve(["control/offline_pendulum"])
        assert isinstance(experiment, ControlExperiment), "it ships as one"
        experiment = experiment.override(
            {"train.steps": size.updates, "evaluation.episodes": size.episodes, "train.tell_every": size.every}
        )
        data = _recorded(Path(name), size)
        random = float(np.mean(played(RandomPolicy(), experiment)[0]))
        seeds = [_of_seed(experiment.override({"seed": seed}), size, random) for seed in size.seeds]
    return {"data": data, "random": random, "seeds": seeds}


def _of_seed(experiment: ControlExperiment, size: Size, random: float) -> dict[str, Any]:
    cloned = experiment.override({"algorithm": {"kind": "bc", "network": {"hidden": [64, 64], "activation": "relu"}}})
    told: dict[str, Any] = {"bc": _offline(cloned)[0]}
    told["iql_shuffled"] = _offline(experiment.override({"data.minari": SHUFFLED}))[0]
    told["iql"], weights, policy = _offline(experiment)
    reach = told["iql"] - random

    def share(returns: Sequence[float]) -> float:
        return float((min(returns) - random) / reach)

    goes_on = experiment.override({"algorithm.online": {}, "train.steps": size.online})
    told["online"] = _online(goes_on, size, lambda algo: _load(algo, weights))
    forgets = goes_on.override({"algorithm.online.data_share": 0})
    told["online_without_data"] = _online(forgets, size, lambda algo: _load(algo, weights))
    naive = experiment.override({"data": None, "algorithm": _sac()}).override({"train.steps": size.online})
    told["naive"] = _online(naive, size, lambda algo: _clone(algo, policy))
    for way in ("online", "online_without_data", "naive"):
        told[f"{way}_worst_share"] = share(told[way])
    return told


def _sac() -> dict[str, Any]:
    return {
        "kind": "sac",
        "network": {"hidden": [64, 64], "activation": "relu"},
        "warmup": 0,
        "initial_temperature": 0.1,
    }


def _offline(experiment: ControlExperiment) -> tuple[float, Mapping[str, Any], Any]:
    """The mean return of what is learnt, its weights, and the policy."""
    algo = open_algorithm(experiment).build_algo()
    while algo.progress < experiment.train.steps:
        algo.train()
    state = algo.learner_group.get_state()["learner"]["rl_module"][DEFAULT_MODULE_ID]
    weights, policy = deepcopy(state), algo.policy()
    algo.stop()
    return _return(policy, experiment), weights, policy


def _online(experiment: ControlExperiment, size: Size, begin: Callable[[Any], None]) -> list[float]:
    """Mean returns from the beginning, every so many steps."""
    algo = open_algorithm(experiment).build_algo()
    begin(algo)
    returns = [_return(algo.policy(), experiment)]
    while algo.env_steps < size.online:
        algo.train()
        returns.append(_return(algo.policy(), experiment))
    algo.stop()
    return returns


def _return(policy: Any, experiment: ControlExperiment) -> float:
    return float(np.mean(played(policy, experiment)[0]))


def _load(algo: Any, weights: Mapping[str, Any]) -> None:
    state = algo.learner_group.get_state()
    state["learner"]["rl_module"][DEFAULT_MODULE_ID] = weights
    algo.learner_group.set_state(state)


def _clone(algo: Any, policy: Any) -> None:
    """Fit SAC's policy to another one's actions on the data, as whoever has only actions would."""
    with closing(open_environment(resolve(["control/pendulum"]).environment, {})) as one:  # type: ignore[union-attr]
        episodes = read_minari(MIXED, one.observation_space, one.action_space)
    seen_S = torch.from_numpy(np.concatenate([episode.seen[:-1] for episode in episodes]))
    wanted_S = torch.from_numpy(policy.act_batch(seen_S.numpy())) / 2  # torques are within 2
    net, chance = algo.get_module().net, torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(CLONING):
        drawn = torch.randint(len(seen_S), (256,), generator=chance)
        mean, log_std = net.decide(net.features(seen_S[drawn]), seen_S[drawn]).chunk(2, -1)
        loss = (mean.tanh() - wanted_S[drawn]).square().mean() + 0.01 * (log_std + 2).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _recorded(folder: Path, size: Size) -> dict[str, Any]:
    """The mixed data set, and the same with rewards shuffled."""
    good = resolve(["control/pendulum", f"train.steps={size.good}", f"store_url=sqlite:///{folder}/loom.db"])
    assert isinstance(good, ControlExperiment), "it ships as one"
    algo = open_algorithm(good).build_algo()
    while algo.env_steps < size.good:
        algo.train()
    algo.policy().save(folder / "good")
    algo.stop()
    told = record(good, Recording(id=MIXED, policies=[str(folder / "good"), "random"], steps=size.steps))
    with closing(open_environment(good.environment, {})) as one:
        episodes = read_minari(MIXED, one.observation_space, one.action_space)
        paid = np.concatenate([episode.rewards_T for episode in episodes])
        np.random.default_rng(0).shuffle(paid)
        parts = np.split(paid, np.cumsum([len(episode) for episode in episodes])[:-1])
        mixed = [
            Recorded(
                observations=list(episode.seen),
                actions=list(episode.actions),
                rewards=part.tolist(),
                terminated=episode.terminated,
                logprobs=None,
                seed=0,
            )
            for episode, part in zip(episodes, parts, strict=True)
        ]
        write_minari(SHUFFLED, mixed, one.spec, one.observation_space, one.action_space, made_by="shuffled")
    return {**summary(episodes), "policies": dict(zip(("good", "random"), told["policies"].values(), strict=True))}


@contextmanager
def _data_in(folder: Path) -> Iterator[None]:
    """Minari's data sets in this folder, until the context ends."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    folder.mkdir()
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("MINARI_DATASETS_PATH")
        if before is not None:
            os.environ["MINARI_DATASETS_PATH"] = before
