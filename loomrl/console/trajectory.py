"""Trajectories: the list with its filters, the viewer, and the reference answer of the environment's oracle."""

import asyncio
import difflib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import HTMLResponse, JSONResponse, Response

from loomrl.config import Experiment
from loomrl.console.chart import line_chart
from loomrl.console.feedback import KINDS, give
from loomrl.console.page import PAGE, PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.console.source import FoundTrajectory, RecordSource
from loomrl.console.transcript import Vocabularies, part_of, series_of, tokens_of
from loomrl.errors import ConfigError, LoomError, StoreError
from loomrl.gym.base import INFO, BaseEnvironment
from loomrl.gym.catalogue import make, names
from loomrl.gym.grade import reasons_of
from loomrl.gym.preference import add_preference, preference_of
from loomrl.http.site import Refused
from loomrl.hub.query import glimpses, places_with, siblings_of
from loomrl.record import word
from loomrl.record.catalogue import TRAJECTORY_RECORDS
from loomrl.serving.continuation import starts_of
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.feedback import feedback_of
from loomrl.store.rewards import rewards_of
from loomrl.store.runs import POLICIES, RUNS, load_experiment
from loomrl.store.view.trajectory_index import (
    EQUAL,
    Indexed,
    TrajectoryFilter,
    choices,
    count_indexed,
    drop_indexed,
    find_indexed_at,
    page_of,
)
from loomrl.types import End, Trajectory
from loomrl.types import Source as Origin

GLIMPSE_BYTES = 64 * 1024
"""Longer payloads have no first words in the list."""
TOKENS = 4_000
"""Most tokens in one answer to the viewer."""
RANGES = {"level": "level", "reward": "reward", "success": "success", "length": "length", "version": "version"}
MOST_SIBLINGS = 64
OFFERED = 50
"""Versions that are suggested."""
LONGEST_DIFF = 20_000
vocabularies = Vocabularies()


def add_to(pages: Pages) -> None:
    """The pages of trajectories."""
    pages.get("/trajectories", _list)
    pages.get("/trajectories/{id:path}", _show)
    pages.post("/trajectories/{id:path}", _judge, role=ConsoleRole.RATER)
    pages.get("/part", _part)
    pages.get("/tokens.json", _tokens)
    pages.get("/siblings", _siblings)
    pages.get("/reference", _reference)


def filter_of(visit: PageRequest) -> TrajectoryFilter:
    """The filter in the address; Refused 400 for a malformed one."""
    equal = {name: visit.query(name)[:500] for name in EQUAL if visit.query(name)}
    visit.choice("source", [each.value for each in Origin])
    visit.choice("ending", [each.value for each in End])
    if visit.query("hub") == "main":
        equal["hub"] = ""
    bounds = {}
    for name in RANGES:
        low, high = visit.number(f"{name}_min"), visit.number(f"{name}_max")
        if low is not None and high is not None and low > high:
            raise Refused(400, f"{name}: from {low:g} to {high:g} there is nothing. Exchange the two.")
        if low is not None or high is not None:
            bounds[name] = (low, high)
    return TrajectoryFilter(equal=equal, bounds=bounds)


def _list(visit: PageRequest) -> Response:
    source = visit.source
    wanted = filter_of(visit)
    text = visit.query("text")[:500]
    before = visit.whole("before", 0, high=2**62) or None
    keep = (lambda rows: list(_with_text(source, rows, text))) if text else None
    page = page_of(source.index, wanted, before=before, limit=PAGE, keep=keep)
    words = _with_first_words(source, page.rows)
    first = {(row.hub, row.place): said for row, said in words}
    total = count_indexed(source.index)
    return visit.page(
        "trajectories.html",
        record=TRAJECTORY_RECORDS,
        rows=[row for row, _ in words],
        cells={"success": _success, "trajectory": lambda _, row: _named(row, first[row.hub, row.place])},
        extra=[],
        next=page.next,
        is_short=len(page.rows) < PAGE and page.next is not None,
        looked=page.looked,
        total=total,
        left=page.next,
        filtered=bool(wanted.equal or wanted.bounds or text),
        environments=choices(source.index, "environment"),
        hubs=source.hubs(),
        sources=[each.value for each in Origin],
        endings=[each.value for each in End],
        ranges=RANGES,
        position=EVENTS.last(source.db),
    )


