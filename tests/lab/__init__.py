"""A lab: hosts on this machine with networks, disks and processes of their own, whose links and power can fail."""

from tests.lab.lab import Lab
from tests.lab.plan import Link

__all__ = ["Lab", "Link"]
