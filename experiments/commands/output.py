"""Output of commands: a result for people or, with `--json`, one JSON object on the last line of stdout."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loomrl.experiments.commands.face import face

WIDTH = 160
"""Columns of output that does not go to a terminal."""
COLUMNS = 8
"""Most counts in a table."""
_FLUSH_RIGHT: dict[str, Any] = {"justify": "right", "no_wrap": True}


def emit(result: Mapping[str, Any], text: str = "", *, show: Callable[[Console], None] | None = None) -> None:
    """Print the result once: for people a text, or what `show` prints; one JSON object if `--json` asks for it."""
    if face().as_json:
        print_json(result)
        return
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
    if show is None:
        console.print(text, highlight=False, markup=False)
    else:
        show(console)


def print_json(result: Mapping[str, Any]) -> None:
    """Print a result as one line of JSON."""
    print(json.dumps(result, ensure_ascii=False, allow_nan=False, default=str), flush=True)


def beginning(what: str) -> None:
    """Say on stderr what begins: before anything that takes seconds, imports too."""
    print(f"loomrl: {what} …", file=sys.stderr, flush=True)


def remark(what: str) -> None:
    """Say on stderr what a command takes for granted."""
    print(f"loomrl: {what}.", file=sys.stderr, flush=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table; columns whose name ends in `>` are flushed right."""
    drawn = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column.removesuffix(">"), **_FLUSH_RIGHT if column.endswith(">") else {})
    for row in rows:
        drawn.add_row(*("" if cell is None else escape(str(cell)) for cell in row))
    return drawn


def shown_counts(most: int) -> list[int]:
    """The columns of a table from 1 to `most`: all of a few; of many the first, the last, and some between."""
    return (
        sorted({round(most ** (step / (COLUMNS - 1))) for step in range(COLUMNS)})
        if most > COLUMNS
        else [*range(1, most + 1)]
    )
