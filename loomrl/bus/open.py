"""The one way to a bus: by URL."""

from urllib.parse import urlsplit

from loomrl.bus.bus import Bus
from loomrl.errors import BusError, unknown

SCHEMES = ("nats", "tls", "sqlite", "postgresql")


def open_bus(url: str) -> Bus:
    """The bus behind `nats://[USER:PASSWORD@]HOST[:PORT]`, or the one in a LoomDB by its URL."""
    scheme = urlsplit(url).scheme.partition("+")[0]
    if scheme in ("nats", "tls"):
        try:
            from loomrl.bus.jetstream import JetStreamBus
        except ModuleNotFoundError:
            raise BusError("bus: NATS needs its client. Install it: pip install 'loomrl[nats]'.") from None
        return JetStreamBus(url)
    if scheme in ("sqlite", "postgresql"):
        from loomrl.bus.stored import StoredBus
        from loomrl.store import open_store

        return StoredBus(open_store(url))
    raise BusError("bus URL " + unknown("scheme", scheme, SCHEMES))
