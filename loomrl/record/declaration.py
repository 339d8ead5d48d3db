"""A kind of record: its columns, its filters, and where its rows are read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from loomrl.errors import ConfigError, unknown
from loomrl.record import word

if TYPE_CHECKING:
    from loomrl.store import LoomDB

R = TypeVar("R")
# generic dataclasses here have no slots: with them Python 3.11 cannot make a frozen one by its subscripted name


class Form(StrEnum):
    """The way a cell is shown."""

    TEXT = "text"
    WORDS = "words"
    """Free text: the console breaks its lines, and both faces cut it."""
    STATUS = "status"
    TIME = "time"
    NUMBER = "number"
    COUNT = "count"
    LASTING = "lasting"
    """Seconds."""


RIGHT = frozenset({Form.NUMBER, Form.COUNT, Form.LASTING})
"""Forms that are flush right."""
LONGEST = 120
"""Characters of free text in a terminal's table."""


@dataclass(frozen=True, kw_only=True)
class Column(Generic[R]):
    """A column of a list."""

    name: str
    value: Callable[[R], Any]
    form: Form = Form.TEXT
    to: Callable[[R], str] | None = None
    """The address of the console's page about the cell."""
    sort: str = ""
    """The name of the order by this column, if the list can be sorted by it."""

    @property
    def is_right(self) -> bool:
        """True of a column whose cells are flush right."""
        return self.form in RIGHT

    def text(self, row: R) -> str:
        """The cell in a terminal."""
        value = self.value(row)
        if value is None or value == "":
            return ""
        match self.form:
            case Form.TIME:
                return word.clock(value)
            case Form.NUMBER:
                return word.number(value)
            case Form.COUNT:
                return word.count(value)
            case Form.LASTING:
                return word.lasting(value)
            case Form.WORDS:
                return word.short(str(value), LONGEST)
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter of a list: an option of the command, a field of the console's form, a part of its address."""

    name: str
    about: str
    choices: Callable[["LoomDB"], Sequence[str]] | None = None
    """The values to offer."""
    is_closed: bool = False
    """No value but these choices is possible."""
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The part of a list to read."""

    filters: Mapping[str, str] = field(default_factory=dict)
    limit: int
    after: str = ""
    """The place to continue from: a former page's `next`."""
    sort: str = ""
    down: bool = True

    def get(self, name: str) -> str | None:
        """The value of a filter, if it is given."""
        return self.filters.get(name) or None


@dataclass(frozen=True)
class Page(Generic[R]):
    """Rows, and the place to continue from; None at the end."""

    rows: Sequence[R]
    next: str | None = None


def row_as_json(row: Any) -> dict[str, Any]:
    """A dataclass as a JSON object."""
    return asdict(row)


@dataclass(frozen=True, kw_only=True)
class Record(Generic[R]):
    """A kind of record."""

    name: str
    """One, in plain words: `A/B test`."""
    plural: str
    """Many, as in the JSON and the console: `tests`."""
    about: str
    """One sentence: the help of the list."""
    columns: Sequence[Column[R]]
    read: Callable[["LoomDB", Query], Page[R]]
    filters: Sequence[Filter] = ()
    as_json: Callable[[R], Mapping[str, Any]] = row_as_json
    none: str
    """The message if there is none, with the command that makes one."""
    sort: str = ""
    """The order of a list unless another one is asked for."""
    limit: int = 20
    """Rows of a list unless another number is asked for."""

    def page(self, db: "LoomDB", query: Query) -> Page[R]:
        """A page of the list; a ConfigError for an impossible value of a filter."""
        for each in self.filters:
            value = query.get(each.name)
            if value is not None and each.is_closed and each.choices is not None:
                choices = each.choices(db)
                if value not in choices:
                    raise ConfigError(unknown(each.name, value, choices))
        return self.read(db, query)
