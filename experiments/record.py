"""A run on record: started before it does anything, finished or failed whatever happens."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from loomrl.config import Root
from loomrl.load import dump
from loomrl.store import LoomDB
from loomrl.store.runs import Run, RunStatus, code_revision, finish_run, start_run


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
    run = Run(
        id=id,
        name=experiment.name,
        kind=kind,
        experiment=experiment.sha256,
        resolved=dump(experiment),
        code=code_revision(),
        environments=environments,
        started_at=clock(),
    )
    start_run(db, run)
    result: dict[str, Any] = {}
    try:
        yield result
    except BaseException as error:
        finish_run(db, id, status=RunStatus.FAILED, finished_at=clock(), result={"error": repr(error)})
        raise
    finish_run(db, id, status=RunStatus.FINISHED, finished_at=clock(), result=result)
