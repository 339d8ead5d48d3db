"""Environments: the catalogue, what was achieved in each, and playing one."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from loomrl.console.chart import interval_marks
from loomrl.console.page import Pages, Visit
from loomrl.console.play import Games
from loomrl.console.session import Role
from loomrl.errors import LoomError, RegistryError
from loomrl.gym.catalogue import find, names
from loomrl.http.site import Refused
from loomrl.store.environments import list_environments
from loomrl.store.events import EVENTS
from loomrl.store.policies import EVALUATIONS, Evaluation

LOOKED_AT = 50
"""Latest evaluations that the results are read from."""
games = Games()


def add_to(pages: Pages) -> None:
    """The pages of environments."""
    pages.get("/environments", _list)
    pages.get("/environments/{name}", _show)
    pages.post("/environments/{name}", _begin, role=Role.RATER)
    pages.get("/games/{game}", _game, role=Role.RATER)
    pages.post("/games/{game}", _act, role=Role.RATER)


def _list(visit: Visit) -> Response:
    db = visit.source.db
    recorded: dict[str, list[str]] = {}
    for version in list_environments(db):
        recorded.setdefault(version.name, []).append(version.version)
    tried = visit.source.tried_by_environment()
    known = sorted({*names(), *recorded, *tried}, key=str.lower)
    rows = [(name, recorded.get(name, []), tried.get(name), name in names()) for name in known]
    return visit.page("environments.html", rows=rows, position=EVENTS.last(db))


def _show(visit: Visit) -> Response:
    db = visit.source.db
    name = visit.named("name")
    recorded = list_environments(db, name=name)
    tried = visit.source.tried_by_environment().get(name)
    cls = None
    problem = ""
    if name in names():
        try:
            cls = find(name).cls
        except RegistryError as error:
            problem = str(error)
    elif not recorded and tried is None:
        raise Refused(404, f"There is no environment {name[:120]!r}, neither installed nor on record.")
    return visit.page(
        "environment.html",
        name=name,
        about="" if cls is None else inspect.getdoc(cls) or "",
        version="" if cls is None else cls.version,
        families=() if cls is None else cls.families,
        problem=problem,
        recorded=recorded,
        tried=tried,
        results=results_in(EVALUATIONS.latest(db, limit=LOOKED_AT), name),
        is_here=cls is not None,
        position=EVENTS.last(db),
    )


def results_in(evaluations: Sequence[Evaluation], name: str) -> list[tuple[str, str, Mapping[str, Any], Any]]:
    """Success by family and level of the newest evaluation that has the environment: policy, cell, interval."""
    for each in evaluations:
        cells = {**each.report.get("by_family", {}), **each.report.get("by_level", {})}
        ours = {cell: score for cell, score in cells.items() if cell.partition("/")[0] == name}
        mine = {cell: score["success"] for cell, score in ours.items() if "success" in score}
        if mine:
            policy = each.policy or str(each.report.get("policy", ""))
            return [(policy, cell.partition("/")[2], told, interval_marks(told)) for cell, told in sorted(mine.items())]
    return []


def _begin(visit: Visit) -> Response:
    name = visit.named("name")
    family = visit.form.get("family", "")
    level = visit.form.get("level", "1")
    if name not in names():
        raise Refused(404, f"Environment {name[:120]!r} is not installed here.")
    if not level.isdecimal():
        raise Refused(400, f"level={level[:40]!r} is no whole number.")
    try:
        game = games.begin(name, family, int(level), owner=visit.who)
    except LoomError as error:
        raise Refused(400, f"{name} cannot be played here: {error}") from None
    return visit.back(f"/games/{quote(game, safe='')}")


def _game(visit: Visit) -> Response:
    return visit.page("game.html", game=games.find(visit.named("game"), owner=visit.who), id=visit.named("game"))


def _act(visit: Visit) -> Response:
    id = visit.named("game")
    games.act(games.find(id, owner=visit.who), visit.form.get("action", "").replace("\r\n", "\n"))
    return visit.back(f"/games/{quote(id, safe='')}#last")
