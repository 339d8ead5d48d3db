"""Other people's agents: each has a hub of its own beside LoomDB, and is on record with it."""

import hashlib
import re
import uuid

from loomrl.config import HubConfig
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_hub
from loomrl.store import LoomDB, beside
from loomrl.store.erasures import ORIGIN
from loomrl.store.events import EVENTS, Event
from loomrl.store.notes import Notes

CAME = "agent.came"
"""Kind of the event that puts an agent on record."""
PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,40}")
PAGE = 1000


def hub_name(agent: str) -> str:
    """The name of an agent's hub; what cannot be part of a name is replaced, and told apart by a hash."""
    if PLAIN.fullmatch(agent):
        return f"agent-{agent}"
    digest = hashlib.sha256(agent.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"agent-{re.sub(r'[^A-Za-z0-9_.-]+', '-', agent)[:30]}-{digest}"


def open_agent_hub(url: str, agent: str, settings: HubConfig) -> Hub:
    """The hub of an agent's trajectories: a LoomDB beside the one behind `url`."""
    return open_hub(beside(url, hub_name(agent)), settings)


def list_agents(db: LoomDB) -> dict[str, str]:
    """The agents whose trajectories were taken in, and the names of their hubs; in the order in which they came."""
    found: dict[str, str] = {}
    after = 0
    while page := EVENTS.read(db, after=after, limit=PAGE, kind=CAME):
        after = page[-1][0]
        found |= {event.subject: event.data["hub"] for _, event in page}
    return found


def record_agent(db: LoomDB, agent: str, *, at: float) -> None:
    """Put an agent on record."""
    EVENTS.append(db, [Event(kind=CAME, subject=agent, data={"hub": hub_name(agent)}, created_at=at)])


STORE = "Loomrl-Store"
"""Header of our own events: the LoomDB that they come from, so that it does not take them in."""


def origin_of(db: LoomDB) -> str:
    """The id of a LoomDB, made at the first request."""
    return Notes(db).keep_first(ORIGIN, uuid.uuid4().hex)
