"""The trajectories behind the rows of a data set, and what is known of a trajectory by itself."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.canonical import canonical_json
from loomrl.config import HubConfig
from loomrl.errors import CorruptPayload, DataError
from loomrl.feedback.contamination import normalise
from loomrl.hub import Hub, open_hub
from loomrl.process import Closing
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.recording.trajectory import FAMILY
from loomrl.serving.retention.archive import ids_in, read_file
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.archives import list_files
from loomrl.store.datasets import DatasetRow
from loomrl.store.db import is_there
from loomrl.types import Tokens, Trajectory, Turn

log = redacted_logger(__name__)


OF_ENDPOINT = "endpoint-"
"""Beginning of the names of endpoints' hubs."""
FILES = 4
"""Archived files in memory at a time."""


class Contents(Closing):
    """Reads the trajectories of data sets from the hubs beside a LoomDB; each hub is opened once."""

    def __init__(self, store_url: str) -> None:
        self._url = store_url
        self._open = ExitStack()
        self._hubs: dict[str, Hub] = {}
        self._db: LoomDB | None = None
        self._ids: dict[str, frozenset[str]] = {}
        """Archived file → the ids of its trajectories."""
        self._read: dict[str, dict[str, Trajectory]] = {}
        """The archived files that were read last."""

    def hub(self, name: str) -> Hub:
        """The hub of this name; a DataError if there is none."""
        if name not in self._hubs:
            url = beside(self._url, name)
            if not is_there(url):
                raise DataError(
                    f"there is no hub {name!r} beside {self._url}: nothing was ever stored under this name."
                )
            self._hubs[name] = self._open.enter_context(open_hub(url, HubConfig()))
        return self._hubs[name]

    def read(self, row: DatasetRow) -> Trajectory | None:
        """The row's trajectory, from the hub or the archive; None if it has been deleted or damaged since. A DataError
        if it is another one now.
        """
        try:
            found = self.hub(row.hub).read(row.position - 1, limit=1)
        except CorruptPayload as error:
            log.error("trajectory %s in hub %s cannot be read: %s", row.trajectory, row.hub, error)
            return None
        is_there = found and found[0][1].id == row.trajectory
        trajectory = found[0][1] if is_there else self._archived(row)
        if trajectory is None:
            return None
        if fingerprint(trajectory) != row.sha256:
            raise DataError(
                f"trajectory {row.trajectory!r} in hub {row.hub!r} is not what was frozen (SHA-256). A trajectory is "
                "never edited: was the hub restored from another copy? Freeze the data set anew."
            )
        return trajectory

    def _archived(self, row: DatasetRow) -> Trajectory | None:
        """The row's trajectory if it moved into a file; a file that has lost a person is another one."""
        endpoint = row.hub.removeprefix(OF_ENDPOINT)
        if endpoint == row.hub:
            return None
        if self._db is None:
            self._db = self._open.enter_context(open_store(self._url))
        kept = {file.url for file in list_files(self._db, endpoint) if file.state == "kept"}
        for new in kept - self._ids.keys():
            self._ids[new] = frozenset(ids_in(new))
        url = next((url for url in kept if row.trajectory in self._ids[url]), None)
        if url is None:
            return None
        if url not in self._read:
            self._read = dict([*self._read.items()][1 - FILES :])
            self._read[url] = {one.id: one for one in read_file(url)}
        return self._read[url].get(row.trajectory)

    def close(self) -> None:
        """Close the hubs."""
        self._open.close()


def turns_of(attempt: Trajectory) -> Iterator[Turn]:
    """The turns of all threads."""
    return (turn for turns in attempt.sequences for turn in turns)


def tokens_of(attempt: Trajectory) -> Iterator[Tokens]:
    """The token columns of all turns that have them."""
    return (turn.tokens for turn in turns_of(attempt) if turn.tokens is not None)


def domain_of(attempt: Trajectory) -> str:
    """The task type: `domain` in the outcome that a caller told, else the task's family, else its environment."""
    told = attempt.extra.get("session", {}).get("outcome", {}).get("domain")
    if isinstance(told, str) and told:
        return told
    return attempt.task.family if attempt.task.family not in ("", FAMILY) else attempt.task.environment


def versions_of(attempt: Trajectory) -> tuple[str, ...]:
    """The policies that answered in a served session."""
    return tuple(attempt.extra.get("session", {}).get("versions", ()))


def prompt_of(attempt: Trajectory) -> str:
    """A hash of the first messages, by which equal prompts are known; of a control policy, of its first observation."""
    if attempt.steps is not None and not attempt.turns:
        return _sha256_of(b"".join(array[:1].tobytes() for array in _arrays(attempt.steps.observations)))
    first = attempt.turns[0].observation if attempt.turns else ()
    return _sha256([[message.role, normalise(message.text)] for message in first])


def characters_of(attempt: Trajectory) -> int:
    """The length of all messages and answers."""
    return sum(len(turn.action) + sum(len(m.content) for m in turn.observation) for turn in turns_of(attempt))


def fingerprint(attempt: Trajectory) -> str:
    """SHA-256 of what can be learnt from a trajectory: its texts, pictures and token columns, or its steps."""
    digest = hashlib.sha256()
    for turns in attempt.sequences:
        for turn in turns:
            said = [[m.role, m.content, *(_sha256_of(image) for image in m.images)] for m in turn.observation]
            digest.update(canonical_json([said, turn.action]))
            for array in () if turn.tokens is None else turn.tokens.arrays():
                digest.update(array.tobytes())
        digest.update(b"/")
    if attempt.steps is not None and not attempt.turns:
        for name in ("observations", "actions", "logprobs_T", "sampled_T", "lanes_T", "wishes"):
            for array in _arrays(getattr(attempt.steps, name)):
                digest.update(array.tobytes())
    return digest.hexdigest()


def _arrays(value: Any) -> Iterator[NDArray[Any]]:
    """The arrays of nested observations, in an order of their own."""
    if isinstance(value, Mapping):
        yield from (array for name in sorted(value) for array in _arrays(value[name]))
    elif isinstance(value, list | tuple):
        yield from (array for part in value for array in _arrays(part))
    else:
        yield np.ascontiguousarray(value)


def _sha256(value: object) -> str:
    return _sha256_of(canonical_json(value))


def _sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
