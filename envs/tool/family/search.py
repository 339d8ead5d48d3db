"""Questions about an invented world, whose answers are several pages away."""

from collections.abc import Mapping
from random import Random
from typing import Any

from loomrl.envs.tool.call import Call
from loomrl.envs.tool.corpus import RELATIONS, SIZES, Page, find_pages, pages, text_of, told
from loomrl.envs.tool.kit import Tool, fields, text
from loomrl.envs.tool.problem import Problem, faults_for
from loomrl.envs.tool.world import ToolError, World
from loomrl.gym.generate import between

HITS = 3
"""Pages that a search finds."""


def search_problem(level: int, rng: Random) -> Problem:
    """One look-up at level 1; at level 10 two chains of four, and the years between."""
    edition = f"{rng.getrandbits(48):x}"
    hops = between(level, 1, 4)
    if level < 8:
        phrase, answer, script = question(rng, edition, hops=hops, level=level)
        request = f"Look up {phrase}."
    else:
        first, begin, script = question(rng, edition, hops=hops, level=level, last="year")
        second, end, more = question(rng, edition, hops=hops, level=level, last="year")
        request = f"How many years lie between {first} and {second}?"
        answer = str(abs(int(begin) - int(end)))
        script = (*script, *more)
    return Problem(
        request=request,
        world=World(edition=edition),
        tools=library(level),
        script=script,
        answer=answer,
        decoys=DECOYS[: between(level, 0, len(DECOYS))],
        faults=faults_for(level, rng),
    )


def question(rng: Random, edition: str, *, hops: int, level: int, last: str = "") -> tuple[str, str, tuple[Call, ...]]:
    """A thing several pages away from the answer: its description, the answer, and the calls to find it.

    `last` is the kind of thing that it must be.
    """
    wanted = last or rng.choice(("year", "count", "person", "town"))
    while True:
        start = page = rng.choice(pages(rng.choice(tuple(SIZES))))
        path: list[str] = []
        script: tuple[Call, ...] = ()
        for _ in range(hops - 1):
            script += lookup(page, level)
            path.append(rng.choice([name for name, kind in RELATIONS[page.kind].items() if kind in SIZES]))
            page = _page_of(page, path[-1], edition)
        final = [name for name, kind in RELATIONS[page.kind].items() if kind == wanted]
        if final:
            break
    path.append(rng.choice(final))
    value = told(page, path[-1], edition)
    phrase = "".join(f"the {relation} of " for relation in reversed(path)) + start.title
    return phrase, value.title if isinstance(value, Page) else str(value), (*script, *lookup(page, level))


def _page_of(page: Page, relation: str, edition: str) -> Page:
    value = told(page, relation, edition)
    assert isinstance(value, Page)
    return value


def library(level: int) -> tuple[Tool, ...]:
    """The search tools: whole pages up to level 3, later titles first."""
    return (SEARCH,) if level <= 3 else (SEARCH_TITLES, READ_PAGE)


def lookup(page: Page, level: int) -> tuple[Call, ...]:
    """The calls that read a page."""
    if level <= 3:
        return (Call("search", {"query": page.title}),)
    return Call("search_titles", {"query": page.title}), Call("read_page", {"title": page.title})


def _search(world: World, arguments: Mapping[str, Any]) -> list[str]:
    return [text_of(page, world.edition) for page in find_pages(arguments["query"], HITS - 1)]


def _search_titles(world: World, arguments: Mapping[str, Any]) -> list[str]:
    return [page.title for page in find_pages(arguments["query"], HITS)]


def _read(title: str, edition: str) -> str:
    for page in find_pages(title, HITS):
        if page.title.casefold() == " ".join(title.split()).casefold():
            return text_of(page, edition)
    raise ToolError(404, f"there is no page {title[:40]!r}")


_QUERY = fields(query=text("words to look for"))
_TITLE = fields(title=text("as search_titles gives it"))
SEARCH = Tool("search", "pages about something", _QUERY, _search)
SEARCH_TITLES = Tool("search_titles", "titles of the pages about something", _QUERY, _search_titles)
READ_PAGE = Tool("read_page", "the page with a title", _TITLE, lambda world, a: _read(a["title"], world.edition))
DECOYS = (
    Tool("search_archive", "pages as they were in the edition before, outdated", _QUERY,
         lambda world, a: [text_of(page, f"{world.edition}/before") for page in find_pages(a["query"], HITS - 1)]),
    Tool("read_page_v1", "deprecated: the page with a title, no longer updated", _TITLE,
         lambda world, a: _read(a["title"], f"{world.edition}/v1")),
    Tool("search_images", "names of pictures about something", _QUERY,
         lambda world, a: [f"{page.title}.png" for page in find_pages(a["query"], HITS)]),
    Tool("summarize_page", "a short summary of a page, written by a model, may contain errors", _TITLE,
         lambda world, a: _read(a["title"], f"{world.edition}/model")),
)  # fmt: skip
