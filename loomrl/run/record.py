"""Recorded runs: started in LoomDB before any work, finished or failed in any case; and their folders."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loomrl.config import Records, Root
from loomrl.config.sweep import Sweep
from loomrl.errors import ConfigError
from loomrl.files import make_private
from loomrl.load import dump
from loomrl.run.source import source_hashes
from loomrl.store import LoomDB
from loomrl.store.runs import Claim, Run, RunStatus, code_revision, finish_run, start_run


def run_folder(records: Records, run: str) -> Path:
    """The folder of a run's metrics and reports, created if missing."""
    folder = Path(records.folder) / run
    try:
        make_private(folder)
    except OSError as error:
        raise ConfigError(f"train.folder={records.folder!r}: {error}. Choose a folder that can be written.") from None
    return folder


def begin_run(
    db: LoomDB,
    experiment: Root | Sweep,
    environments: Mapping[str, str],
    *,
    id: str,
    kind: str,
    parent: str | None = None,
) -> Claim:
    """Put a run on record, or resume it. `parent` is another run's version it begins with."""
    run = Run(
        id=id,
        name=experiment.name,
        kind=kind,
        experiment=experiment.sha256,
        resolved=dump(experiment),
        code=code_revision(),
        environments=environments,
        parent_policy=parent,
        started_at=time.time(),
    )
    return start_run(db, run, sources=source_hashes(experiment))


@contextmanager
def recorded(
    db: LoomDB,
    experiment: Root,
    environments: Mapping[str, str],
    *,
    id: str,
    kind: str,
    clock: Callable[[], float],
) -> Iterator[dict[str, Any]]:
    """Record the block as a run; what it puts into the mapping is the run's result."""
    begin_run(db, experiment, environments, id=id, kind=kind)
    result: dict[str, Any] = {}
    try:
        yield result
    except BaseException as error:
        finish_run(db, id, status=RunStatus.FAILED, finished_at=clock(), result={"error": repr(error)})
        raise
    finish_run(db, id, status=RunStatus.FINISHED, finished_at=clock(), result=result)
