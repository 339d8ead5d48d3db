"""`loomrl gate … --logged`: the candidate's probabilities of what the baseline served, and what follows from them."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.config import LanguagePolicy, Sampling
from loomrl.config.suite import LanguageSuite, Suite
from loomrl.errors import ConfigError, DataError
from loomrl.experiments.gate.language import choice_of
from loomrl.experiments.gate.party import Parties, Party
from loomrl.feedback.content import Contents
from loomrl.feedback.dataset import datasets_behind
from loomrl.release.gate.check import GateCheck
from loomrl.release.gate.logged import LoggedSession, check_sessions
from loomrl.serving.deployment.opening import SAMPLING
from loomrl.serving.deployment.source import source_of
from loomrl.store import LoomDB
from loomrl.store.datasets import DatasetRow, find_dataset, list_training_ids, read_rows
from loomrl.types import Trajectory, joined

TRIED = 16
"""Sessions by which the record is compared with the baseline's own weights."""
AGREES = 0.05
"""Mean distance of two log-probabilities of a token, up to which weights are taken for those that sampled it."""


@dataclass(frozen=True, slots=True, eq=False)
class ServedThread:
    """A thread's ids; of each of its answers the places of sampled tokens, and what is on record of them."""

    ids_T: NDArray[np.int32]
    answers: tuple[NDArray[np.int64], ...]
    logprobs_T: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ServedSession:
    """A session whose probabilities are known."""

    threads: tuple[ServedThread, ...]
    reward: float
    temperature: float


def check_logged_sessions(name: str, parties: Parties, suite: Suite, db: LoomDB) -> GateCheck:
    """The check of a candidate by the data set of this name; errors name what is missing."""
    if not isinstance(suite, LanguageSuite):
        raise ConfigError(f"--logged={name}: the suite is for control, where `logged` is a setting of the suite.")
    if parties.baseline is None:
        raise ConfigError(f"--logged={name}: whose sessions are they? Name the version that served: --against.")
    dataset = find_dataset(db, name)
    source = source_of(parties.baseline.key, db)
    own = source.sampling or SAMPLING
    if own.temperature == 0 or own.top_p < 1:
        raise ConfigError(
            f"--logged={name}: {source.key} samples with temperature={own.temperature:g}, top_p={own.top_p:g}; of what "
            "it leaves out nothing can be learnt. Serve with a temperature above 0 and top_p=1."
        )
    left: Counter[str] = Counter()
    rows = usable_rows(read_rows(db, dataset.id), parties.challenger, source.version, db, left)
    candidate = _scorer(parties.challenger, suite, db)
    baseline = _scorer(parties.baseline, suite, db)
    with Contents(db.location) as contents:
        served = [one for row in rows if (one := _session(contents, row, own, candidate.context, left)) is not None]
    scored = asyncio.run(_score(served, candidate, baseline))
    return check_sessions(dataset.id, scored, left, error_rate=suite.error_rate)


# -- what can be used ------------------------------------------------------------------------------------------------


def usable_rows(
    rows: Sequence[DatasetRow], challenger: Party, server: str, db: LoomDB, left: Counter[str]
) -> Iterator[DatasetRow]:
    """The rows that the baseline alone answered, and of which the candidate has learnt nothing."""
    trained = set() if challenger.version is None else list_training_ids(db, datasets_behind(db, challenger.version))
    for row in rows:
        if set(row.versions) != {server}:
            left["answered by other versions"] += 1
        elif row.trajectory in trained:
            left["learnt by the candidate"] += 1
        elif challenger.version is None and row.part != "holdout":
            left["may have been learnt by the candidate, whose data is not on record"] += 1
        else:
            yield row


