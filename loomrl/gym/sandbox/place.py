"""The resources of one box: a slot, and a cgroup if possible."""

from dataclasses import dataclass

from loomrl.errors import SandboxError
from loomrl.gym.sandbox.cgroup import Cgroup, make_cgroup
from loomrl.gym.sandbox.contract import Limits
from loomrl.gym.sandbox.slot import Slot, Slots

WATCHERS = 4
"""Processes of a box besides the program's: the first, the guest, and a few that are just ending."""


@dataclass(frozen=True, slots=True)
class Place:
    """The resources of a box while it exists."""

    slot: Slot
    cgroup: Cgroup | None

    @staticmethod
    async def take(slots: Slots, limits: Limits, *, extra_mb: int = 0, extra_processes: int = WATCHERS) -> "Place":
        """A slot, and a cgroup if possible, with a margin for processes that are not the program's."""
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
        """Release the slot. Unless it is `clean`, its next user looks for leftovers first."""
        if self.cgroup is not None:
            self.cgroup.remove()
        self.slot.release(clean=clean)
