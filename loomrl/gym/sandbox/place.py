"""What is held for one box: a slot, and a cgroup where there can be one."""

from dataclasses import dataclass

from loomrl.errors import SandboxError
from loomrl.gym.sandbox.cgroup import Cgroup, make_cgroup
from loomrl.gym.sandbox.contract import Limits
from loomrl.gym.sandbox.slot import Slot, Slots

WATCHERS = 4
"""Processes of a box that are not the program's: the first, the guest, and some that are just ending."""


@dataclass(frozen=True, slots=True)
class Place:
    """What is held for a box while it is there."""

    slot: Slot
    cgroup: Cgroup | None

    @staticmethod
    async def take(slots: Slots, limits: Limits, *, extra_mb: int = 0, extra_processes: int = WATCHERS) -> "Place":
        """A slot, and a cgroup where there can be one, with more of both for what is not the program's."""
        slot = await slots.lease()
        memory = limits.memory_bytes + (extra_mb << 20)
        try:
            group = make_cgroup(
                f"loomrl-slot-{slot.number}", memory=memory, processes=limits.processes + extra_processes
            )
        except OSError as error:
            slot.release(clean=True)
            raise SandboxError(f"no cgroup could be set up: {error}") from error
        return Place(slot, group)

    def give_back(self, *, clean: bool) -> None:
        """The next one may have it. Unless it is `clean`, that one looks for leftovers first."""
        if self.cgroup is not None:
            self.cgroup.remove()
        self.slot.release(clean=clean)
