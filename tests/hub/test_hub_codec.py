"""A payload is exactly its trajectory, and nothing else is taken for one."""

import random
import tracemalloc
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hub_samples import attempt
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from loomrl.errors import CorruptPayload, HubError
from loomrl.hub.array import EXPANSION, Allowance, pack, unpack
from loomrl.hub.codec import HEADER, MAGIC, decode, encode, split
from loomrl.hub.glance import glance
from loomrl.types import End, Failure, Message, Reward, Source, Steps, Task, Tokens, Trajectory, Turn

TEXTS = st.text(max_size=20)
FLOATS = st.floats(allow_nan=False)
INTS = st.integers(-(2**63), 2**64 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
REWARDS = st.builds(Reward, FLOATS, st.dictionaries(TEXTS, FLOATS, max_size=3), FLOATS)
IMAGES = st.lists(st.binary(max_size=30), max_size=2).map(tuple)
MESSAGES = st.lists(st.builds(Message, TEXTS, TEXTS, IMAGES), max_size=3).map(tuple)
DTYPES = (
    hnp.boolean_dtypes()
    | hnp.integer_dtypes()
    | hnp.unsigned_integer_dtypes()
    | hnp.floating_dtypes(sizes=(16, 32, 64))
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)
INT32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def tokens(draw: st.DrawFn) -> Tokens:
    length = draw(st.integers(0, 300))
    limit = draw(st.sampled_from([2, 200, 60_000, 150_000, 2**24 + 1, 2**31 - 1]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    entropies = rng.random(length).astype(np.float32)
    shifts = rng.exponential(1, length).astype(np.float32)
    return Tokens(
        rng.integers(-limit if draw(st.booleans()) else 0, limit, length).astype(np.int32),
        rng.random(length) < draw(st.sampled_from([0.0, 0.02, 0.5, 1.0])),
        rng.normal(size=length).astype(np.float32),
        np.sort(rng.integers(-1, draw(st.integers(0, 5)), length)).astype(np.int32),
        draw(st.sampled_from([None, entropies])),
        draw(st.sampled_from([None, shifts])),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    end = draw(st.sampled_from(End))
    parameters = draw(st.dictionaries(TEXTS, JSON, max_size=3))
    turn = st.builds(Turn, MESSAGES, TEXTS, REWARDS, st.none() | tokens())
    return Trajectory(
        id=draw(TEXTS),
        task=Task(draw(TEXTS), draw(TEXTS), draw(TEXTS), draw(INT32), draw(INTS), parameters),
        turns=tuple(draw(st.lists(turn, max_size=3))),
        end=end,
        reward=draw(REWARDS),
        group=draw(TEXTS),
        group_size=draw(st.integers(1, 2**31)),
        first_version=draw(INT32),
        last_version=draw(INT32),
        source=draw(st.sampled_from(Source)),
        snapshot=draw(TEXTS),
        run=draw(TEXTS),
        failure=Failure(draw(TEXTS), draw(TEXTS), draw(TEXTS)) if end is End.FAILED else None,
        started_at=draw(FLOATS),
        finished_at=draw(FLOATS),
        extra=draw(st.dictionaries(TEXTS, JSON, max_size=3)),
        threads=tuple(map(tuple, draw(st.lists(st.lists(turn, min_size=1, max_size=2), max_size=2)))),
    )


@given(trajectories())
@settings(max_examples=150)
def test_decoding_undoes_encoding(trajectory: Trajectory) -> None:
    assert decode(encode(trajectory)) == trajectory


@given(hnp.arrays(DTYPES, SHAPES) | hnp.arrays(np.int64, 40, elements=st.integers(2**62, 2**62 + 9)))
@settings(max_examples=200)
def test_every_array_keeps_values_dtype_shape_and_every_bit(array: np.ndarray[Any, Any]) -> None:
    back = unpack(memoryview(pack(array, Allowance())), Allowance())
    assert (back.dtype.newbyteorder("="), back.shape) == (array.dtype.newbyteorder("="), array.shape)
    assert back.astype(array.dtype).tobytes() == array.tobytes()
    assert back.flags.writeable


def test_arrays_may_lie_anywhere_in_extra() -> None:
    given = attempt(
        "a", extra={"scores": [np.arange(5, dtype=np.float64), {"mask": np.zeros((2, 3), bool)}], "n": np.int64(4)}
    )
    back = decode(encode(given)).extra
    assert np.array_equal(back["scores"][0], np.arange(5.0))
    assert back["scores"][1]["mask"].shape == (2, 3)
    assert back["n"] == 4


def test_equal_trajectories_have_equal_bytes() -> None:
    one, two = (attempt("a", extra=dict(pairs)) for pairs in ([("x", 1), ("y", 2)], [("y", 2), ("x", 1)]))
    assert encode(one) == encode(two)


def test_sampled_tokens_take_seven_bytes_each() -> None:
    length, rng = 8192, np.random.default_rng(0)
    sampled = np.arange(length) > 500
    columns = Tokens(
        rng.integers(0, 150_000, length).astype(np.int32),
        sampled,
        rng.normal(size=length).astype(np.float32),
        np.where(sampled, 4, -1).astype(np.int32),
    )
    given = attempt("a")
    payload = encode(replace(given, turns=(replace(given.turns[0], tokens=columns),)))
    assert len(payload) < 7 * length + 700


def test_payloads_one_after_the_other_are_a_body() -> None:
    given = [attempt(name) for name in "abc"]
    assert [decode(payload) for payload in split(b"".join(map(encode, given)))] == given
    assert list(split(b"")) == []


@given(st.integers(0, 10**9))
@settings(max_examples=300)
def test_damaged_payload_is_refused_naming_where(seed: int) -> None:
    rng = random.Random(seed)
    payload = bytearray(encode(attempt("a", extra={"x": np.arange(50)})))
    if rng.random() < 0.5:
        payload[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
    else:
        del payload[rng.randrange(len(payload)) :]
    with pytest.raises(CorruptPayload, match=r"trajectory 'a', offset 0"):
        decode(bytes(payload), origin="trajectory 'a'")


@given(st.binary(max_size=200), st.integers(0, 10**9))
@settings(max_examples=400)
def test_hostile_content_with_a_right_checksum_is_a_trajectory_or_refused_in_bounded_memory(
    noise: bytes, seed: int
) -> None:
    rng = random.Random(seed)
    body = bytearray(encode(attempt("a", extra={"x": np.arange(99) % 7, "r": np.zeros(500, int)}))[HEADER.size :])
    start = rng.randrange(len(body))
    body[start : start + rng.randrange(30)] = noise
    payload = HEADER.pack(MAGIC, zlib.crc32(body), len(body)) + bytes(body)
    tracemalloc.start()
    try:
        found: Trajectory | CorruptPayload = decode(payload)
    except CorruptPayload as error:
        found = error
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, Trajectory) or "payload" in str(found)
    assert peak < EXPANSION + (1 << 20)


@pytest.mark.parametrize(
    "data",
    [
        b"\x02\x04\x01\xff\xff\xff\xff\x01\x00\x00\x00\xff\xff\xff\xff" + bytes(8),
        b"\x02\x04\x02\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\xff\xff\xff\xff" + bytes(8),
        b"\x00\x04\x08" + b"\xff\xff\xff\xff" * 8,
        b"\x03\x00\x01\xff\xff\xff\xff",
    ],
)
def test_array_that_announces_gigabytes_is_refused_without_taking_them(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="array"):
            unpack(memoryview(data), Allowance())
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_payload_of_another_format_says_so() -> None:
    payload = encode(attempt("a"))
    with pytest.raises(CorruptPayload, match="another loomrl: upgrade it"):
        decode(b"LRT\x0b" + payload[4:])
    with pytest.raises(CorruptPayload, match="no trajectory payload"):
        decode(b"PK\x03\x04" + payload[4:])


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(CorruptPayload, match="3 bytes too many"):
        decode(encode(attempt("a")) + b"abc")


def test_a_value_that_is_no_json_is_refused_by_the_trajectorys_name() -> None:
    with pytest.raises(HubError, match="'a' cannot be stored: object is neither"):
        encode(attempt("a", extra={"x": object()}))


# -- a glance tells what the whole trajectory does ---------------------------------------------------------------------


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
