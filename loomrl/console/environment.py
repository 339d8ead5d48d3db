"""Environments: the catalogue, what was achieved in each, and playing one."""

import asyncio
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.responses import Response

from loomrl.console.listing import ListPage
from loomrl.console.page import PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.errors import LoomError
from loomrl.gym.catalogue import make, names
from loomrl.gym.manual import ManualEnvironment
from loomrl.http.site import Refused
from loomrl.record import word
from loomrl.record.catalogue import ENVIRONMENT_RECORDS, EnvironmentRow, environment_row
from loomrl.record.detail import ENVIRONMENT
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


games = Games()


def add_to(pages: Pages) -> None:
    """The pages of environments."""
    pages.get("/environments", _list)
    pages.get("/environments/{id}", _show)
    pages.post("/environments/{id}", _begin, role=ConsoleRole.RATER)
    pages.get("/games/{game}", _game, role=ConsoleRole.RATER)
    pages.post("/games/{game}", _act, role=ConsoleRole.RATER)


ENVIRONMENTS = ListPage[EnvironmentRow](
    path="/environments",
    title="Environments",
    record=ENVIRONMENT_RECORDS,
    detail=ENVIRONMENT,
    detail_template="environment.html",
)


def _list(visit: PageRequest) -> Response:
    tried = visit.source.tried_by_environment()
    rows = list(ENVIRONMENTS.read(visit, limit=ENVIRONMENT_RECORDS.limit).rows)
    rows += [environment_row(name, ()) for name in sorted(tried.keys() - {row.name for row in rows}, key=str.lower)]
    counts = {
        "attempts": lambda _, row: word.count(tried[row.name].attempts) if row.name in tried else "–",
        "mean success": lambda _, row: word.percent(tried[row.name].mean) if row.name in tried else "–",
    }
    listing = replace(ENVIRONMENTS, cells=counts)
    return visit.page("list.html", rows=rows, next=None, **listing.context(visit))


def _show(visit: PageRequest) -> Response:
    found = ENVIRONMENTS.find(visit)
    name = visit.segment("id")
    tried = visit.source.tried_by_environment().get(name)
    if tried is None and name not in names() and not found["versions"]:
        raise Refused(404, f"There is no environment {name[:120]!r}, neither installed nor on record.")
    return ENVIRONMENTS.show_one(visit, found, tried=tried)


def _begin(visit: PageRequest) -> Response:
    name = visit.segment("id")
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
