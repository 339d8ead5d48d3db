"""A glance tells what the whole trajectory does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.errors import CorruptPayload
from loomrl.hub.codec import encode
from loomrl.hub.glance import glance
from loomrl.types import Message, Reward, Source, Steps, Tokens, Turn
from tests.hub.hub_samples import attempt


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    mask = draw(st.lists(st.booleans(), max_size=40) | st.integers(0, 400).map(lambda n: [False] * n + [True] * n))
    tokens = Tokens.of(range(len(mask)), mask, [0.0] * len(mask), [0] * len(mask))
    return Turn((Message("user", "?"),), "!", Reward(), draw(st.sampled_from([None, tokens])))


@given(st.lists(turns(), max_size=4), st.lists(st.lists(turns(), max_size=3), max_size=3), st.sampled_from(Source))
def test_a_glance_counts_as_the_whole_does(own: list[Turn], threads: list[list[Turn]], source: Source) -> None:
    whole = replace(
        attempt("a", run="r", first_version=4, source=source, started_at=1.0, finished_at=3.5),
        turns=tuple(own),
        threads=tuple(map(tuple, threads)),
    )
    seen = glance(encode(whole))
    every = [turn for sequence in whole.sequences for turn in sequence]
    masks = [turn.tokens.mask_T for turn in every if turn.tokens is not None]
    assert (seen.turns, seen.tokens) == (len(every), sum(map(len, masks)))
    assert seen.sampled == sum(int(mask.sum()) for mask in masks)
    assert (seen.id, seen.task, seen.ending) == ("a", "Math/algebra/1", "terminated")
    is_stated = source not in (Source.PRODUCTION, Source.FOREIGN)
    assert (seen.reward, seen.success) == (whole.reward.total, whole.reward.success if is_stated else None)
    played = source in (Source.ROLLOUT, Source.EVALUATION)
    assert (seen.version, seen.seconds) == (("r/4", 2.5) if played else ("1.0.0", None))


def test_steps_count_as_turns() -> None:
    columns = {"logprobs_T": np.float32, "sampled_T": np.bool_, "versions_T": np.int32, "lanes_T": np.int32}
    steps = Steps(
        observations=np.zeros((7, 2)),
        actions=np.zeros(7),
        times_T=np.zeros(7),
        **{name: np.zeros(7, kind) for name, kind in columns.items()},
    )
    seen = glance(encode(replace(attempt("a"), turns=(), steps=steps)))
    assert (seen.turns, seen.tokens) == (7, 0)


@pytest.mark.parametrize("place", [0, 5, 11, 40, -1])
def test_a_damaged_payload_is_noticed(place: int) -> None:
    payload = bytearray(encode(attempt("a")))
    payload[place] ^= 1
    for broken in (bytes(payload), bytes(payload[:20]), b""):
        with pytest.raises(CorruptPayload):
            glance(broken)
