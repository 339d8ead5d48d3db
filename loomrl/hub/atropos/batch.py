"""The next batch of an Atropos trainer: a pure function of the groups that are ready.

A trainer asks for a number of sequences and groups are whole, so this is a subset sum. It promises, in this order:

1. The oldest group is in every batch. So no group starves, of any size.
2. The batch holds exactly the sequences asked for whenever groups that include the oldest add up to them; failing
   that, the most that stays below. (Trainers cut a batch into micro-batches: a short last one is fine, a batch that is
   too long is not. Only a group that alone is larger than a batch goes out as one that is too long.)
3. Environments get their minimum, as far as they have data and the first two promises allow.

Among the batches that keep these, the one with the older groups wins. There is none before enough sequences are ready.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

# A set of sums is an int here: bit s is set when s sequences can be had.


class Candidate(NamedTuple):
    """A ready group; `size` counts its sequences."""

    id: str
    environment: str
    size: int


def compose(ready: Sequence[Candidate], *, batch_size: int, minimums: Mapping[str, int]) -> list[Candidate]:
    """The next batch out of `ready`, both oldest first; empty while there is too little.

    `minimums` are sequences per environment.
    """
    if not ready or sum(group.size for group in ready) < batch_size:
        return []
    oldest = ready[0]
    if oldest.size >= batch_size:
        return [oldest]
    useful = _useful(ready, batch_size, minimums)
    for floors in _relax(useful, batch_size, minimums):
        if chosen := _choose(useful, batch_size, floors):
            return chosen
    within = (2 << batch_size) - 1
    most = (_sums([group.size for group in useful[1:]]) << oldest.size & within).bit_length() - 1
    return _choose(useful, most, {})


def _useful(ready: Sequence[Candidate], batch_size: int, minimums: Mapping[str, int]) -> list[Candidate]:
    """No more groups of each size than one batch can hold: this bounds the work, and loses no combination."""
    seen: Counter[tuple[str | None, int]] = Counter()
    useful = []
    for group in ready:
        kind = (_pool(group, minimums), group.size)
        seen[kind] += 1
        if seen[kind] * group.size <= batch_size:
            useful.append(group)
    return useful


def _relax(groups: Sequence[Candidate], batch_size: int, minimums: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """The minimums as far as there is data; then what whole groups make of them from below; then none."""
    scale = min(1.0, batch_size / max(1, sum(minimums.values())))
    sizes = {name: [group.size for group in groups if group.environment == name] for name in minimums}
    wanted = {name: min(int(least * scale), sum(sizes[name])) for name, least in minimums.items()}
    yield wanted
    yield {name: (_sums(sizes[name]) & (2 << least) - 1).bit_length() - 1 for name, least in wanted.items()}
    yield {}


def _choose(groups: Sequence[Candidate], target: int, floors: Mapping[str, int]) -> list[Candidate]:
    """The oldest groups, the first included, that hold exactly `target` and no environment less than its floor."""
    pools: dict[str | None, list[int]] = {}
    for group in groups:
        pools.setdefault(_pool(group, floors), []).append(group.size)
    rest = {pool: _sums_of_tails(sizes) for pool, sizes in pools.items()}
    taken = dict.fromkeys(pools, 0)

    def is_possible() -> bool:
        total = 1
        for pool, tails in rest.items():
            floor = floors.get(pool, 0) if pool is not None else 0
            total = _add(total, tails[-1] << taken[pool] >> floor << floor, target)
        return bool(total >> target & 1)

    def is_too_much(pool: str | None) -> bool:
        """Cheap, and true of almost everything that does not fit."""
        owed = sum(max(0, floor - taken.get(name, 0)) for name, floor in floors.items() if name != pool)
        return sum(taken.values()) + owed > target

    chosen: list[Candidate] = []
    for group in groups:
        pool = _pool(group, floors)
        rest[pool].pop()
        taken[pool] += group.size
        if not is_too_much(pool) and is_possible():
            chosen.append(group)
        elif not chosen:
            return []
        else:
            taken[pool] -= group.size
        if sum(taken.values()) == target:
            break
    return chosen


def _pool(group: Candidate, floors: Mapping[str, int]) -> str | None:
    """Environments without a minimum need not be told apart."""
    return group.environment if group.environment in floors else None


def _sums(sizes: Sequence[int]) -> int:
    return _sums_of_tails(sizes)[-1]


def _sums_of_tails(sizes: Sequence[int]) -> list[int]:
    """The sums that subsets of `sizes[i:]` reach, for every i from the end to the beginning."""
    return list(accumulate(reversed(sizes), lambda sums, size: sums | sums << size, initial=1))


def _add(left: int, right: int, limit: int) -> int:
    """Every sum of one of `left` and one of `right`, up to `limit`."""
    within = (2 << limit) - 1
    left, right = sorted((left & within, right & within), key=int.bit_count)
    sums = 0
    while left:
        lowest = left & -left
        sums |= right * lowest & within
        left ^= lowest
    return sums
