"""`loomrl NOUN list` and `loomrl NOUN show ID`, made of the declaration of a record."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from loomrl.errors import ConfigError
from loomrl.experiments.commands.face import LIST, face, open_face_store
from loomrl.experiments.commands.output import emit, table
from loomrl.record.declaration import Query, Record

if TYPE_CHECKING:
    from loomrl.store import LoomDB

KEYWORD = inspect.Parameter.KEYWORD_ONLY


def add_list(
    app: typer.Typer,
    record: Record[Any],
    *,
    show: Callable[..., None] | None = None,
    open_db: "Callable[[], AbstractContextManager[LoomDB]]" = open_face_store,
) -> None:
    """Add the command that lists a kind of record and, with an id and `show`'s options, shows one.

    The first parameter of `show` is the id; its others become options.
    """
    options = dict(inspect.signature(show).parameters) if show is not None else {}
    shown = {name: each for name, each in options.items() if each.kind is KEYWORD}
    id = next((each for each in options.values() if each.kind is not KEYWORD), None)
    filters = {each.name: _option(each.name, str | None, each.about, each.default or None) for each in record.filters}
    limit = {"limit": _option("limit", int, "Rows at most.", record.limit, min=1, max=1_000_000)}

    def command(**values: Any) -> None:
        named = values.pop("id", None)
        set_here = {name for name, each in (shown | filters | limit).items() if values[name] != each.default}
        if named is None or show is None:
            _refuse(set_here & set(shown), f"name one {record.name} for it")
            asked = {each: values[each] or "" for each in filters}
            listing = read_list(record, asked, limit=values["limit"], open_db=open_db)
            emit(listing.as_json, show=lambda console: render_list(record, listing, console))
        else:
            _refuse(set_here - set(shown), f"it has no effect on one {record.name}")
            show(named, **{name: values[name] for name in shown})

    first = {} if id is None else {"id": _argument(id)}
    parameters = first | filters | limit | shown
    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    about = record.about if show is None else f"{record.about} With an id: {inspect.getdoc(show)}"
    app.command(LIST, help=about)(command)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list that was read: its cells as text, and its JSON."""

    cells: Sequence[Sequence[str]]
    as_json: Mapping[str, Any]


def read_list(
    record: Record[Any],
    filters: Mapping[str, str],
    *,
    limit: int,
    open_db: "Callable[[], AbstractContextManager[LoomDB]]" = open_face_store,
) -> Listing:
    """The first rows of a list."""
    with open_db() as db:
        page = record.page(db, Query(filters=filters, limit=limit))
        cells = [[column.text(row) for column in record.columns] for row in page.rows]
        return Listing(cells, {record.plural: [dict(record.as_json(row)) for row in page.rows]})


def render_list(record: Record[Any], listing: Listing, console: Console) -> None:
    """A table, or what to do where there is nothing."""
    columns = [f"{each.name}>" if each.is_right else each.name for each in record.columns]
    console.print(table("", columns, listing.cells) if listing.cells else f"{record.none} (store: {face().store})")


def _refuse(options: set[str], why: str) -> None:
    if options:
        name = min(options).replace("_", "-")
        raise ConfigError(f"--{name}: {why}.")


def _option(name: str, kind: Any, about: str, default: Any, **bounds: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(f"--{name}", help=about, **bounds)]
    return inspect.Parameter(name, KEYWORD, default=default, annotation=annotation)


def _argument(id: inspect.Parameter) -> inspect.Parameter:
    """The id as an argument that may be left out."""
    kind, given = id.annotation.__args__[0], id.annotation.__metadata__[0]
    return inspect.Parameter("id", KEYWORD, default=None, annotation=Annotated[kind | None, given])
