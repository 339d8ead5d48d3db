"""One error type per boundary. An error that crosses a boundary is translated once, into one of these or a
`Failure`.
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from loomrl.types import Failure

MOST_CHOICES = 60
"""Maximum number of choices in a message."""


class LoomError(Exception):
    """Base of every error LoomRL raises for a user. The message names the value, the choices and the remedy."""

    boundary: ClassVar[str] = "loomrl"


class ConfigError(LoomError, ValueError):
    """A setting that is unknown, malformed, or without effect."""

    boundary = "config"


class StoreError(LoomError):
    """LoomDB cannot be opened, is newer than the code, or refused a write."""

    boundary = "store"


class StoreAway(StoreError):
    """The database's server went away in a transaction. What may be done twice may be repeated."""


class RunTaken(StoreError):
    """A run that another process has resumed since: this one must end, and nothing of its counts any more."""


class IdTaken(StoreError):
    """An id that is stored already with other content. Nothing of the write was stored."""


class ArtifactError(LoomError):
    """An artifact that is missing, half-written, or does not match its checksum."""

    boundary = "artifact"


class RegistryError(LoomError, ValueError):
    """An environment that is unknown, or a version registered again with other content."""

    boundary = "registry"


class EpisodeError(LoomError):
    """An environment that raised, hung, or broke its own contract."""

    boundary = "environment"


class PolicyError(LoomError):
    """A policy that raised, hung, or answered with something that is not an action."""

    boundary = "policy"


class ContextFull(PolicyError):
    """A conversation that leaves its policy no room to answer."""


class ScorerError(LoomError):
    """A scorer that gave no answer in time. Never a score of 0."""

    boundary = "scorer"


class JudgeError(ScorerError):
    """A judge that is not there, too late, or refuses. No environment is blamed for it."""

    boundary = "judge"


class SandboxError(LoomError):
    """A sandbox that cannot be set up, or broke under a program. Never an error of the program itself."""

    boundary = "sandbox"


class LearnerError(LoomError):
    """A learner that ran out of memory, or whose loss is not finite. No step was half done."""

    boundary = "learner"


class ClusterError(LoomError):
    """A Ray cluster or job that does not answer, refuses, runs other versions, or has no room."""

    boundary = "cluster"


class ServeError(LoomError):
    """A server that cannot listen on its address, or must not."""

    boundary = "serve"


class HubError(LoomError):
    """The hub refused a request; nothing was stored or changed by it."""

    boundary = "hub"


class DataError(LoomError, ValueError):
    """A data set that is empty, unknown, not what was frozen, or of no use to the algorithm."""

    boundary = "data"


class Conflict(HubError):
    """A trajectory id that is already stored with other content."""


class LeaseLost(HubError):
    """The lease expired and its groups were returned: updates from them must be discarded."""


class CorruptPayload(HubError, ValueError):
    """Bytes that are not a complete LoomRL trajectory."""


class BusError(LoomError):
    """The bus refused something, or cannot do it. What was published before is on the bus."""

    boundary = "bus"


class BusAway(BusError):
    """No broker answers now: try again later."""


class BusRefused(BusError):
    """The broker's permissions refuse this account what it asked for."""


class TooLarge(BusError, ValueError):
    """A message that is larger than the bus takes; nothing of the call was published."""

    def __init__(self, message: str, *, id: str) -> None:
        super().__init__(message)
        self.id = id


class AnalyticsError(LoomError):
    """A columnar store that is in use, of another schema or another LoomDB, or a query that it refuses."""

    boundary = "analytics"


class EventError(BusError, ValueError):
    """An event that its contract does not allow."""


def failure_from(error: BaseException, *, boundary: str) -> "Failure":
    """The record of an exception at a boundary; a LoomError keeps its own boundary."""
    from loomrl.types import Failure  # which loads NumPy: the errors alone do not need it

    where = error.boundary if isinstance(error, LoomError) else boundary
    return Failure(where, type(error).__name__, str(error)[:2000])


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The most similar choice, or None."""
    matches = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return matches[0] if matches else None


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A sentence with the nearest choice, to append to another one; empty if none is similar."""
    guess = nearest(name, choices)
    return f" Did you mean {guess!r}?" if guess else ""


def unknown(what: str, name: object, choices: Iterable[str]) -> str:
    """The message for an unknown name: value, choices, nearest choice."""
    known = sorted(choices)
    return f"{what}={name!r:.100} is unknown. {there_are(known)}{did_you_mean(str(name)[:100], known)}"


def there_are(choices: Sequence[str]) -> str:
    """A sentence with the choices, shortened if there are many."""
    more = f" and {len(choices) - MOST_CHOICES} more" if len(choices) > MOST_CHOICES else ""
    return f"Known: {', '.join(choices[:MOST_CHOICES]) or 'none'}{more}."
