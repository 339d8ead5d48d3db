"""The archive: old trajectories as Parquet files, their payloads whole, and beside them columns to search by."""

import json
import secrets
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime

from loomrl.artifacts import Artifacts, locate
from loomrl.hub.codec import decode, encode
from loomrl.parquet import from_parquet, to_parquet
from loomrl.store import LoomDB
from loomrl.store.archives import ArchiveFile, begin_file, drop_file, list_files, move_file
from loomrl.types import Trajectory


def write_file(url: str, trajectories: Sequence[Trajectory]) -> None:
    """Write the artifact behind this URL."""
    artifacts, name = locate(url)
    artifacts.put(
        name,
        to_parquet(
            {
                "id": [one.id for one in trajectories],
                "version": [one.task.version for one in trajectories],
                "started_at": [one.started_at for one in trajectories],
                "finished_at": [one.finished_at for one in trajectories],
                "end": [one.end.value for one in trajectories],
                "reward": [one.reward.total for one in trajectories],
                "success": [one.reward.success for one in trajectories],
                "conversation": [conversation(one) for one in trajectories],
                "payload": [encode(one) for one in trajectories],
            }
        ),
    )


def conversation(trajectory: Trajectory) -> str:
    """The words of all its threads as JSON: for each, a list of messages with `role` and `content`."""
    threads = [
        [
            message
            for turn in turns
            for message in (
                *({"role": said.role, "content": said.text} for said in turn.observation),
                {"role": "assistant", "content": turn.action},
            )
        ]
        for turns in trajectory.sequences
    ]
    return json.dumps(threads, ensure_ascii=False)


def exists(url: str) -> bool:
    """True if the file is complete."""
    artifacts, name = locate(url)
    return artifacts.exists(name)


def ids_in(url: str) -> list[str]:
    """The ids of its trajectories."""
    ids: list[str] = from_parquet(_bytes(url), columns=["id"])["id"]
    return ids


def read_file(url: str) -> list[Trajectory]:
    """Its trajectories, as they were in the hub."""
    return [decode(payload, origin=url) for payload in read_payloads(url)]


def read_payloads(url: str) -> list[bytes]:
    """Its trajectories, encoded."""
    payloads: list[bytes] = from_parquet(_bytes(url), columns=["payload"])["payload"]
    return payloads


def delete_file(url: str) -> None:
    """Delete the artifact, half-written or complete, if it is there."""
    artifacts, name = locate(url)
    artifacts.delete(name, missing_ok=True)


def read_archive(
    db: LoomDB, endpoint: str, *, since: float = float("-inf"), until: float = float("inf")
) -> Iterator[Trajectory]:
    """An endpoint's archived trajectories that ended between these times, each once; a file in memory at a time."""
    seen: set[str] = set()
    for file in list_files(db, endpoint, since=since, until=until):
        if file.state != "kept":
            continue
        for one in read_file(file.url):
            if since <= one.finished_at <= until and one.id not in seen:
                seen.add(one.id)
                yield one


def _bytes(url: str) -> bytes:
    artifacts, name = locate(url)
    return artifacts.get(name)


def write_new(
    db: LoomDB, endpoint: str, artifacts: Artifacts, trajectories: Sequence[Trajectory], *, now: float
) -> ArchiveFile:
    """Write trajectories to a new file, which is on record before."""
    ends = [one.finished_at for one in trajectories]
    day = datetime.fromtimestamp(max(0.0, min(ends)), UTC).strftime("%Y-%m-%d")
    id = f"{endpoint}-{day}-{secrets.token_hex(6)}"
    file = ArchiveFile(
        id=id,
        endpoint=endpoint,
        url=artifacts.url_of(id),
        count=len(trajectories),
        first_at=min(ends),
        last_at=max(ends),
        created_at=now,
    )
    begin_file(db, file)
    write_file(file.url, trajectories)
    return file


def take_out(db: LoomDB, file: ArchiveFile, ids: Collection[str], *, now: float) -> int:
    """Replace a file by one without these trajectories; how many of them were in it."""
    every = read_file(file.url)
    left = [one for one in every if one.id not in ids]
    if len(left) == len(every):
        return 0
    new = write_new(db, file.endpoint, locate(file.url)[0], left, now=now) if left else None
    with db.write() as connection:
        move_file(connection, file.id, "leaving")
        if new is not None:
            move_file(connection, new.id, "kept")
    end_file(db, file)
    return len(every) - len(left)


def end_file(db: LoomDB, file: ArchiveFile) -> None:
    """Delete a file that must not be read any more, then take it off the record."""
    delete_file(file.url)
    drop_file(db, file.id)
