"""The tower of Hanoi from any legal position: everything is to end up on the last peg."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from loomrl.gym.generate import between

PEGS = "abc"
NEAR = 3
"""The shortest solution is at most so much longer than the level asks for."""


@dataclass(frozen=True, slots=True)
class Hanoi:
    """Disks on pegs."""

    rules = (
        "Tower of Hanoi. Move all disks to peg c. Only the top disk of a peg moves, never onto a smaller one. "
        "A move is two pegs, such as ab."
    )

    pegs: tuple[int, ...]
    """Of every disk, the smallest first."""

    def shown(self) -> str:
        """Every peg's disks from the bottom, larger numbers for larger disks."""
        return "\n".join(f"{name}: {self._on(number)}" for number, name in enumerate(PEGS))

    def moves(self) -> Sequence[str]:
        """Top disks to where they may go."""
        tops = [min((disk for disk, peg in enumerate(self.pegs) if peg == at), default=99) for at in range(3)]
        return [PEGS[a] + PEGS[b] for a in range(3) for b in range(3) if tops[a] < tops[b]]

    def after(self, move: str) -> "Hanoi":
        """With the top disk moved."""
        source, target = map(PEGS.index, move)
        disk = self.pegs.index(source)
        return replace(self, pegs=(*self.pegs[:disk], target, *self.pegs[disk + 1 :]))

    def distance(self) -> int:
        """Every misplaced disk costs a power of two: those above it must go elsewhere first."""
        target = 2
        moves = 0
        for disk in reversed(range(len(self.pegs))):
            if self.pegs[disk] != target:
                moves += 1 << disk
                target = 3 - target - self.pegs[disk]
        return moves

    def _on(self, at: int) -> str:
        return " ".join(str(disk + 1) for disk in reversed(range(len(self.pegs))) if self.pegs[disk] == at) or "-"


def make_hanoi(level: int, rng: Random) -> Hanoi:
    """A position that is as far from the solution as the level says."""
    least = between(level, 4, 40)
    disks = (least + NEAR).bit_length()
    while True:
        hanoi = Hanoi(tuple(rng.randrange(3) for _ in range(disks)))
        if least <= hanoi.distance() <= least + NEAR:
            return hanoi
