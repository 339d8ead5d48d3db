"""Logged episodes by name: of a Minari data set, or the sessions of a control policy that was served."""

import logging
from collections import Counter
from typing import Any

import numpy as np
from gymnasium import spaces

from loomrl.config import LoggedData
from loomrl.control.logged import Logged, action_reader, read_minari
from loomrl.control.mask import Mask, mask_in
from loomrl.control.space import ACTION_MASK, Array, acts, as_batch, flatten
from loomrl.errors import ConfigError, DataError
from loomrl.feedback.content import Contents
from loomrl.store import open_store
from loomrl.store.datasets import find_dataset, read_rows
from loomrl.types import Trajectory

_log = logging.getLogger(__name__)

Space = spaces.Space[Any]


def read_logged(
    data: LoggedData, observed: Space, acted: Space, *, store_url: str, rewarded: bool = True
) -> list[Logged]:
    """The episodes of this data set in these spaces, without those that lack a reward unless they need none.

    An error if there are none, or they are of other spaces.
    """
    if data.minari is not None:
        episodes = read_minari(data.minari, observed, acted)
    else:
        episodes = _read_served(str(data.dataset), observed, acted, store_url, rewarded)
    if not episodes:
        raise DataError(f"data set {data.name!r} has no episode of a control policy.")
    if bad := _unfinite(episodes):
        raise DataError(f"data set {data.name!r}: the {bad} of an episode are not finite numbers. Record it anew.")
    _refuse_forbidden(episodes, mask_in(observed, acted), data.name)
    return episodes


def _read_served(id: str, observed: Space, acted: Space, store_url: str, rewarded: bool) -> list[Logged]:
    """Sessions as episodes, in their order. A session's reward is that of its last step: single steps have none."""
    left: Counter[str] = Counter()
    episodes: list[Logged] = []
    with open_store(store_url) as db, Contents(store_url) as contents:
        for row in read_rows(db, find_dataset(db, id).id, part="train"):
            attempt = contents.read(row)
            if attempt is None:
                left["deleted since"] += 1
                continue
            reward = row.reward if row.reward is not None else _caller_reward(attempt)
            if (why := _unfit(attempt, is_judged=not rewarded or reward is not None)) is not None:
                left[why] += 1
            else:
                episodes.append(_episode(attempt, reward or 0.0, observed, acted))
    if left:
        told = ", ".join(f"{count} {why}" for why, count in left.items())
        _log.warning("data set %s: %d sessions are learnt from; left out: %s", id, len(episodes), told)
    if not episodes:
        told = ", ".join(f"{count} {why}" for why, count in left.items()) or "it is empty"
        raise DataError(f"data set {id!r} has no session to learn control from: {told}.")
    return episodes


def _caller_reward(attempt: Trajectory) -> float | None:
    """The reward that a caller told at the session's end."""
    return attempt.reward.total if attempt.reward.parts else None


def _unfit(attempt: Trajectory, *, is_judged: bool) -> str | None:
    """Why a session is no episode."""
    if attempt.steps is None or not len(attempt.steps):
        return "of language"
    if attempt.steps.lanes_T.any():
        return "of several environments at once"
    return None if is_judged else "without a reward"


def _episode(attempt: Trajectory, reward: float, observed: Space, acted: Space) -> Logged:
    steps = attempt.steps
    assert steps is not None, "others are left out"
    try:
        seen: Array = np.asarray(flatten(observed)(as_batch(observed, steps.observations, one=False)))
        actions = action_reader(acts(acted))(steps.actions)
    except (ConfigError, ValueError, TypeError, IndexError) as error:
        raise ConfigError(
            f"session {attempt.id!r} does not fit the environment ({observed}, {acted}): {error}. Name the environment "
            "that the endpoint's policy acts in."
        ) from error
    rewards_T = np.zeros(len(steps), np.float32)
    rewards_T[-1] = reward
    return Logged(
        seen=np.concatenate([seen, seen[-1:]]),  # what followed the last action nobody told us, and it has no value
        actions=actions,
        rewards_T=rewards_T,
        terminated=True,
        logprobs_T=np.where(steps.sampled_T, steps.logprobs_T, np.nan).astype(np.float32),
    )


def _refuse_forbidden(episodes: list[Logged], mask: Mask | None, name: str) -> None:
    """A DataError if an action is one that its observation forbids."""
    if mask is None:
        return
    for number, one in enumerate(episodes):
        bad = np.flatnonzero(mask.forbidden(one.seen[:-1], one.actions))
        if len(bad):
            raise DataError(
                f"data set {name!r}: action {one.actions[bad[0]].tolist()} (counted from 0) of step {bad[0] + 1} in "
                f"episode {number} is one that the {ACTION_MASK} of its observation forbids. Record it anew with "
                "allowed actions, or leave the mask out of the observation."
            )


def _unfinite(episodes: list[Logged]) -> str | None:
    for one in episodes:
        for name, column in (("observations", one.seen), ("rewards", one.rewards_T), ("actions", one.actions)):
            if column.dtype.kind == "f" and not np.isfinite(column).all():
                return name
    return None
