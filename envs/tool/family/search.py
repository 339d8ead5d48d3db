"""Questions about an invented world, whose answers are several pages away."""

from random import Random

from loomrl.envs.tool.call import FunctionCall
from loomrl.envs.tool.corpus import RELATIONS, SIZES, CorpusPage, find_pages, pages, state_fact, text_of
from loomrl.envs.tool.kit import Arguments, PolicyTool, fields, text
from loomrl.envs.tool.problem import ToolProblem, faults_for
from loomrl.envs.tool.world import ToolError, ToolWorld
from loomrl.gym.generate import between

HITS = 3
"""Pages that a search finds."""


def search_problem(level: int, rng: Random) -> ToolProblem:
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
    return ToolProblem(
        request=request,
        world=ToolWorld(edition=edition),
        tools=library(level),
        script=script,
        answer=answer,
        decoys=DECOYS[: between(level, 0, len(DECOYS))],
        faults=faults_for(level, rng),
    )


def question(
    rng: Random, edition: str, *, hops: int, level: int, last: str = ""
) -> tuple[str, str, tuple[FunctionCall, ...]]:
    """A thing several pages away from the answer: its description, the answer, and the calls to find it.

    `last` is the kind of thing that it must be.
    """
    wanted = last or rng.choice(("year", "count", "person", "town"))
    while True:
        start = page = rng.choice(pages(rng.choice(tuple(SIZES))))
        path: list[str] = []
        script: tuple[FunctionCall, ...] = ()
        for _ in range(hops - 1):
            script += lookup(page, level)
            path.append(rng.choice([name for name, kind in RELATIONS[page.kind].items() if kind in SIZES]))
            page = _page_of(page, path[-1], edition)
        final = [name for name, kind in RELATIONS[page.kind].items() if kind == wanted]
        if final:
            break
    path.append(rng.choice(final))
    value = state_fact(page, path[-1], edition)
    phrase = "".join(f"the {relation} of " for relation in reversed(path)) + start.title
    return phrase, value.title if isinstance(value, CorpusPage) else str(value), (*script, *lookup(page, level))


def _page_of(page: CorpusPage, relation: str, edition: str) -> CorpusPage:
    value = state_fact(page, relation, edition)
    assert isinstance(value, CorpusPage)
    return value


def library(level: int) -> tuple[PolicyTool, ...]:
    """The search tools: whole pages up to level 3, later titles first."""
    return (SEARCH,) if level <= 3 else (SEARCH_TITLES, READ_PAGE)


def lookup(page: CorpusPage, level: int) -> tuple[FunctionCall, ...]:
    """The calls that read a page."""
    if level <= 3:
        return (FunctionCall("search", {"query": page.title}),)
    return FunctionCall("search_titles", {"query": page.title}), FunctionCall("read_page", {"title": page.title})


def _search(world: ToolWorld, arguments: Arguments) -> list[str]:
    return [text_of(page, world.edition) for page in find_pages(arguments["query"], HITS - 1)]


def _search_titles(world: ToolWorld, arguments: Arguments) -> list[str]:
    return [page.title for page in find_pages(arguments["query"], HITS)]


def _read(title: str, edition: str) -> str:
    for page in find_pages(title, HITS):
        if page.title.casefold() == " ".join(title.split()).casefold():
            return text_of(page, edition)
    raise ToolError(404, f"there is no page {title[:40]!r}")


_QUERY = fields(query=text("words to look for"))
_TITLE = fields(title=text("as search_titles gives it"))
SEARCH = PolicyTool("search", "pages about something", _QUERY, _search)
SEARCH_TITLES = PolicyTool("search_titles", "titles of the pages about something", _QUERY, _search_titles)
READ_PAGE = PolicyTool("read_page", "the page with a title", _TITLE, lambda world, a: _read(a["title"], world.edition))
DECOYS = (
    PolicyTool("search_archive", "pages as they were in the edition before, outdated", _QUERY,
         lambda world, a: [text_of(page, f"{world.edition}/before") for page in find_pages(a["query"], HITS - 1)]),
    PolicyTool("read_page_v1", "deprecated: the page with a title, no longer updated", _TITLE,
         lambda world, a: _read(a["title"], f"{world.edition}/v1")),
    PolicyTool("search_images", "names of pictures about something", _QUERY,
         lambda world, a: [f"{page.title}.png" for page in find_pages(a["query"], HITS)]),
    PolicyTool("summarize_page", "a short summary of a page, written by a model, may contain errors", _TITLE,
         lambda world, a: _read(a["title"], f"{world.edition}/model")),
)  # fmt: skip
