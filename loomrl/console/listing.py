"""Pages of records, made of their declarations: a list with its filters and its order, and the page of a single one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.responses import Response

from loomrl.console.page import PAGE, PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.errors import ConfigError, DataError, StoreAway, StoreError
from loomrl.http.site import Refused
from loomrl.record.declaration import Action, Detail, Found, Page, Query, Record, path_to
from loomrl.store.events import EVENTS

R = TypeVar("R")
LONGEST = 500
"""Characters of a filter's value."""
LONGEST_TEXT = 2000


# no slots: see loomrl.record.declaration
@dataclass(frozen=True, kw_only=True)
class ListPage(Generic[R]):
    """A page with a list, and those of its records."""

    path: str
    title: str
    record: Record[R]
    live: str | None = None
    """Kinds of events after which an open page is loaded again; empty for all kinds, None for never."""
    cells: Mapping[str, Callable[[PageRequest, R], Any]] = field(default_factory=dict)
    """Cells that only a browser can show, by their column's name; other names are columns of their own, at the end."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Filters that always apply, and are not offered."""
    template: str = "list.html"
    detail: Detail | None = None
    """The declaration of a single record's page."""
    detail_template: str = "detail.html"
    pieces: Mapping[str, Callable[[PageRequest, Found], Any]] = field(default_factory=dict)
    """Parts of a record that only a browser can show, by the name of the part above whose table they stand."""
    role: ConsoleRole = ConsoleRole.VIEWER

    def add_to(self, pages: Pages) -> None:
        """Add the page of the list and, unless it is a page of its own, that of a record."""
        pages.get(self.path, self.show, role=self.role)
        if self.detail is not None:
            self.add_actions(pages)
            pages.get(self.path + "/{id:path}", self.show_one, role=self.role)

    def add_actions(self, pages: Pages) -> None:
        """Add what can be done with a record."""
        assert self.detail is not None
        for action in self.detail.actions:
            pages.post(f"{self.path}/{{id}}/{action.word}", partial(self.act, action), role=ConsoleRole.OPERATOR)

    def act(self, action: Action, visit: PageRequest) -> Response:
        """Do what a form of the record's page asks for."""
        self.find(visit)
        said = {each.name: visit.form.get(each.name, "").strip()[:LONGEST_TEXT] for each in action.fields}
        for each in action.fields:
            if each.is_needed and not said[each.name]:
                raise Refused(400, f"Say why: {each.about}")
        id = visit.segment("id")
        action.do(visit.source.db, id, said | {"who": visit.who})
        return visit.back(path_to(self.path[1:], id))

    def show(self, visit: PageRequest, **more: Any) -> Response:
        """The page that the address asks for."""
        page = self.read(visit)
        return visit.page(self.template, rows=page.rows, next=page.next, **self.context(visit), **more)

    def read(self, visit: PageRequest, *, limit: int = PAGE) -> Page[R]:
        """The rows that the address asks for; Refused 400 for an impossible filter, order or place."""
        sorts = [column.sort for column in self.record.columns if column.sort]
        query = Query(
            filters={each.name: visit.query(each.name)[:LONGEST] for each in self.record.filters} | dict(self.fixed),
            limit=limit,
            after=visit.query("after"),
            sort=visit.choice("sort", sorts),
            down=visit.choice("order", ("down", "up"), "down") == "down",
        )
        try:
            return self.record.page(visit.source.db, query)
        except ConfigError as error:
            raise Refused(400, str(error)) from None

    def find(self, visit: PageRequest) -> Found:
        """The record in the address; Refused 404."""
        assert self.detail is not None
        try:
            return self.detail.find(visit.source.db, visit.segment("id"))
        except StoreAway:
            raise
        except (ConfigError, DataError, StoreError) as error:
            raise Refused(404, str(error)) from None

    def show_one(self, visit: PageRequest, found: Found | None = None, **more: Any) -> Response:
        """The page of the record in the address; `more` is for the template."""
        found = found or self.find(visit)
        return visit.page(
            self.detail_template,
            id=visit.segment("id"),
            list_path=self.path,
            list_title=self.title,
            detail=self.detail,
            found=found,
            live=self.live,
            pieces={name: piece(visit, found) for name, piece in self.pieces.items()},
            position=EVENTS.last(visit.source.db),
            **more,
        )

    def context(self, visit: PageRequest) -> dict[str, Any]:
        """The variables of the template beside the rows."""
        offered = [each for each in self.record.filters if each.name not in self.fixed]
        names = {column.name for column in self.record.columns}
        return {
            "title": self.title,
            "record": self.record,
            "live": self.live,
            "cells": self.cells,
            "extra": [name for name in self.cells if name not in names],
            "filters": offered,
            "choices": {each.name: each.choices(visit.source.db) for each in offered if each.choices is not None},
            "is_filtered": any(visit.query(each.name) for each in offered),
            "position": EVENTS.last(visit.source.db),
        }
