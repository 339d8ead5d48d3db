"""A lab: hosts on this machine with networks, disks and processes of their own, whose links and power can fail."""

from loomrl.cluster.lab.lab import Lab
from loomrl.cluster.lab.plan import Link

__all__ = ["Lab", "Link"]
