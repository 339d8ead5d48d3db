"""Policy versions: the list, one with its lineage as a graph, and two compared."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import Response

from loomrl.console.listing import ListPage
from loomrl.console.page import PageRequest, Pages
from loomrl.console.run import changed, evaluation_row
from loomrl.http.site import Refused
from loomrl.record import word
from loomrl.record.catalogue import POLICY_RECORDS, PolicyRow
from loomrl.store import LoomDB
from loomrl.store.deployments import DEPLOYMENTS
from loomrl.store.events import EVENTS
from loomrl.store.policies import EVALUATIONS, Evaluation
from loomrl.store.runs import POLICIES, RUNS
from loomrl.store.verdicts import VERDICTS
from loomrl.store.view.policy_list import ancestors_of, children_of, evaluations_of
from loomrl.types import PolicyVersion

ABOVE = 5
BELOW = 12
WIDE = 190.0
HIGH = 54.0
GAP_X = 56.0
GAP_Y = 16.0
MARGIN = 12.0


def add_to(pages: Pages) -> None:
    """The pages of policies."""
    POLICY_LIST.add_to(pages)
    pages.get("/policies/{id:path}", _show)
    pages.get("/compare", _compare)


def _interval(_: PageRequest, row: PolicyRow) -> Any:
    """The latest evaluation as a picture."""
    return "" if row.evaluation is None else evaluation_row(row.evaluation)["picture"]


POLICY_LIST = ListPage[PolicyRow](
    path="/policies",
    title="Policies",
    record=POLICY_RECORDS,
    live="policy,evaluation",
    cells={"interval": _interval},
    template="policies.html",
)


def policy_at(visit: PageRequest, id: str) -> PolicyVersion:
    """The version of an id; Refused 404."""
    found = POLICIES.find(visit.source.db, id)
    if found is None:
        raise Refused(404, f"There is no policy version {id[:120]!r} in this store.")
    return found


def _show(visit: PageRequest) -> Response:
    db = visit.source.db
    policy = policy_at(visit, visit.segment("id"))
    return visit.page(
        "policy.html",
        policy=policy,
        run=RUNS.find(db, policy.run),
        graph=lineage_graph(db, policy),
        evaluations=[evaluation_row(each) for each in EVALUATIONS.latest(db, policy=policy.id, limit=20)],
        deployments=DEPLOYMENTS.latest(db, policy=policy.id, limit=20),
        verdicts=VERDICTS.latest(db, policy=policy.id, limit=10),
        data=json.dumps(dict(policy.data), indent=1, ensure_ascii=False, default=str)[:20_000],
        position=EVENTS.last(db),
    )


def _compare(visit: PageRequest) -> Response:
    db = visit.source.db
    a, b = (policy_at(visit, visit.query(name)) for name in ("a", "b"))
    runs = [RUNS.find(db, each.run) for each in (a, b)]
    judged = evaluations_of(db, [a.id, b.id])
    settings = changed(runs[0], runs[1]) if runs[0] and runs[1] else []
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

    policy: PolicyVersion
    column: int
    row: int

    @property
    def x(self) -> float:
        """Left edge."""
        return MARGIN + self.column * (WIDE + GAP_X)

    @property
    def y(self) -> float:
        """Upper edge."""
        return MARGIN + self.row * (HIGH + GAP_Y)


def lineage_graph(db: LoomDB, policy: PolicyVersion) -> Markup:
    """The version between its nearest ancestors, on the left, and what was made from it."""
    above = ancestors_of(db, policy, most=ABOVE)
    children = children_of(db, [policy.id], most=BELOW)
    beyond = children_of(db, [each.id for each in children], most=BELOW) if children else []
    nodes = [LineageNode(each, column, 0) for column, each in enumerate([*reversed(above), policy])]
    nodes += [LineageNode(each, len(above) + 1, row) for row, each in enumerate(children)]
    nodes += [LineageNode(each, len(above) + 2, row) for row, each in enumerate(beyond)]
    judged = evaluations_of(db, [node.policy.id for node in nodes])
    wide = 2 * MARGIN + (1 + max(node.column for node in nodes)) * (WIDE + GAP_X) - GAP_X
    high = 2 * MARGIN + (1 + max(node.row for node in nodes)) * (HIGH + GAP_Y) - GAP_Y
    boxes = [part for node in nodes for part in _node(node, judged, is_this=node.policy.id == policy.id)]
    drawn = [*_edges(nodes), *boxes]
    more = above[-1].parent if above else None
    if more is not None:
        first = escape(word.visible(word.short(more, 30)))
        drawn.append(f'<text x="{MARGIN:g}" y="{MARGIN + HIGH + 16:g}">more before it, from {first}</text>')
        high += 24
    return Markup(f'<svg class="graph" viewBox="0 0 {max(wide, 900):g} {high:g}">{"".join(drawn)}</svg>')


def _edges(nodes: Sequence[LineageNode]) -> Iterator[str]:
    places = {node.policy.id: node for node in nodes}
    for node in nodes:
        parent = places.get(node.policy.parent or "")
        if parent is None:
            continue
        x = parent.x + WIDE
        y = parent.y + HIGH / 2
        to_x = node.x
        to_y = node.y + HIGH / 2
        middle = (x + to_x) / 2
        yield f'<path class="edge" d="M{x:g} {y:g}C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}"/>'


def _node(node: LineageNode, judged: Mapping[str, Evaluation], *, is_this: bool) -> Iterator[str]:
    policy = node.policy
    told = evaluation_row(judged[policy.id]) if policy.id in judged else None
    score = ""
    if told is not None and told["mean"] is not None:
        score = f", {told['what']} {(word.percent if told['is_share'] else word.number)(told['mean'])}"
    name = escape(word.visible(word.short(policy.id, 26)))
    this = ' class="this"' if is_this else ""
    yield f'<a href="/policies/{escape(quote(policy.id, safe="/@=+:,~"))}"{this}>'
    yield f"<title>{escape(word.visible(policy.id))}</title>"
    yield f'<rect x="{node.x:g}" y="{node.y:g}" width="{WIDE:g}" height="{HIGH:g}" rx="7"/>'
    yield f'<text class="name" x="{node.x + 12:g}" y="{node.y + 23:g}">{name}</text>'
    yield f'<text x="{node.x + 12:g}" y="{node.y + 41:g}">{escape(policy.stage.value + score)}</text></a>'