def _named(row: Indexed, begins: str) -> Markup:
    """The id above the first words."""
    return Markup("{}<small><bdi>{}</bdi></small>").format(word.visible(word.short(row.id, 60)), word.visible(begins))


def _success(visit: PageRequest, row: Indexed) -> Any:
    """A mark, a share, or a dash where the attempt is not judged yet."""
    return visit.parts.success(row)


def _with_text(source: RecordSource, rows: list[tuple[int, Indexed]], text: str) -> Iterator[tuple[int, Indexed]]:
    there: dict[str, set[int]] = {}
    for name in {row.hub for _, row in rows}:
        db = source.hub(name)
        places = [row.place for _, row in rows if row.hub == name]
        there[name] = set() if db is None else places_with(db, places, text)
    return ((position, row) for position, row in rows if row.place in there[row.hub])


def _with_first_words(source: RecordSource, rows: Sequence[tuple[int, Indexed]]) -> list[tuple[Indexed, str]]:
    """The rows whose trajectories are still there, with their first words; the others leave the index."""
    found: dict[tuple[str, int], Trajectory | None] = {}
    for name in {row.hub for _, row in rows}:
        db = source.hub(name)
        places = [row.place for _, row in rows if row.hub == name]
        there = {} if db is None else glimpses(db, places, most_bytes=GLIMPSE_BYTES)
        found |= {(name, place): trajectory for place, trajectory in there.items()}
        if gone := [place for place in places if place not in there]:
            with suppress(StoreError):
                drop_indexed(source.index, name, gone)
    return [(row, first_words(found[row.hub, row.place])) for _, row in rows if (row.hub, row.place) in found]


def first_words(trajectory: Trajectory | None) -> str:
    """The text of the first turn's last message; empty for control episodes."""
    if trajectory is None or not trajectory.turns:
        return ""
    turn = trajectory.turns[0]
    said = turn.observation[-1].content if turn.observation else turn.action
    return word.short(said, 110)


def place_of(visit: PageRequest) -> FoundTrajectory:
    """The trajectory in the path; Refused 404."""
    id = visit.segment("id")
    found = visit.source.find(id)
    if found is None:
        raise Refused(404, f"There is no trajectory {id[:120]!r} in any hub of this store. It may have been deleted.")
    return found


def at_place(visit: PageRequest) -> FoundTrajectory:
    """The trajectory at the place in the parameters; Refused 404."""
    hub = visit.query("hub")
    place = visit.whole("place", 0)
    found = visit.source.at(hub, place)
    if found is None:
        raise Refused(404, f"There is no trajectory at place {place} of hub {hub[:80]!r}.")
    return found


def _show(visit: PageRequest) -> Response:
    found = place_of(visit)
    db = visit.source.db
    t = found.trajectory
    pieces, after = part_of(t, 0)
    hub = visit.source.hub(found.hub)
    siblings = [] if hub is None else siblings_of(hub, found.place, limit=MOST_SIBLINGS)
    tokens = [sum(len(turn.tokens) for turn in sequence if turn.tokens is not None) for sequence in t.sequences]
    return visit.page(
        "trajectory.html",
        found=found,
        t=t,
        pieces=pieces,
        after=after,
        tokens=tokens,
        has_entropies=any(
            turn.tokens is not None and turn.tokens.entropies_T is not None for turns in t.sequences for turn in turns
        ),
        turns=sum(map(len, t.sequences)),
        siblings=siblings,
        advantage=advantage_of(visit.source, found),
        series=[]
        if t.steps is None
        else [
            line_chart(name, range(len(columns[0])), {str(at): column for at, column in enumerate(columns)})
            for name, columns in series_of(t.steps)
            if columns
        ],
        feedback=feedback_of(db, [t.id]),
        rewards=rewards_of(db, t.id),
        info=info_of(t),
        has_reference=has_reference(t),
        starts=[start for start in starts_of(t, 0) if start >= 0],
        offered=offered(db, t),
        extra=word.visible(_extra(t)),
        kinds=KINDS,
        position=EVENTS.last(db),
    )


