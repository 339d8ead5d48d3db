"""Progress of long work: a live bar on a terminal, plain lines elsewhere. Always on stderr; stdout is for results."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

LINE_EVERY_S = 5.0


class Progress(Protocol):
    """Reports progress."""

    def __call__(self, done: int, note: str = "") -> None:
        """Report the pieces done so far, with a note."""


@contextmanager
def progress(
    label: str, total: int, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """Report on `total` pieces of work; the last state is always shown."""
    stream = stream or sys.stderr
    shown = _bar(label, total, stream) if stream.isatty() else _lines(label, total, stream, clock)
    with shown as report:
        yield report


@contextmanager
def _bar(label: str, total: int, stream: TextIO) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with RichProgress(*columns, console=Console(file=stream)) as bars:
        bar = bars.add_task(label, total=total, note="")
        yield lambda done, note="": bars.update(bar, completed=done, note=note)


@contextmanager
def _lines(label: str, total: int, stream: TextIO, clock: Callable[[], float]) -> Iterator[Progress]:
    started = last = clock()
    unsaid = ""

    def report(done: int, note: str = "") -> None:
        nonlocal last, unsaid
        now = clock()
        unsaid = f"{label}: {done}/{total} after {now - started:.0f} s{'  ' + note if note else ''}"
        if now - last >= LINE_EVERY_S or done >= total:
            print(unsaid, file=stream, flush=True)
            last, unsaid = now, ""

    try:
        yield report
    finally:
        if unsaid:
            print(unsaid, file=stream, flush=True)
