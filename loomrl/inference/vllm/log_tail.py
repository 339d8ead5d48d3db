"""The last log lines of another process."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LINES = 12
_PREFIX = re.compile(r"^\(\S+ pid=\d+\) (?:[A-Z]+ \d\d-\d\d [\d:]+ \[\S+\])? ?")
_ERROR = re.compile(r"(?:^|\s)(\w+(?:\.\w+)*(?:Error|Exception)): (?!.*See root cause|.*See stack trace)(.+)$")


@contextmanager
def written_to(log: Path) -> Iterator[None]:
    """In this context, standard output and error of this process, and of long-lived children, go to a file."""
    kept = [os.dup(1), os.dup(2)]
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        yield
    finally:
        for stream, before in zip((1, 2), kept, strict=True):
            os.dup2(before, stream)
            os.close(before)


def cause(log: Path) -> str | None:
    """The first exception of the last lines, from which the others follow."""
    found = [match for line in _last(log, 200) if (match := _ERROR.search(line))]
    return f"{found[0][1]}: {found[0][2]}" if found else None


def tail(log: Path) -> str:
    """The end of a log as part of an error message."""
    lines = _last(log, LINES)
    if not lines:
        return ""
    return f"It said last ({log}):\n" + "\n".join(lines)


def _last(log: Path, lines: int) -> list[str]:
    if not log.is_file():
        return []
    return [_PREFIX.sub("", line) for line in log.read_text(errors="replace").splitlines()[-lines:]]
