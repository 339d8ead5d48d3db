"""Episodes on record: what a policy saw and did, what it was paid, and how likely it was to do so.

Axes: `_T` steps of an episode, `_S` steps of all episodes, `_N` actions.
"""

import hashlib
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from loomrl.control.space import ActionView, Array, acts, flatten
from loomrl.errors import ConfigError, DataError, unknown


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logged:
    """An episode. Observations are a network's input, actions as a policy samples them: counted from 0, not scaled."""

    seen: Array
    """`[T + 1, …]`: before every step, and after the last one."""
    actions: Array
    """`[T]` or `[T, D]`."""
    rewards_T: NDArray[np.float32]
    terminated: bool
    """False if it was truncated: its last observation has a value."""
    logprobs_T: NDArray[np.float32] | None = None
    """Log-probability of each action under the policy that took it; None if it is unknown."""

    def __len__(self) -> int:
        return len(self.rewards_T)


def action_reader(kind: ActionView) -> Callable[[Array], Array]:
    """From the environment's actions to those of a policy that is not squashed: the inverse of `translator`."""
    if kind.kind == "discrete":
        return lambda actions_N: np.asarray(actions_N, np.int64).reshape(-1) - kind.starts[0]
    if kind.kind == "box":
        return lambda actions_N: np.asarray(actions_N, np.float32).reshape(len(actions_N), kind.count)
    starts = np.array(kind.starts or 0)
    return lambda actions_N: np.asarray(actions_N, np.int64).reshape(len(actions_N), kind.count) - starts


def steps_of(episodes: Sequence[Logged], *, gamma: float) -> dict[str, Array]:
    """All steps as columns: `seen`, `after`, `actions`, `rewards`, and `ahead`, the discount of what follows."""
    ahead = [np.full(len(one), gamma, np.float32) for one in episodes]
    for discount_T, one in zip(ahead, episodes, strict=True):
        discount_T[-1] *= not one.terminated
    return {
        "seen": np.concatenate([one.seen[:-1] for one in episodes]),
        "after": np.concatenate([one.seen[1:] for one in episodes]),
        "actions": np.concatenate([one.actions for one in episodes]),
        "rewards": np.concatenate([one.rewards_T for one in episodes]),
        "ahead": np.concatenate(ahead),
    }


def deviation_of_returns(episodes: Sequence[Logged], *, gamma: float) -> float:
    """Standard deviation of the discounted sum of rewards so far, over all steps; what rewards are divided by."""
    sums: list[float] = []
    for one in episodes:
        so_far = 0.0
        for reward in one.rewards_T.tolist():
            so_far = so_far * gamma + reward
            sums.append(so_far)
    return float(np.std(sums))


def digest(episodes: Sequence[Logged]) -> str:
    """SHA-256 of all that is learnt from."""
    whole = hashlib.sha256()
    for one in episodes:
        for column in (one.seen, one.actions, one.rewards_T):
            whole.update(np.ascontiguousarray(column).tobytes())
        whole.update(bytes([one.terminated]))
    return whole.hexdigest()


def summary(episodes: Sequence[Logged]) -> Mapping[str, Any]:
    """Episodes, steps, and the mean return, as JSON."""
    returns = [float(one.rewards_T.sum(dtype=np.float64)) for one in episodes]
    return {
        "episodes": len(episodes),
        "steps": sum(map(len, episodes)),
        "return": float(np.mean(returns)),
        "least": min(returns),
        "greatest": max(returns),
        "with_logprobs": all(one.logprobs_T is not None for one in episodes),
    }


LOGPROB = "logprob"
"""Key in a data set's infos: the log-probability of the action that led here."""
ID = r"([\w-]+/)*[\w-]+-v\d+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An episode as it was played, in the environment's form."""

    observations: list[Any]
    """One more than actions."""
    actions: list[Any]
    rewards: list[float]
    terminated: bool
    logprobs: NDArray[np.float64] | None
    seed: int


def read_minari(id: str, observed: spaces.Space[Any], acted: spaces.Space[Any]) -> list[Logged]:
    """The episodes of a data set on this machine; a ConfigError if it was recorded in other spaces."""
    minari = _minari()
    known = sorted(minari.list_local_datasets())
    if id not in known:
        raise DataError(
            "Minari data set " + unknown("id", id, known) + f" `loomrl data record {id} POLICY` makes one, `minari "
            f"download {id}` fetches one of Farama's."
        )
    found = minari.load_dataset(id)
    for what, theirs, ours in (
        ("observations", found.observation_space, observed),
        ("actions", found.action_space, acted),
    ):
        if theirs != ours:
            raise ConfigError(
                f"Minari data set {id!r} has {what} of {theirs}, the environment has {ours}. Name the environment that "
                "it was recorded in, with its settings."
            )
    flat = flatten(observed)
    own = action_reader(acts(acted))
    return [_convert(episode, flat, own) for episode in found.iterate_episodes() if len(episode.rewards)]


def _convert(episode: Any, flat: Any, own: Any) -> Logged:
    told = (episode.infos or {}).get(LOGPROB)
    return Logged(
        seen=flat(episode.observations),
        actions=own(episode.actions),
        rewards_T=np.asarray(episode.rewards, np.float32),
        terminated=bool(episode.terminations[-1]),
        logprobs_T=None if told is None else np.asarray(told, np.float32)[1:],
    )


def refuse_name(id: str) -> None:
    """An error for an id that Minari does not take, or that is there already."""
    if not re.fullmatch(ID, id):
        raise ConfigError(f"{id!r} is no id of a Minari data set: it ends with a version, such as cartpole/mixed-v0.")
    if id in _minari().list_local_datasets():
        raise ConfigError(f"there is a Minari data set {id!r} already, and it is not written over. Raise its version.")


def write_minari(
    id: str,
    episodes: Sequence[Recorded],
    spec: Any,
    observed: spaces.Space[Any],
    acted: spaces.Space[Any],
    made_by: str,
) -> None:
    """Write the episodes as data set `id`. `spec` is Gymnasium's of the environment, or None."""
    minari = _minari()
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=number,
            seed=one.seed,
            observations=_columns(observed, one.observations),
            actions=_columns(acted, one.actions),
            rewards=one.rewards,
            terminations=[False] * (len(one.rewards) - 1) + [one.terminated],
            truncations=[False] * (len(one.rewards) - 1) + [not one.terminated],
            infos=None if one.logprobs is None else {LOGPROB: np.concatenate([[0.0], one.logprobs])},
        )
        for number, one in enumerate(episodes)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it would like an author and a link to code
        minari.create_dataset_from_buffers(
            id, buffers, env=spec, observation_space=observed, action_space=acted, algorithm_name=made_by
        )


def _columns(space: spaces.Space[Any], values: Sequence[Any]) -> Any:
    """Values of a space, one after the other, as Minari keeps them: mappings and tuples of columns."""
    if isinstance(space, spaces.Dict):
        return {name: _columns(part, [value[name] for value in values]) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_columns(part, [value[at] for value in values]) for at, part in enumerate(space.spaces))
    return np.stack([np.asarray(value, space.dtype) for value in values])


def _minari() -> ModuleType:
    try:
        import minari
        import minari.data_collector
    except ImportError as error:
        raise ConfigError(f"minari cannot be imported ({error}). Install: pip install 'loomrl[offline]'.") from error
    return minari  # type: ignore[no-any-return,unused-ignore]
