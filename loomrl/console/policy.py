"""Policy versions: the list, one with its lineage as a graph, and two compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from loomrl.console.film import film_of_version
from loomrl.console.listing import ListPage
from loomrl.console.page import PageRequest, Pages
from loomrl.console.run_table import differing
from loomrl.http.site import Refused
from loomrl.record.catalogue import POLICY_RECORDS, PolicyRow, evaluation_summary, evaluation_text
from loomrl.record.detail import POLICY
from loomrl.store import LoomDB
from loomrl.store.policies import Evaluation
from loomrl.store.runs import POLICIES, RUNS
from loomrl.store.view.policy_list import ancestors_of, children_of, evaluations_of
from loomrl.types import PolicyVersion

ABOVE = 5
BELOW = 12
WIDE = 246.0
HIGH = 70.0
MARGIN = 12.0
"""Pixels from one version to the next in the graph, and around it."""


def add_to(pages: Pages) -> None:
    """The pages of policies."""
    POLICY_LIST.add_to(pages)
    pages.get("/policies/{id:path}", _show)
    pages.get("/compare", _compare)


def _interval(visit: PageRequest, row: PolicyRow) -> Any:
    """The latest evaluation as a mark."""
    mark = None if row.evaluation is None else evaluation_summary(row.evaluation)["interval"]
    return "" if mark is None else visit.parts.interval([mark], mark["least"], mark["most"])


POLICY_LIST = ListPage[PolicyRow](
    path="/policies",
    title="Policies",
    record=POLICY_RECORDS,
    live="policy,evaluation,deployment",
    cells={"interval": _interval},
    template="policies.html",
)
VERSION_PAGE = replace(POLICY_LIST, detail=POLICY, detail_template="policy.html")


def policy_at(visit: PageRequest, id: str) -> PolicyVersion:
    """The version of an id; Refused 404."""
    found = POLICIES.find(visit.source.db, id)
    if found is None:
        raise Refused(404, f"There is no policy version {id[:120]!r} in this store.")
    return found


def _show(visit: PageRequest) -> Response:
    found = VERSION_PAGE.find(visit)
    version = found["policy"].version
    db = visit.source.db
    graph = lineage_graph(db, version)
    return VERSION_PAGE.show_one(visit, found, version=version, graph=graph, film=film_of_version(db, version))


def _compare(visit: PageRequest) -> Response:
    db = visit.source.db
    a, b = (policy_at(visit, visit.query(name)) for name in ("a", "b"))
    runs = [RUNS.find(db, each.run) for each in (a, b)]
    judged = evaluations_of(db, [a.id, b.id])
    settings = differing([run for run in runs if run is not None]) if all(runs) else []
    return visit.page("compare.html", a=a, b=b, scores=scores_of(judged.get(a.id), judged.get(b.id)), settings=settings)


def scores_of(a: Evaluation | None, b: Evaluation | None) -> list[tuple[str, Any, Any]]:
    """Success of two evaluations by family, all first."""
    left, right = (_by_family(each) for each in (a, b))
    names = ["all", *sorted((left.keys() | right.keys()) - {"all"})]
    return [(name, left.get(name), right.get(name)) for name in names if name in left or name in right]


def _by_family(evaluation: Evaluation | None) -> dict[str, Mapping[str, Any]]:
    if evaluation is None:
        return {}
    report = evaluation.report
    parts = {"all": report.get("overall", {}), **report.get("by_family", {})}
    found: dict[str, Mapping[str, Any]] = {}
    for name, score in parts.items():
        told = score.get("success") or score.get("reward")
        if isinstance(told, dict):
            found[name] = {**told, "is_share": told is score.get("success")}
    return found


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A version in the graph, by column and row."""

    version: PolicyRow
    column: int
    row: int

    @property
    def policy(self) -> PolicyVersion:
        """The version itself."""
        return self.version.version

    @property
    def text(self) -> str:
        """Its stage, and how it was judged."""
        return ", ".join(part for part in (self.policy.stage.value, evaluation_text(self.version)) if part)

    @property
    def x(self) -> float:
        """Left edge."""
        return MARGIN + self.column * WIDE

    @property
    def y(self) -> float:
        """Upper edge."""
        return MARGIN + self.row * HIGH


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """A version between its nearest ancestors, on the left, and what was made from it."""

    nodes: Sequence[LineageNode]
    edges: Sequence[tuple[LineageNode, LineageNode]]
    wide: float
    high: float
    more: str | None
    """The version before the first one that is drawn."""


def lineage_graph(db: LoomDB, policy: PolicyVersion) -> LineageGraph:
    """The graph around a version."""
    above = ancestors_of(db, policy, most=ABOVE)
    children = children_of(db, [policy.id], most=BELOW)
    beyond = children_of(db, [each.id for each in children], most=BELOW) if children else []
    placed = [(each, column, 0) for column, each in enumerate([*reversed(above), policy])]
    placed += [(each, len(above) + 1, row) for row, each in enumerate(children)]
    placed += [(each, len(above) + 2, row) for row, each in enumerate(beyond)]
    evaluations = evaluations_of(db, [each.id for each, _, _ in placed])
    nodes = [LineageNode(PolicyRow(each, evaluations.get(each.id)), column, row) for each, column, row in placed]
    by_id = {node.policy.id: node for node in nodes}
    edges = [(by_id[each.policy.parent], each) for each in nodes if each.policy.parent in by_id]
    more = above[-1].parent if above else None
    high = max(node.y for node in nodes) + HIGH + (MARGIN if more else 0)
    return LineageGraph(nodes, edges, max(node.x for node in nodes) + WIDE, high, more)
