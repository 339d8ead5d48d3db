"""`loomrl NOUN list` and `loomrl NOUN show ID`, made of the declarations of a record."""

import getpass
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from loomrl.errors import ConfigError
from loomrl.experiments.commands.face import LIST, face, open_face_store, without
from loomrl.experiments.commands.output import emit, table
from loomrl.record.declaration import Action, Column, Detail, Found, Query, Record

if TYPE_CHECKING:
    from loomrl.store import LoomDB

KEYWORD = inspect.Parameter.KEYWORD_ONLY
WHOLE = 20_000
"""Characters of free text where a single record is shown."""


def add_list(
    app: typer.Typer,
    listed: Record[Any] | Detail,
    *,
    show: Callable[..., None] | None = None,
    open_db: "Callable[[], AbstractContextManager[LoomDB]]" = open_face_store,
) -> None:
    """Add the command that lists a kind of record and, with an id, shows one: by its declaration, or by `show`.

    The first parameter of `show` is the id; its others become options.
    """
    record = listed.record if isinstance(listed, Detail) else listed
    if isinstance(listed, Detail) and show is None:
        show = _show_command(listed)
    options = dict(inspect.signature(show).parameters) if show is not None else {}
    shown = {name: each for name, each in options.items() if each.kind is KEYWORD}
    id = next((each for each in options.values() if each.kind is not KEYWORD), None)
    filters = {each.name: _option(each.name, str | None, each.about, each.default or None) for each in record.filters}
    limit = {"limit": _option("limit", int, "Rows at most.", record.limit, min=1, max=1_000_000)}

    def command(**values: Any) -> None:
        named = values.pop("id", None)
        set_here = {name for name, each in (shown | filters | limit).items() if values[name] != each.default}
        if named is None or show is None:
            _refuse(set_here & set(shown) - set(filters), f"name one {record.name} for it")
            asked = {each: values[each] or "" for each in filters}
            listing = read_list(record, asked, limit=values["limit"], open_db=open_db)
            emit(listing.as_json, show=lambda console: render_list(record, listing, console))
        else:
            _refuse(set_here - set(shown), f"it has no effect on one {record.name}")
            show(named, **{name: values[name] for name in shown})

    first = {} if id is None else {"id": _argument(id)}
    parameters = first | filters | limit | shown
    _declare(command, parameters)
    about = record.about if show is None else f"{record.about} With an id: {inspect.getdoc(show)}"
    app.command(LIST, help=about)(command if record.reads_store else without("--store")(command))
    if isinstance(listed, Detail):
        for action in listed.actions:
            _add_action(app, listed, action)


def _add_action(app: typer.Typer, detail: Detail, action: Action) -> None:
    """Add a command that does something with a record, and prints its row afterwards."""
    record = detail.record
    fields = {each.name: _option(each.name, str, each.about, each.default) for each in action.fields}
    fields["who"] = _option("who", str, "Your name; by default your account's.", "")

    def command(*, id: str, **values: str) -> None:
        with open_face_store() as db:
            row = action.do(db, id, values | {"who": values["who"] or getpass.getuser()})
        cells = [column.text(row) for column in record.columns]
        emit(record.as_json(row), show=lambda console: console.print(table("", _heads(record.columns), [cells])))

    argument = Annotated[str, typer.Argument(metavar=detail.id)]
    parameters = {"id": inspect.Parameter("id", KEYWORD, annotation=argument)} | fields
    _declare(command, parameters)
    app.command(action.word, help=action.about)(command)


def _declare(command: Callable[..., None], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Give a command parameters that are made as it runs."""
    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in parameters.items()}


def _show_command(detail: Detail) -> Callable[..., None]:
    def show(id: str) -> None:
        print_found(detail, find(detail, id))

    show.__doc__ = detail.about
    show.__annotations__["id"] = Annotated[str, typer.Argument(metavar=detail.id)]
    return show


def find(detail: Detail, id: str) -> Found:
    """The record of this id in the store of the command."""
    with open_face_store() as db:
        return detail.find(db, id)


def print_found(detail: Detail, found: Found) -> None:
    """Print a single record: its facts, then a table for each part that has rows."""
    emit(detail.json(found), show=lambda console: render_found(detail, found, console))


def render_found(detail: Detail, found: Found, console: Console) -> None:
    """The facts of a record, then its parts."""
    facts = [(column.name, column.text(row, longest=WHOLE)) for column, row in detail.cells(found)]
    console.print(table("", ("", ""), [fact for fact in facts if fact[1]]))
    for part in detail.parts:
        columns = [each for each in part.columns if each.form != "interval"]
        if rows := part.rows(found):
            cells = [[column.text(row, longest=WHOLE) for column in columns] for row in rows]
            console.print(table(f"\n{part.title}", _heads(columns), cells))


def _heads(columns: Sequence[Column[Any]]) -> list[str]:
    return [f"{each.name}>" if each.is_right else each.name for each in columns]


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
    with open_db() if record.reads_store else nullcontext() as db:
        page = record.page(db, Query(filters=filters, limit=limit))
        cells = [[column.text(row) for column in record.columns] for row in page.rows]
        return Listing(cells, {record.plural: [dict(record.as_json(row)) for row in page.rows]})


def render_list(record: Record[Any], listing: Listing, console: Console) -> None:
    """A table, or what to do where there is nothing."""
    if listing.cells:
        console.print(table("", _heads(record.columns), listing.cells))
    else:
        console.print(record.none + (f" (store: {face().store})" if record.reads_store else ""))


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