def offered(db: LoomDB, t: Trajectory) -> list[str]:
    """Versions that may be asked what they would have said: the run's own, then the latest of others."""
    own = POLICIES.latest(db, run=t.run, limit=OFFERED) if t.run else []
    return list(dict.fromkeys(version.id for version in [*own, *POLICIES.latest(db, limit=OFFERED)]))


def has_reference(t: Trajectory) -> bool:
    """True if the attempt's environment is installed here, so that it can be asked for the right answer."""
    return t.steps is None and t.task.environment in names()


def info_of(t: Trajectory) -> dict[str, str]:
    """The environment's notes on the result and judges' reasons: strings as they are, other values as JSON."""
    info = t.extra.get(INFO)
    notes = info if isinstance(info, dict) else {}
    told = {
        name: each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for name, each in notes.items()
    }
    return told | reasons_of(t)


def _extra(t: Trajectory) -> str:
    rest = {name: value for name, value in t.extra.items() if name != INFO}
    if not rest:
        return ""
    return json.dumps(rest, ensure_ascii=False, default=lambda value: f"{type(value).__name__}", indent=1)[:20_000]


def advantage_of(source: RecordSource, found: FoundTrajectory) -> dict[str, float] | None:
    """The reward against its group: mean, deviation and the advantage that follows; None without siblings."""
    db = source.hub(found.hub)
    if db is None or found.trajectory.group_size < 2:
        return None
    places = [each.place for each in siblings_of(db, found.place, limit=MOST_SIBLINGS)]
    attempts = find_indexed_at(source.index, found.hub, places)
    rewards = [attempt.reward for attempt in attempts if attempt.ending != End.FAILED]
    if len(rewards) < 2:
        return None
    mean = sum(rewards) / len(rewards)
    deviation = (sum((value - mean) ** 2 for value in rewards) / len(rewards)) ** 0.5
    return {"mean": mean, "deviation": deviation, "advantage": found.trajectory.reward.total - mean}


def _part(visit: PageRequest) -> Response:
    found = at_place(visit)
    pieces, after = part_of(found.trajectory, visit.whole("from", 0))
    return HTMLResponse(visit.render("pieces.html", found=found, t=found.trajectory, pieces=pieces, after=after))


def _tokens(visit: PageRequest) -> Response:
    found = at_place(visit)
    begin = visit.whole("from", 0)
    count = visit.whole("count", TOKENS, low=1, high=TOKENS)
    columns = tokens_of(found.trajectory, visit.whole("thread", 0, high=10_000), begin=begin, count=count)
    if columns is None:
        raise Refused(404, "This sequence has no tokens on record.")
    texts = vocabularies.texts(visit.source.db, found.trajectory.run, columns.ids)
    return JSONResponse(
        {
            "begin": columns.begin,
            "total": columns.total,
            "ids": columns.ids,
            "texts": None if texts is None else [None if each is None else word.visible(each) for each in texts],
            "mask": columns.mask,
            "logprobs": columns.logprobs,
            "versions": columns.versions,
            "entropies": columns.entropies,
            "turns": columns.turns,
        }
    )


def _siblings(visit: PageRequest) -> Response:
    """Two attempts of a group side by side."""
    mine = at_place(visit)
    other = visit.source.at(visit.query("hub"), visit.whole("other", 0))
    if other is None or other.trajectory.group != mine.trajectory.group:
        raise Refused(404, "There is no such attempt in this group.")
    return visit.page("siblings.html", mine=mine, other=other, rows=_side_by_side(mine.trajectory, other.trajectory))


def _side_by_side(mine: Trajectory, other: Trajectory) -> list[dict[str, Any]]:
    rows = []
    for number in range(max(len(mine.turns), len(other.turns))):
        left = mine.turns[number] if number < len(mine.turns) else None
        right = other.turns[number] if number < len(other.turns) else None
        words = difference("" if left is None else left.action, "" if right is None else right.action)
        asked = left or right
        same = left is not None and right is not None and left.observation == right.observation
        rows.append({"number": number + 1, "left": left, "right": right, "words": words, "asked": asked, "same": same})
    return rows


