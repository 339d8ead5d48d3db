"""Questions in SQL, from people: read-only, about our own tables, with limits. The engine's own parser reads them.

ClickHouse's read-only mode alone is no fence in a folder: there the function `file` reads any file of this machine.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from loomrl.analytics.engine import ChdbEngine
from loomrl.analytics.place import StoreLocation
from loomrl.analytics.schema import TABLES, VIEWS
from loomrl.analytics.warehouse import WAIT_S, Warehouse, open_reader
from loomrl.errors import AnalyticsError, there_are

Form = Literal["CSVWithNames", "Parquet"]
BEGINNINGS = ("SELECT", "WITH", "(", "DESCRIBE", "DESC", "SHOW TABLES")
RESERVED = ("system", "information_schema", "default")
"""Databases that every ClickHouse has."""
CLAUSES = {
    "INTO OUTFILE": "files are written with --csv or --parquet FILE",
    "FORMAT": "the form is chosen with --json, --csv or --parquet FILE",
    "SETTINGS": "limits are options: --limit, --timeout",
}
"""Clauses that are refused, and what to do instead."""
OUTSIDE = re.compile(
    r"""file\w*|url\w*|s3\w*|gcs|hdfs\w*|azure\w*|iceberg\w*|deltaLake\w*|hudi\w*|paimon\w*|remote\w*|cluster\w*|mysql
    |postgresql|mongodb|redis|sqlite|odbc|jdbc|ytsaurus|arrowFlight|bigquery|executable\w*|python|input|dictionary
    |dictGet\w*|dictHas|dictIsIn|joinGet\w*|region\w+|ai[A-Z]\w*|catboost\w*|evalMLMethod|naiveBayesClassifier\w*
    |eval|loop|merge|mergeTree\w*|fuzz\w*|generateRandom\w*|view\w*Permitted|timeSeries\w+|prometheus\w*
    |sleep\w*|addressTo\w+|demangle|logTrace|showCertificate|getMacro|get\w*Setting\w*|getServerPort|tcpPort
    |getClientHTTPHeader|getOSKernelVersion|hostName|FQDN|serverUUID|filesystem\w+|zookeeper\w*|transaction\w+
    |current(?:User|Profiles|Roles|Handler|RequestURL|QueryID)|hasColumnInTable|__\w+""",
    re.VERBOSE | re.IGNORECASE,
)
"""Functions that reach outside of our tables, or only cost time."""
_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`\\]|\\.|``)*`|\"(?:[^\"\\]|\\.|\"\")*\"|\w+|\S", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """Limits of a question."""

    rows: int = 10_000
    """Rows of its result; 0 for all."""
    timeout_s: float = 30.0
    memory_mb: int = 4096
    wait_s: float = WAIT_S
    """Time to wait for another user of the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """Rows under the names of their columns. `is_cut`: there are more."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    is_cut: bool
    as_of: float
    """When the store was last fed, in seconds since 1970."""

    @property
    def numbers(self) -> list[str]:
        """Names of the columns that hold numbers, and at least one."""
        cells = {name: [row[at] for row in self.rows if row[at] is not None] for at, name in enumerate(self.columns)}
        return [name for name, found in cells.items() if found and all(map(_is_number, found))]


class Asking:
    """An open store that answers; nothing can be changed through it."""

    def __init__(self, warehouse: Warehouse, limits: QueryLimits) -> None:
        self._warehouse = warehouse
        self._limits = limits
        (found,) = warehouse.rows("SELECT groupArray(name) FROM system.databases")[0]  # one row: rows are limited here
        self._others = {*RESERVED, *map(str.lower, found)} - {warehouse.place.database}
        self.as_of = float(warehouse.about().get("fed_at", 0.0))

    def ask(self, sql: str) -> QueryAnswer:
        """The answer, cut after as many rows as the limits allow."""
        names, rows = self._warehouse.result(self._check_statement(sql))
        most = self._limits.rows or len(rows)
        return QueryAnswer(columns=names, rows=rows[:most], is_cut=len(rows) > most, as_of=self.as_of)

    def ask_as(self, sql: str, form: Form) -> bytes:
        """The answer as a file."""
        return self._warehouse.raw(self._check_statement(sql), form)

    def _check_statement(self, sql: str) -> str:
        """The one statement in the engine's own spelling, if it may be asked."""
        if "\0" in sql:
            raise AnalyticsError("query: a NUL character is no part of SQL.")
        spelled = str(self._warehouse.rows("SELECT formatQuerySingleLine({q:String})", q=sql)[0][0])
        check(spelled, others=self._others)
        return spelled


def question_of(text: str) -> str:
    """The SQL of a question: the name of a table or a standard question stands for all of its rows."""
    return f"SELECT * FROM {text}" if text.isidentifier() else text


def check(spelled: str, *, others: set[str]) -> None:
    """AnalyticsError unless a statement, in the engine's spelling, reads nothing but our tables.

    Every word outside of strings is looked at, as what is no function today may be one tomorrow.
    """
    if not spelled.startswith(BEGINNINGS):
        first = spelled.split(maxsplit=1)[0]
        raise AnalyticsError(f"query: {first} is not for questions: only SELECT, DESCRIBE TABLE and SHOW TABLES are.")
    tokens = [token for token in _TOKEN.findall(spelled) if not token.startswith("'")]
    words = [token.strip('`"') for token in tokens]
    for clause, instead in CLAUSES.items():
        if _has_clause(tokens, clause):
            raise AnalyticsError(f"query: {clause} is refused: {instead}.")
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if OUTSIDE.fullmatch(word):
            raise AnalyticsError(f"query: {word!r:.60} is refused: it reaches outside of the tables. {_list_tables()}")
        if following == "." and word.lower() in others:
            raise AnalyticsError(f"query: the database {word!r:.60} is not for questions. {_list_tables()}")


def _has_clause(tokens: Sequence[str], clause: str) -> bool:
    """Keywords are in capitals, and followed by no bracket, which would make them a function."""
    want = clause.split()
    found = (n for n in range(len(tokens)) if tokens[n : n + len(want)] == want)
    return any(tokens[n + len(want) : n + len(want) + 1] != ["("] for n in found)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _list_tables() -> str:
    return there_are([*(table.name for table in TABLES), *VIEWS])


@contextmanager
def open_asking(
    place: StoreLocation, limits: QueryLimits | None = None, *, engine: ChdbEngine | None = None
) -> Iterator[Asking]:
    """The store, for questions within these limits. A process that asks for days has an engine for folders."""
    limits = limits or QueryLimits()
    settings = {
        "max_execution_time": limits.timeout_s,
        "timeout_overflow_mode": "throw",
        "max_memory_usage": limits.memory_mb << 20,
        "limit": limits.rows + 1 if limits.rows else 0,
        "readonly": 1,  # the last: nothing can be set after it
    }
    with open_reader(place, settings, wait_s=limits.wait_s, engine=engine) as warehouse:
        yield Asking(warehouse, limits)
