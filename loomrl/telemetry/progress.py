"""Progress of long work with the time left: a live bar on a terminal, plain lines elsewhere. Always on stderr; stdout
is for results.
"""

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
    label: str,
    total: int,
    *,
    begun: int = 0,
    only_if_long: bool = False,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Progress]:
    """Report on `total` pieces of work, of which `begun` were done before; the last state is always shown.

    `only_if_long`: in lines, which may be written while another bar is shown, and nothing of what is quickly done.
    """
    stream = stream or sys.stderr
    if stream.isatty() and not only_if_long:
        shown = _bar(label, total, begun, stream)
    else:
        shown = _lines(label, total, begun, only_if_long, stream, clock)
    with shown as report:
        yield report


@contextmanager
def _bar(label: str, total: int, begun: int, stream: TextIO) -> Iterator[Progress]:
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
        bar = bars.add_task(label, total=total, completed=begun, note="")
        yield lambda done, note="": bars.update(bar, completed=done, note=note)


@contextmanager
def _lines(
    label: str, total: int, begun: int, only_if_long: bool, stream: TextIO, clock: Callable[[], float]
) -> Iterator[Progress]:
    started = last = clock()
    unsaid = ""

    def report(done: int, note: str = "") -> None:
        nonlocal last, unsaid
        now = clock()
        if only_if_long and now - started < LINE_EVERY_S:
            return
        spent = span(now - started)
        left = _remaining_text(now - started, done - begun, total - done)
        unsaid = f"{label}: {done}/{total} after {spent}{left}{'  ' + note if note else ''}"
        if now - last >= LINE_EVERY_S or done >= total:
            print(unsaid, file=stream, flush=True)
            last, unsaid = now, ""

    try:
        yield report
    finally:
        if unsaid:
            print(unsaid, file=stream, flush=True)


def span(seconds: float) -> str:
    """A time as people say it: two units at most."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _remaining_text(spent: float, done: int, rest: int) -> str:
    """The time that the rest takes at the pace so far; nothing where there is no pace yet."""
    return f", about {span(spent * rest / done)} left" if done > 0 and rest > 0 and spent > 0 else ""
