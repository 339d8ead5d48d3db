"""Events as they leave and arrive: five contracts, a bus in LoomDB or on NATS, what is published and what is taken in.

Importing this loads neither torch nor Ray: `publish_trajectory` is for other people's agents.
"""

from loomrl.bus.client import Publisher, publish_trajectory

__all__ = ["Publisher", "publish_trajectory"]
