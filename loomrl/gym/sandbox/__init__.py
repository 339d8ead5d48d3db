"""Sandboxes for untrusted programs. There is no unsafe fallback: without a safe sandbox nothing runs."""

import shutil
from functools import cache

from loomrl.errors import ConfigError, unknown
from loomrl.gym.sandbox.contract import Ending, Execution, Limits
from loomrl.gym.sandbox.place import Slots
from loomrl.gym.sandbox.session import Boxes, Sandbox, SandboxSession

__all__ = ["Ending", "Execution", "Limits", "Sandbox", "SandboxSession", "Slots", "open_sandbox"]

KINDS = {"bubblewrap": "bwrap", "gvisor": "runsc"}
"""Kind of sandbox → the program it needs."""

DEFAULT_SLOTS = Slots()


def open_sandbox(kind: str = "auto", *, slots: Slots = DEFAULT_SLOTS) -> Sandbox:
    """A sandbox that has passed its proof; `auto` is the first kind that does. Without any, a ConfigError lists the
    reasons.

    The proof takes some tenths of a second, once per process.
    """
    if kind != "auto" and kind not in KINDS:
        raise ConfigError(unknown("sandbox", kind, ["auto", *KINDS]))
    if kind != "auto":
        return Sandbox(_open_boxes(kind, slots))
    refusals = []
    for name, program in KINDS.items():
        # A kind whose program is missing is skipped without a complaint; one that fails its proof is reported.
        if shutil.which(program):
            try:
                return Sandbox(_open_boxes(name, slots))
            except ConfigError as error:
                refusals.append(str(error))
    raise ConfigError(
        "there is no safe sandbox on this machine, and nothing untrusted runs without one. "
        f"{' '.join(refusals)} Install bubblewrap (apt-get install bubblewrap) or gVisor (apt-get install runsc); "
        "in a container also allow user namespaces."
    )


@cache
def _open_boxes(kind: str, slots: Slots) -> Boxes:
    """Boxes of this kind, after their proof."""
    from loomrl.gym.sandbox.bubblewrap import find_bubblewrap
    from loomrl.gym.sandbox.gvisor import find_gvisor
    from loomrl.gym.sandbox.proof import prove

    boxes = find_bubblewrap(slots) if kind == "bubblewrap" else find_gvisor(slots)
    prove(boxes)
    return boxes
