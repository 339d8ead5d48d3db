"""The world of tools: files, tables, a log, a clock. Its final state decides whether the task is solved."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

Row = dict[str, Any]

MOST_FILES = 40
MOST_CHARACTERS = 4000
"""Length of a file."""
MOST_ROWS = 60
"""Rows of a table."""


class ToolError(Exception):
    """A call that was refused, or failed, as an HTTP API would say it."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.answer = {"error": {"status": status, "message": message, **more}}


@dataclass(slots=True)
class ToolWorld:
    """The state of one episode. `edition` determines the content of the corpus."""

    edition: str = ""
    files: dict[str, str] = field(default_factory=dict)
    tables: dict[str, list[Row]] = field(default_factory=dict)
    log: list[Row] = field(default_factory=list)
    """Past actions, for inspection; not part of the state."""

    def copy(self) -> Self:
        """An independent copy."""
        tables = {name: [dict(row) for row in rows] for name, rows in self.tables.items()}
        return type(self)(self.edition, dict(self.files), tables, [dict(row) for row in self.log])

    @property
    def state(self) -> Mapping[str, Any]:
        """Equal for worlds in which the same is true; ids and the order of rows do not count."""
        tables = {name: sorted(map(_plain, rows)) for name, rows in self.tables.items()}
        return {"files": {path: _tidy(text) for path, text in self.files.items()}, "tables": tables}

    def write(self, path: str, text: str) -> None:
        """Make the file what `text` says, inside the quota."""
        if len(text) > MOST_CHARACTERS:
            raise ToolError(413, f"a file has at most {MOST_CHARACTERS} characters")
        if path not in self.files and len(self.files) >= MOST_FILES:
            raise ToolError(507, f"there is room for {MOST_FILES} files only")
        self.files[path] = text

    def rows(self, table: str) -> list[Row]:
        """A table; a 404 where this world has no such thing."""
        if table not in self.tables:
            raise ToolError(404, f"there are no {table} here")
        return self.tables[table]

    def add(self, table: str, **row: Any) -> Row:
        """A new row with a new id."""
        rows = self.rows(table)
        if len(rows) >= MOST_ROWS:
            raise ToolError(507, f"there is room for {MOST_ROWS} {table} only")
        numbers = [int(old["id"][1:]) for old in rows]
        rows.append({"id": f"{table[0]}{max(numbers, default=0) + 1}", **row})
        return rows[-1]

    def row(self, table: str, key: str, value: str) -> Row:
        """The only row with this value; a 404 if there is none."""
        for row in self.rows(table):
            if row[key] == value:
                return row
        raise ToolError(404, f"there is no {key} {value[:40]!r}")


def _plain(row: Row) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in row.items() if name != "id"))


def _tidy(text: str) -> str:
    """The text without invisible differences: kinds of line ends, spaces at the end of lines and of the text."""
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").split("\n")).rstrip()