Words = list[tuple[str, str]]


def difference(mine: str, other: str) -> tuple[Words, Words]:
    """Both texts in runs of words: `same`, or what only one of them has (`mine`, `other`)."""
    if len(mine) + len(other) > LONGEST_DIFF:
        return [("same", mine)], [("same", other)]
    left, right = _words(mine), _words(other)
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    first: Words = []
    second: Words = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if a < b:
            first.append(("same" if tag == "equal" else "mine", "".join(left[a:b])))
        if c < d:
            second.append(("same" if tag == "equal" else "other", "".join(right[c:d])))
    return first, second


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|\w+|[^\w\s]", text)


def _judge(visit: PageRequest) -> Response:
    """Store feedback on a trajectory under the name of the session's user."""
    found = place_of(visit)
    give(visit, found, visit.form)
    return visit.back(f"/trajectories/{quote(found.trajectory.id, safe='/@=+:,~')}#feedback")


PATIENCE_S = 10.0
"""For the environment to begin the task."""
_turn = threading.Lock()
"""One environment at a time: some begin with a solver or a process."""


class Unavailable(Exception):
    """Why there is no reference to show."""


def _reference(visit: PageRequest) -> Response:
    attempt = at_place(visit).trajectory
    answer = ""
    reason = ""
    try:
        answer = reference_to(attempt, visit.source.db)
    except Unavailable as error:
        reason = str(error)
    return HTMLResponse(visit.render("reference.html", answer=answer, reason=reason, turns=len(attempt.turns)))


def reference_to(attempt: Trajectory, db: LoomDB) -> str:
    """The oracle's first action in the attempt's task; Unavailable says why there is none to show."""
    if not has_reference(attempt):
        raise Unavailable(f"{attempt.task.environment} is not installed here.")
    if not _turn.acquire(timeout=PATIENCE_S):
        raise Refused(503, "Another environment is being asked. Load the page again in a moment.")
    try:
        return asyncio.run(_ask(attempt, _numbers_given(attempt, db)))
    finally:
        _turn.release()


async def _ask(attempt: Trajectory, settings: Mapping[str, Any]) -> str:
    name = attempt.task.environment
    try:
        return await _first_action(make(name, settings), attempt)
    except Unavailable:
        raise
    except ConfigError:
        raise Unavailable(f"{name} needs settings that only its run has.") from None
    except NotImplementedError:
        raise Unavailable(f"{name} has no oracle for this task.") from None
    except TimeoutError:
        raise Unavailable(f"{name} did not begin the task within {PATIENCE_S:g} s.") from None
    except Exception as error:  # noqa: BLE001 - the boundary to the environment's author
        raise Unavailable(f"{name} cannot begin this task here: {type(error).__name__}: {error}") from None


async def _first_action(environment: BaseEnvironment, attempt: Trajectory) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            began = add_preference(await environment.reset(attempt.task), preference_of(attempt.task))
        if attempt.turns and began != attempt.turns[0].observation:
            raise Unavailable(
                f"{attempt.task.environment} {environment.version} here asks something else in this task than the "
                "attempt was asked: its version or settings differ."
            )
        return environment.oracle()
    finally:
        await environment.close()


def _numbers_given(attempt: Trajectory, db: LoomDB) -> Mapping[str, Any]:
    """The settings that the run gave the environment, as far as they are numbers: files, commands and addresses that
    are on record must not act on this machine.
    """
    run = RUNS.find(db, attempt.run) if attempt.run else None
    try:
        experiment = None if run is None else load_experiment(run)
    except LoomError:  # of evaluations and sweeps
        experiment = None
    given = experiment.environments if isinstance(experiment, Experiment) else ()
    settings = next((each.settings for each in given if each.id.partition("@")[0] == attempt.task.environment), {})
    return {name: value for name, value in settings.items() if isinstance(value, int | float)}
