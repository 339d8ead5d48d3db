"""An invented encyclopedia: towns, people and companies, in SQLite's full-text index, once per process.

from loomrl.gym.generate import words
How a page is found never changes; what it says follows from the edition. So all episodes share one index, and no answer
can be learnt by heart.
"""

import re
import sqlite3
from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import NamedTuple

from loomrl.gym.generate import words

FIRST = words(
    "Ana Ben Cleo Dario Edda Felix Greta Hugo Ines Jonas Kaja Levi Mira Nils Olga Pavel Rosa Sven Tilda "
    "Uwe Vera Wim Yara Zeno"
)
THINGS = words(
    "bolt hinge lamp rope valve pump gear cable brush wheel filter spring clamp hose latch motor pipe ring screw tile"
)
WORDS = words("red blue green old new cold warm tall small quiet fox owl bear lynx hare crow pike moth wolf seal")
_STARTS = words("B Br D Dr F G H K Kr L M N P R S Sk T Tr V Z")
_MIDDLES = words("a e i o u ai ei ou")
_JOINTS = words("l lv m nd r rk st t v x b g")
_ENDS = words("a en is or um eth ow y an el")


@lru_cache(maxsize=8)
def invent_names(kind: str, count: int) -> tuple[str, ...]:
    """`count` different words that sound like names; the same for the same kind, and different for different ones."""
    rng = Random(f"names/{kind}")
    found: dict[str, None] = {}
    while len(found) < count:
        parts = (
            (_STARTS, _MIDDLES, _JOINTS, _MIDDLES, _JOINTS, _ENDS)
            if kind == "town"
            else (_STARTS, _MIDDLES, _JOINTS, _ENDS)
        )
        found["".join(map(rng.choice, parts))] = None
    return tuple(found)


SIZES: Mapping[str, int] = {"town": 240, "person": 320, "company": 160}
RELATIONS: Mapping[str, Mapping[str, str]] = {
    "town": {"mayor": "person", "twin town": "town", "year of founding": "year", "number of inhabitants": "count"},
    "person": {"birthplace": "town", "employer": "company", "teacher": "person", "year of birth": "year"},
    "company": {"seat": "town", "founder": "person", "year of founding": "year", "number of employees": "count"},
}
"""Kind of page → its relations → the kind of page they name, or a number."""
YEARS = range(1100, 2000)
COUNTS = range(200, 90_000)
MOST_WORDS = 12
"""Words of a query that are searched for."""


class CorpusPage(NamedTuple):
    """The subject of a page."""

    title: str
    kind: str


def state_fact(page: CorpusPage, relation: str, edition: str) -> CorpusPage | int:
    """A page's statement about one relation."""
    rng = Random(f"{edition}/{page.title}/{relation}")
    kind = RELATIONS[page.kind][relation]
    if kind in SIZES:
        others = pages(kind)
        chosen = others[rng.randrange(len(others) - 1)]
        return others[-1] if chosen == page else chosen
    return rng.choice(YEARS if kind == "year" else COUNTS)


def text_of(page: CorpusPage, edition: str) -> str:
    """The whole page."""
    facts = []
    for relation in RELATIONS[page.kind]:
        value = state_fact(page, relation, edition)
        facts.append(f"The {relation} of {page.title} is {value.title if isinstance(value, CorpusPage) else value}.")
    return " ".join([f"{page.title} is a {page.kind}.", *facts])


@lru_cache(maxsize=4)
def pages(kind: str) -> tuple[CorpusPage, ...]:
    """Every page of a kind."""
    count = SIZES[kind]
    if kind == "town":
        return tuple(CorpusPage(name, kind) for name in invent_names(kind, count))
    if kind == "company":
        endings = ("Works", "Mills", "Foundry", "Shipping")
        return tuple(CorpusPage(f"{name} {endings[n % 4]}", kind) for n, name in enumerate(invent_names(kind, count)))
    first, last = invent_names("first", 40), invent_names("last", count // 4)
    return tuple(CorpusPage(f"{first[(7 * n + n // 40) % 40]} {last[n // 4]}", kind) for n in range(count))


def find_pages(query: str, most: int) -> list[CorpusPage]:
    """The pages that a query's words suit best. Words are looked for as they stand: no operator has a meaning."""
    words = re.findall(r"\w+", query)[:MOST_WORDS]
    if not words:
        return []
    phrase = " OR ".join(f'"{word}"' for word in words)
    # rowid breaks ties of rank, so that equal queries have equal answers
    rows = _index().execute(
        "SELECT title, kind FROM page WHERE page MATCH ? ORDER BY rank, rowid LIMIT ?", (phrase, most)
    )
    return [CorpusPage(*row) for row in rows]


@lru_cache(maxsize=1)
def _index() -> sqlite3.Connection:
    """SQLite serialises queries of several threads, and the index is read-only."""
    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.execute("CREATE VIRTUAL TABLE page USING fts5(title, kind, topics)")
    rows = [(page.title, page.kind, " ".join(RELATIONS[kind])) for kind in SIZES for page in pages(kind)]
    index.executemany("INSERT INTO page VALUES (?, ?, ?)", rows)
    index.execute("PRAGMA query_only = ON")
    return index
