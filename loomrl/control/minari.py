"""Minari data sets: read as logged episodes, and written. They lie in `MINARI_DATASETS_PATH`, by default ~/.minari."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from loomrl.control.logged import Logged, taken
from loomrl.control.space import acts, flatten
from loomrl.errors import ConfigError, DataError, unknown

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
    own = taken(acts(acted))
    return [_logged(episode, flat, own) for episode in found.iterate_episodes() if len(episode.rewards)]


def _logged(episode: Any, flat: Any, own: Any) -> Logged:
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
