"""One error type per boundary. What crosses one is translated there, once, into one of these – or into a `Failure`."""

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from loomrl.types import Failure

MOST_CHOICES = 60
"""That a message lists."""


class LoomError(Exception):
    """Base of every error LoomRL raises for a user. The message names the value, the choices and the remedy."""

    boundary: ClassVar[str] = "loomrl"


class ConfigError(LoomError, ValueError):
    """A setting that is unknown, malformed, or without effect."""

    boundary = "config"


class StoreError(LoomError):
    """LoomDB cannot be opened, is newer than the code, or refused a write."""

    boundary = "store"


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
    """Whatever acts in an episode raised, hung, or answered with something that is no action."""

    boundary = "policy"


class ScorerError(LoomError):
    """A scorer that could not give an answer in time. Never a score of 0."""

    boundary = "scorer"


class SandboxError(LoomError):
    """A sandbox that cannot be set up, or broke under a program. Never what the program itself did."""

    boundary = "sandbox"


class LearnerError(LoomError):
    """A learner that ran out of memory, or whose loss is no number. No step was half made."""

    boundary = "learner"


class ClusterError(LoomError):
    """A Ray cluster or job that does not answer, refuses, runs other versions, or has no room."""

    boundary = "cluster"


class ServeError(LoomError):
    """A server that cannot listen where it should, or must not."""

    boundary = "serve"


class HubError(LoomError):
    """The hub refused a request; nothing was stored or changed by it."""

    boundary = "hub"


class Conflict(HubError):
    """A trajectory id that is stored already, with other content."""


class LeaseLost(HubError):
    """The lease expired and its groups went back: what was learnt from them must be discarded."""


class CorruptPayload(HubError, ValueError):
    """Bytes that are not a trajectory of ours, or not all of one."""


def failure_from(error: BaseException, *, boundary: str) -> "Failure":
    """The record of an exception that reached a boundary; a LoomError keeps the boundary it names itself."""
    from loomrl.types import Failure  # and NumPy with it, which whoever only needs the errors goes without

    where = error.boundary if isinstance(error, LoomError) else boundary
    return Failure(where, type(error).__name__, str(error)[:2000])


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice a typist most likely meant, or None."""
    matches = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return matches[0] if matches else None


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A sentence with the nearest choice, to be put behind another one; nothing where none is near."""
    guess = nearest(name, choices)
    return f" Did you mean {guess!r}?" if guess else ""


def unknown(what: str, name: object, choices: Iterable[str]) -> str:
    """The message for a name that is none of the choices: value, choices, nearest choice."""
    known = sorted(choices)
    return f"{what}={name!r:.100} is unknown. {there_are(known)}{did_you_mean(str(name)[:100], known)}"


def there_are(choices: Sequence[str]) -> str:
    """A sentence with the choices, of many the first."""
    more = f" and {len(choices) - MOST_CHOICES} more" if len(choices) > MOST_CHOICES else ""
    return f"Known: {', '.join(choices[:MOST_CHOICES]) or 'none'}{more}."
