"""Environments: the catalogue, what was achieved in each, and playing one."""

import asyncio
import inspect
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.responses import Response

from loomrl.console.chart import interval_marks
from loomrl.console.page import PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.errors import LoomError, RegistryError
from loomrl.gym.catalogue import find, make, names
from loomrl.gym.manual import ManualEnvironment
from loomrl.http.site import Refused
from loomrl.store.environments import list_environments
from loomrl.store.events import EVENTS
from loomrl.store.policies import EVALUATIONS, Evaluation
from loomrl.types import Message, Task

T = TypeVar("T")
MOST_GAMES = 16
IDLE_S = 1800.0
PATIENCE_S = 30.0
"""For one step of an environment."""
LONGEST_ACTION = 20_000


@dataclass(slots=True)
class Game:
    """An episode that a person plays."""

    environment: ManualEnvironment
    name: str
    owner: str
    task: Task
    said: list[Message] = field(default_factory=list)
    reward: float = 0.0
    over: str = ""
    """How it ended; empty while it goes on."""
    parts: dict[str, float] = field(default_factory=dict)
    seen: float = field(default_factory=time.monotonic)


class Games:
    """All games of a console. The oldest ones end where there are too many."""

    def __init__(self) -> None:
        self._games: OrderedDict[str, Game] = OrderedDict()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, name: str, family: str, level: int, *, owner: str) -> str:
        """A new game's id; a LoomError if the environment cannot be played."""
        environment = ManualEnvironment(make(name))
        task = environment.task(family, level, secrets.randbits(31)) if family else None
        state = self._run(environment.reset(task))
        assert state.task is not None, "an episode has one"
        id = secrets.token_hex(8)
        with self._lock:
            self._games[id] = Game(environment, name, owner, state.task, list(state))
            old = [key for key, game in self._games.items() if time.monotonic() - game.seen > IDLE_S]
            for key in [*old, *list(self._games)[: max(0, len(self._games) - len(old) - MOST_GAMES)]]:
                self._end(self._games.pop(key, None))
        return id

    def find(self, id: str, *, owner: str) -> Game:
        """A person's own game; Refused 404."""
        game = self._games.get(id)
        if game is None or game.owner != owner:
            raise Refused(404, "There is no such game, or it has ended. Begin another.")
        game.seen = time.monotonic()
        return game

    def act(self, game: Game, action: str) -> None:
        """One action."""
        if game.over:
            raise Refused(400, "The episode is over. Begin another.")
        if not action or len(action) > LONGEST_ACTION:
            raise Refused(400, f"An action has 1 to {LONGEST_ACTION} characters.")
        game.said.append(Message("assistant", action))
        state, reward, done, info = self._run(game.environment.step(action))
        game.said += list(state)
        if math.isfinite(reward):
            game.reward += reward
        game.parts = dict(info.get("reward_parts", {}))
        if done:
            failure = info.get("failure")
            success = info.get("success") or 0.0
            game.over = f"failed: {failure['message']}" if failure else f"over, success {100 * success:.0f} %"
            self._end(game)

    def _end(self, game: Game | None) -> None:
        if game is not None and self._loop is not None:
            asyncio.run_coroutine_threadsafe(game.environment.close(), self._loop)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="console-games", daemon=True).start()
        doing = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return doing.result(PATIENCE_S)
        except TimeoutError:
            doing.cancel()
            raise Refused(503, f"The environment took more than {PATIENCE_S:.0f} s.") from None
        except LoomError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to the environment's author
            raise Refused(500, f"The environment raised {type(error).__name__}: {error}.") from None


LOOKED_AT = 50
"""Latest evaluations that the results are read from."""
games = Games()


def add_to(pages: Pages) -> None:
    """The pages of environments."""
    pages.get("/environments", _list)
    pages.get("/environments/{name}", _show)
    pages.post("/environments/{name}", _begin, role=ConsoleRole.RATER)
    pages.get("/games/{game}", _game, role=ConsoleRole.RATER)
    pages.post("/games/{game}", _act, role=ConsoleRole.RATER)


def _list(visit: PageRequest) -> Response:
    db = visit.source.db
    recorded: dict[str, list[str]] = {}
    for version in list_environments(db):
        recorded.setdefault(version.name, []).append(version.version)
    tried = visit.source.tried_by_environment()
    known = sorted({*names(), *recorded, *tried}, key=str.lower)
    rows = [(name, recorded.get(name, []), tried.get(name), name in names()) for name in known]
    return visit.page("environments.html", rows=rows, position=EVENTS.last(db))


def _show(visit: PageRequest) -> Response:
    db = visit.source.db
    name = visit.segment("name")
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


def _begin(visit: PageRequest) -> Response:
    name = visit.segment("name")
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


def _game(visit: PageRequest) -> Response:
    return visit.page("game.html", game=games.find(visit.segment("game"), owner=visit.who), id=visit.segment("game"))


def _act(visit: PageRequest) -> Response:
    id = visit.segment("game")
    games.act(games.find(id, owner=visit.who), visit.form.get("action", "").replace("\r\n", "\n"))
    return visit.back(f"/games/{quote(id, safe='')}#last")
