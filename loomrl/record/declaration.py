"""A kind of record: its columns, its filters, where its rows are read, and what is shown of a single one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from urllib.parse import quote

from loomrl.errors import ConfigError, unknown
from loomrl.record import word

if TYPE_CHECKING:
    from loomrl.store import LoomDB

R = TypeVar("R")
# generic dataclasses here have no slots: with them Python 3.11 cannot make a frozen one by its subscripted name


Form = Literal[
    "text", "words", "status", "time", "number", "count", "lasting", "share", "signed", "amount", "hash", "interval"
]
"""The way a cell is shown: `words` are free text, cut in lists; `lasting` are seconds; `share` is 0.125 as `12.5 %`; an
`amount` is text with its unit; of a `hash` the beginning stands for the whole; an `interval` is a mean with its bounds,
which the console draws on a scale.
"""
RIGHT: frozenset[Form] = frozenset({"number", "count", "lasting", "share", "signed", "amount"})
"""Forms that are flush right."""
LONGEST = 120
"""Characters of free text in a terminal's table."""
HASHED = 12
"""Characters of a hash."""
_TEXTS: Mapping[Form, Callable[[Any], str]] = {
    "time": word.clock,
    "number": word.number,
    "count": word.count,
    "lasting": word.lasting,
    "share": word.percent,
    "signed": word.signed,
    "hash": lambda value: value[:HASHED],
}


def path_to(*parts: str) -> str:
    """An address of the console; ids may contain slashes."""
    return "/" + "/".join(quote(part, safe="/@=+:,~") for part in parts)


@dataclass(frozen=True)
class Column(Generic[R]):
    """A column of a list, or a fact of a single record."""

    name: str
    value: str | Callable[[R], Any] = ""
    """A function of the row, or the path of an attribute or key, such as `run.id`; by default the name."""
    form: Form = "text"
    to: str | Callable[[R], str | None] = ""
    """The console's page about the cell: the first part of its address, or a function of the row."""
    sort: str = ""
    """The name of the order by this column, if the list can be sorted by it."""
    under: str = ""
    """The column below whose cells a browser shows this one, where a list is too wide."""

    @property
    def is_right(self) -> bool:
        """True of a column whose cells are flush right."""
        return self.form in RIGHT

    def of(self, row: R) -> Any:
        """The value in a row."""
        if callable(self.value):
            return self.value(row)
        found: Any = row
        for part in (self.value or self.name).split("."):
            if found is None:
                return None
            found = found.get(part) if isinstance(found, Mapping) else getattr(found, part)
        return found.value if isinstance(found, Enum) else found

    def link(self, row: R) -> str | None:
        """The address of the console's page about the cell."""
        if callable(self.to):
            return self.to(row)
        return path_to(self.to, str(self.of(row))) if self.to and self.of(row) else None

    def text(self, row: R, *, longest: int = LONGEST) -> str:
        """The cell in a terminal; of free text its beginning."""
        value = self.of(row)
        if value is None or value == "":
            return ""
        return word.short(value, longest) if self.form == "words" else _TEXTS.get(self.form, str)(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A value that people may give, as a filter of a list: an option of the command, a field of the console's form."""

    name: str
    about: str
    choices: Callable[[Any], Sequence[str]] | None = None
    """The values to offer: of a filter by the LoomDB, of an action by the record."""
    is_closed: bool = False
    """No value but these choices is possible."""
    default: str = ""
    is_needed: bool = False
    """At the console it has to be given."""


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
    filters: Sequence[Field] = ()
    as_json: Callable[[R], Mapping[str, Any]] = row_as_json
    none: str
    """The message if there is none, with the command that makes one."""
    sort: str = ""
    """The order of a list unless another one is asked for."""
    limit: int = 20
    """Rows of a list unless another number is asked for."""
    reads_store: bool = True
    """False for a kind that lies elsewhere than in LoomDB."""

    def page(self, db: Any, query: Query) -> Page[R]:
        """A page of the list; a ConfigError for an impossible value of a filter."""
        for each in self.filters:
            value = query.get(each.name)
            if value is not None and each.is_closed and each.choices is not None:
                choices = each.choices(db)
                if value not in choices:
                    raise ConfigError(unknown(each.name, value, choices))
        return self.read(db, query)


Found = Mapping[str, Any]
"""A single record under its own name, then what belongs to it, by name."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A table on the page of a single record."""

    name: str
    """Its rows in `Found`."""
    title: str
    columns: Sequence[Column[Any]]
    none: str = ""
    """The message without rows; without one the part is left out."""

    def rows(self, found: Found) -> Sequence[Any]:
        """Its rows; objects by name have theirs as `name`."""
        value = found[self.name]
        return [{"name": name, **each} for name, each in value.items()] if isinstance(value, Mapping) else value


@dataclass(frozen=True, kw_only=True)
class Action:
    """Something that people may do with a record: a command on its noun, and a form on its page."""

    word: str
    about: str
    """One sentence: the help of the command."""
    fields: Sequence[Field] = ()
    can: Callable[[Found], bool]
    """True while there is anything to do."""
    do: Callable[["LoomDB", str, Mapping[str, str]], Any]
    """Does it to the record of an id, with its fields and `who`; the record's row afterwards."""


@dataclass(frozen=True, kw_only=True)
class Detail:
    """The view of a single record."""

    record: Record[Any]
    about: str
    """One sentence: the help of the command."""
    id: str
    """The name of its id in the help: `RUN`."""
    find: Callable[["LoomDB", str], Found]
    """A StoreError if there is none."""
    facts: Sequence[Column[Found]] = ()
    """Besides the columns of its list."""
    parts: Sequence[Part] = ()
    texts: Sequence[Column[Found]] = ()
    """Long texts, folded in the console; programs get them from the JSON."""
    actions: Sequence[Action] = ()
    as_json: Callable[[Found], Mapping[str, Any]] | None = None

    def cells(self, found: Found) -> list[tuple[Column[Any], Any]]:
        """The columns of the record's own list and the further facts, each with what its value is read from."""
        itself = next(iter(found.values()))
        return [*((each, itself) for each in self.record.columns), *((each, found) for each in self.facts)]

    def json(self, found: Found) -> dict[str, Any]:
        """The record's own values, and what belongs to it by name."""
        if self.as_json is not None:
            return dict(self.as_json(found))
        (_, itself), *rest = found.items()
        return {name: plain(value) for name, value in rest} | dict(self.record.as_json(itself))


def linked(name: str, title: str, record: Record[Any], *, none: str = "") -> Part:
    """A table of other records, with the columns of their own list."""
    return Part(name=name, title=title, columns=record.columns, none=none)


def plain(value: Any) -> Any:
    """A value as JSON: dataclasses become objects."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
