"""Which ready groups make the next batch of an Atropos trainer: a pure function of what is ready.

A trainer asks for a number of sequences and groups are whole, so this is a subset sum. Three promises, in this order:

1. The oldest group is in every batch. So nothing starves, whatever the sizes.
2. The batch holds exactly the sequences asked for whenever groups that include the oldest add up to them; failing
   that, the most that stays below. (Trainers cut a batch into micro-batches; a short last one is fine, one that is too
   long is not. Only a group that alone is larger than a batch goes out as one that is too long.)
3. Environments get their minimum allocation, as far as they have data and the first two promises allow.

Among the batches that keep them, the older groups win, one by one. There is no batch before enough sequences are ready.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Pool = str | None
"""An environment with a minimum allocation; None is everything else."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ready group as the composition sees it. `size` counts sequences."""

    id: str
    environment: str
    size: int


def compose(ready: Sequence[Candidate], *, batch_size: int, minimums: Mapping[str, int]) -> list[Candidate]:
    """The next batch out of `ready` (oldest first), in that order; empty while there is too little.

    `minimums` are sequences per environment.
    """
    if not ready or sum(group.size for group in ready) < batch_size:
        return []
    if ready[0].size >= batch_size:
        return [ready[0]]
    useful = _useful(ready, batch_size, minimums)
    reachable = _Sums(useful, batch_size, {}).totals() >> ready[0].size << ready[0].size
    for wanted in _relaxed(useful, batch_size, minimums):
        sums = _Sums(useful, batch_size, wanted)
        sums.take(useful[0])
        if sums.totals() >> batch_size & 1:
            return _oldest(useful, sums, batch_size)
    sums = _Sums(useful, batch_size, {})
    sums.take(useful[0])
    return _oldest(useful, sums, sums.totals().bit_length() - 1)