def _session(
    contents: Contents, row: DatasetRow, own: Sampling, context: int, left: Counter[str]
) -> ServedSession | None:
    attempt = contents.read(row)
    if attempt is None:
        left["deleted since"] += 1
        return None
    reward = row.reward if row.reward is not None else _reported_reward(attempt)
    asked = _temperature(attempt, own)
    threads = [_thread(turns) for turns in attempt.sequences]
    known = tuple(one for one in threads if one is not None)
    why = None
    if reward is None:
        why = "without a reward"
    elif asked is None:
        why = "drawn otherwise than by one temperature"
    elif not known or len(known) < len(threads):
        why = "without the probabilities of all tokens"
    elif any(message.images for turns in attempt.sequences for turn in turns for message in turn.observation):
        why = "with pictures"
    elif max(len(one.ids_T) for one in known) > context:
        why = "longer than the candidate's context"
    if why is not None:
        left[why] += 1
        return None
    assert reward is not None
    assert asked is not None
    return ServedSession(known, min(max(reward, 0.0), 1.0), asked)


def _reported_reward(attempt: Trajectory) -> float | None:
    """The reward that a caller reported at the session's end."""
    return attempt.reward.total if attempt.reward.parts else None


def _temperature(attempt: Trajectory, own: Sampling) -> float | None:
    """The temperature of all calls; None if they differ, are greedy, or something else was asked for."""
    asked = attempt.extra.get("session", {}).get("drawn", [{}])
    if len(asked) != 1 or asked[0].keys() - {"temperature"}:
        return None
    return asked[0].get("temperature", own.temperature) or None


def _thread(turns: Any) -> ServedThread | None:
    """A thread by its ids; None if the probability of a sampled token is unknown."""
    tokens = joined(turns)
    if tokens is None or any(turn.tokens is None for turn in turns) or tokens.mask_T[0]:
        return None
    if tokens.shifts_T is not None and tokens.shifts_T[tokens.mask_T].any():
        return None
    ends = np.cumsum([len(turn.tokens) for turn in turns])
    places = np.split(np.arange(len(tokens)), ends[:-1])
    answers = tuple(part[tokens.mask_T[part]] for part in places)
    return ServedThread(tokens.ids_T, tuple(part for part in answers if len(part)), tokens.logprobs_T)


# -- probabilities ---------------------------------------------------------------------------------------------------


class _Scorer:
    """A policy's log-probabilities of given ids."""

    def __init__(self, choice: LanguagePolicy) -> None:
        from loomrl.inference.policy import open_voice

        self._voice = open_voice(choice)
        self.context = choice.context

    async def logprobs(self, ids_T: NDArray[np.int32], temperature: float) -> NDArray[np.float64]:
        """The log-probability of each token; 0 for the first, which has none."""
        from loomrl.inference.engine import Request

        voice = self._voice
        sampling = voice.sampling.model_copy(update={"temperature": temperature, "entropies": False})
        found = await voice.engine.score(Request(ids_T, sampling, voice.chat.stop, 0, adapter=voice.adapter))
        return np.concatenate([[0.0], found.logprobs_TK[:, 0].astype(np.float64)])


def _scorer(party: Party, suite: LanguageSuite, db: LoomDB) -> _Scorer:
    choice = choice_of(suite, party, db)
    if not isinstance(choice, LanguagePolicy):
        raise ConfigError(f"--logged: {party.key!r} has no weights here, so its probabilities of answers are unknown.")
    return _Scorer(choice)


async def _score(served: Sequence[ServedSession], candidate: _Scorer, baseline: _Scorer) -> list[LoggedSession]:
    await _refuse_strange(served[:TRIED], baseline)
    scored = []
    for session in served:
        logs: list[float] = []
        for thread in session.threads:
            ours_T = await candidate.logprobs(thread.ids_T, session.temperature)
            change_T = ours_T - thread.logprobs_T
            logs += [float(change_T[part].sum()) for part in thread.answers]
        scored.append(LoggedSession(np.array(logs), session.reward))
    return scored


async def _refuse_strange(served: Sequence[ServedSession], baseline: _Scorer) -> None:
    """A DataError if the baseline's weights do not give the probabilities that are on record."""
    apart = []
    for session in served:
        for thread in session.threads:
            again_T = await baseline.logprobs(thread.ids_T, session.temperature)
            apart += [np.abs(again_T - thread.logprobs_T)[part] for part in thread.answers]
    if apart and (found := float(np.concatenate(apart).mean())) > AGREES:
        raise DataError(
            f"--logged: the baseline gives sampled tokens other probabilities than are on record, {found:.3f} nats "
            f"apart on the average ({AGREES:g} is accepted). Was another version or temperature served?"
        )
