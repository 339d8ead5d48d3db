import random
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.hub.atropos.batch import Candidate, compose

ENVIRONMENTS = ("a", "b", "c")


@st.composite
def queues(draw: st.DrawFn) -> list[Candidate]:
    kinds = draw(st.lists(st.tuples(st.sampled_from(ENVIRONMENTS), st.integers(1, 9)), max_size=9))
    return [Candidate(str(number), environment, size) for number, (environment, size) in enumerate(kinds)]


def sequences(groups: list[Candidate], environment: str | None = None) -> int:
    return sum(group.size for group in groups if environment in (None, group.environment))


def batches_with_the_oldest(queue: list[Candidate]) -> list[list[Candidate]]:
    rest = queue[1:]
    return [[queue[0], *more] for count in range(len(rest) + 1) for more in combinations(rest, count)]


def keeps(batch: list[Candidate], minimums: dict[str, int]) -> bool:
    return all(sequences(batch, name) >= least for name, least in minimums.items())


@given(queues(), st.integers(1, 16))
def test_batch_is_exact_whenever_brute_force_finds_one_with_the_oldest_group_and_older_groups_win(
    queue: list[Candidate], batch_size: int
) -> None:
    batch = compose(queue, batch_size=batch_size, minimums={})
    if sequences(queue) < batch_size or not queue:
        assert batch == []
        return
    assert batch[0] == queue[0]
    rivals = batches_with_the_oldest(queue)
    below = {size for rival in rivals if (size := sequences(rival)) <= batch_size}
    assert sequences(batch) == (max(below) if below else queue[0].size)
    ages = min([int(group.id) for group in rival] for rival in rivals if sequences(rival) == sequences(batch))
    assert [int(group.id) for group in batch] == ages


@given(queues(), st.integers(1, 16), st.fixed_dictionaries({"a": st.integers(1, 8), "b": st.integers(1, 8)}))
def test_minimums_are_kept_whenever_an_exact_batch_can_keep_them(
    queue: list[Candidate], batch_size: int, minimums: dict[str, int]
) -> None:
    batch = compose(queue, batch_size=batch_size, minimums=minimums)
    if not batch or sum(minimums.values()) > batch_size:
        return
    exact = [c for c in batches_with_the_oldest(queue) if sequences(c) == batch_size]
    if any(keeps(candidate, minimums) for candidate in exact):
        assert keeps(batch, minimums)
    assert not exact or sequences(batch) == batch_size


def test_minimum_without_data_does_not_hold_up_the_others() -> None:
    queue = [Candidate(str(n), "busy", 4) for n in range(4)]
    assert compose(queue, batch_size=16, minimums={"silent": 8}) == queue


@pytest.mark.parametrize("seed", range(2))
def test_no_group_starves_in_a_long_run_of_sizes_that_do_not_divide(seed: int) -> None:
    rng = random.Random(seed)
    queue: list[Candidate] = []
    arrived, handed_out = 0, []
    for _ in range(400):
        while sequences(queue) < 48:
            queue.append(Candidate(str(arrived), rng.choice(ENVIRONMENTS), rng.choice((3, 4, 5, 7, 16, 20))))
            arrived += 1
        batch = compose(queue, batch_size=16, minimums={"a": 4})
        assert batch[0] == queue[0]
        assert sequences(batch) <= 16 or len(batch) == 1
        handed_out += batch
        queue = [group for group in queue if group not in batch]
    waits = [place - int(group.id) for place, group in enumerate(handed_out)]
    assert max(waits) <= 16  # nobody is overtaken by more than what fits into the queue


def test_batch_of_a_thousand_out_of_thousands_is_found_in_no_time() -> None:
    rng = random.Random(0)
    queue = [Candidate(str(n), rng.choice(ENVIRONMENTS), rng.choice((3, 5, 7, 8))) for n in range(4096)]
    start = time.process_time()
    batch = compose(queue, batch_size=1024, minimums={"a": 400, "b": 400})
    assert sequences(batch) == 1024
    assert min(sequences(batch, "a"), sequences(batch, "b")) >= 400
    assert time.process_time() - start < 1.0
