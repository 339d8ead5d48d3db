"""Films of episodes of control: of a training's last version, or of an evaluation, with their steps as charts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import Response

from loomrl.console.chart import line_chart
from loomrl.console.page import PageRequest, Pages
from loomrl.control.episode import GIF, STEPS, FilmedEpisode
from loomrl.errors import LoomError
from loomrl.http.site import Refused
from loomrl.run.version import file_of
from loomrl.store import LoomDB
from loomrl.store.runs import POLICIES, RUNS, Run, load_experiment
from loomrl.types import PolicyVersion


@dataclass(frozen=True, slots=True)
class ShownFilm:
    """A film on a page: its address, the episode, and charts of its steps."""

    src: str
    episode: FilmedEpisode
    charts: Sequence[Markup]


def add_to(pages: Pages) -> None:
    """The films themselves."""
    pages.get("/film.gif", _gif)


def film_of_version(db: LoomDB, version: PolicyVersion) -> ShownFilm | None:
    """The film in the version's checkpoint, if there is one."""
    return _film_at({"policy": version.id}, _of_version(db, version, STEPS))


def film_of_run(db: LoomDB, run: Run) -> ShownFilm | None:
    """The film of a training's last version; of an evaluation, the one in its folder, if this machine has it."""
    last = POLICIES.latest(db, run=run.id, limit=1)
    return film_of_version(db, last[0]) if last else _film_at({"run": run.id}, _of_run(run, STEPS))


def _of_version(db: LoomDB, version: PolicyVersion, file: str) -> bytes | None:
    try:
        return file_of(version, db, f"film/{file}")
    except LoomError:  # an artifact store that is away
        return None


def _of_run(run: Run, file: str) -> bytes | None:
    """A file of the run's folder; never one outside of it."""
    try:
        folder = Path(load_experiment(run).train.folder).resolve()
        found = (folder / run.id / file).resolve()
        return found.read_bytes() if found.is_relative_to(folder) else None
    except (LoomError, AttributeError, OSError):  # sweeps have none
        return None


def _film_at(query: Mapping[str, str], steps: bytes | None) -> ShownFilm | None:
    """The film that the page finds by `query`; None if no steps of it are kept."""
    if steps is None:
        return None
    episode = FilmedEpisode.parse(json.loads(steps), origin=STEPS)
    step = range(1, len(episode.rewards) + 1)
    lines = {
        "Reward": [episode.rewards],
        "Value": [] if episode.values is None else [episode.values],
        "Action": [*zip(*episode.actions, strict=True)],
        "Observation": [*zip(*episode.observations, strict=True)],
    }
    charts = [
        line_chart(name, step, {str(number): column for number, column in enumerate(columns)})
        for name, columns in lines.items()
        if columns
    ]
    return ShownFilm(f"/film.gif?{urlencode(query)}", episode, charts)


def _gif(visit: PageRequest) -> Response:
    db = visit.source.db
    version = POLICIES.find(db, visit.query("policy"))
    run = RUNS.find(db, visit.query("run"))
    content = _of_version(db, version, GIF) if version else _of_run(run, GIF) if run else None
    if content is None:
        raise Refused(404, "There is no film of this version or run, or not on this machine.")
    return Response(content, media_type="image/gif")
