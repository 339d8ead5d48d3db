"""The record of acts: calls to `/v1/act` that name a session, for the recorded share of sessions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from loomrl.serving.act import ActAsk
from loomrl.serving.converse import Exchange
from loomrl.serving.dispatch import Candidate
from loomrl.serving.policy import Act, Acted
from loomrl.serving.recording.acts import Acts, NewActs
from loomrl.serving.split import uniform
from loomrl.types import Steps


async def is_recorded(exchange: Exchange, ask: ActAsk, *, endpoint: str, session: str) -> bool:
    """True if the call becomes part of its session's trajectory."""
    if exchange.recorder is None or not session or uniform("record", endpoint, session) >= exchange.rate:
        return False
    return await exchange.recorder.takes(endpoint, ask)


def new_acts(candidate: Candidate, act: Act, acted: Acted, *, place: Mapping[str, str], at: float) -> NewActs:
    """The acts to keep; `place` is their session, endpoint, key and user."""
    version = candidate.policy.about.version
    return NewActs(**place, acts=Acts(arm=candidate.arm.name, version=version, steps=_steps(act, acted, at)))


def _steps(act: Act, acted: Acted, at: float) -> Steps:
    count = len(acted.actions)
    wishes: dict[str, Any] = {}
    for name, rows in (("preference", act.preferences), ("earned", act.earned)):
        if rows is not None:
            wishes[name] = np.repeat(rows, count, axis=0) if len(rows) == 1 else rows
    logprobs_T = np.zeros(count, np.float32) if acted.logprobs is None else acted.logprobs
    return Steps(
        observations=act.observations,
        actions=np.asarray(acted.actions),
        logprobs_T=logprobs_T,
        sampled_T=np.full(count, acted.logprobs is not None),
        versions_T=np.full(count, acted.version, np.int32),
        lanes_T=np.arange(count, dtype=np.int32),
        times_T=np.full(count, at),
        wishes=wishes,
    )
