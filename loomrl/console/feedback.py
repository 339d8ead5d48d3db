"""Feedback: the inbox of what people are asked, and what they said."""

import time
import uuid
from contextlib import closing
from typing import Any

from starlette.responses import Response

from loomrl.console.listing import ListPage
from loomrl.console.page import PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.console.source import FoundTrajectory
from loomrl.errors import StoreError
from loomrl.http.site import Refused
from loomrl.record.catalogue import FEEDBACK_RECORDS
from loomrl.record.detail import DATASET, REWARD, TRAINING
from loomrl.safety.redaction import PatternRedactor, Redaction
from loomrl.serving.dialect.openai import message_of
from loomrl.serving.feedback.intake import MOST_STARS, EndpointHubs, FeedbackEntry, FeedbackIntake, read_feedback_body
from loomrl.serving.refusal import Refusal
from loomrl.serving.request import Caller
from loomrl.store.endpoints import list_endpoints
from loomrl.store.feedback import append_feedback, feedback_of
from loomrl.store.judgements import answer, waiting
from loomrl.store.view.trajectory_index import TrajectoryFilter, page_of
from loomrl.types import Feedback

TO_RATE = 8
LOOKED_AT = 200
STARS = tuple(f"stars {count}" for count in range(1, MOST_STARS + 1))
KINDS = ("thumb up", "thumb down", *STARS, "correction", "comment")
SERVED = "endpoint-"


def add_to(pages: Pages) -> None:
    """The inbox, and what comes of feedback."""
    pages.get("/feedback", _inbox)
    for path, title, detail, live in (
        ("/rewards", "Rewards", REWARD, "reward"),
        ("/datasets", "Data sets", DATASET, "dataset"),
        ("/trainings", "Trainings of the loop", TRAINING, "job"),
    ):
        ListPage(path=path, title=title, record=detail.record, detail=detail, live=live).add_to(pages)
    pages.post("/feedback/answer", _answer, role=ConsoleRole.RATER)
    pages.post("/feedback/choose", _choose, role=ConsoleRole.RATER)


def _inbox(visit: PageRequest) -> Response:
    db = visit.source.db
    page = GIVEN.read(visit)
    return visit.page(
        "feedback.html",
        questions=waiting(db, now=time.time(), limit=20),
        to_rate=_to_rate(visit),
        rows=page.rows,
        next=page.next,
        **GIVEN.context(visit),
    )


def _opinion(visit: PageRequest, row: Feedback) -> Any:
    """A thumb, stars, or a number."""
    return visit.parts.opinion(row.kind, row.value)


GIVEN = ListPage[Feedback](
    path="/feedback", title="Feedback", record=FEEDBACK_RECORDS, live="feedback,judgement", cells={"value": _opinion}
)


def _to_rate(visit: PageRequest) -> list[tuple[FoundTrajectory, list[tuple[str, str]]]]:
    """The newest sessions without a judgement, with their turns."""
    source = visit.source
    wanted = TrajectoryFilter(equal={"source": "production"})
    rows = [row for _, row in page_of(source.index, wanted, before=None, limit=LOOKED_AT).rows]
    judged = {one.trajectory for one in feedback_of(source.db, [row.id for row in rows])} if rows else set()
    found = []
    for row in rows:
        if row.id in judged or row.length > 20_000:
            continue
        if (place := source.at(row.hub, row.place)) is not None:
            found.append((place, said_in(place)))
        if len(found) == TO_RATE:
            break
    return found


def said_in(place: FoundTrajectory) -> list[tuple[str, str]]:
    """The last turn of a session: roles and texts."""
    if not place.trajectory.turns:
        return []
    turn = place.trajectory.turns[-1]
    last = [(message.role, message.content[:2000]) for message in turn.observation[-1:]]
    return [*last, ("assistant", turn.action[:4000])]


def give(visit: PageRequest, place: FoundTrajectory, form: Any) -> None:
    """Store what a person says of a trajectory: of what was served with the gateway's own checks and redaction."""
    kind = form.get("kind", "")
    text = form.get("text", "").strip()
    comment = form.get("comment", "").strip()
    if kind not in KINDS:
        raise Refused(400, f"kind={kind[:80]!r} is unknown. Known: {', '.join(KINDS)}.")
    if kind == "correction" and not text:
        raise Refused(400, "A correction needs the text that would have been right.")
    if kind == "comment" and not comment:
        raise Refused(400, "A comment needs words.")
    if "\0" in text + comment:
        raise Refused(400, "Text with NUL characters cannot be stored. Remove them.")
    body = {"session": place.trajectory.id, **opinion(kind, text), **({"comment": comment} if comment else {})}
    if place.hub.startswith(SERVED):
        take(visit, body)
        return
    append_feedback(visit.source.db, [_said(visit, read_feedback_body(body))])


def opinion(kind: str, text: str = "") -> dict[str, Any]:
    """A judgement of one of KINDS, as the gateway reads it; nothing of a comment, which stands by itself."""
    word, _, value = kind.partition(" ")
    said: dict[str, dict[str, Any]] = {
        "thumb": {"thumb": value},
        "stars": {"stars": int(value) if value.isdecimal() else 0},
        "correction": {"correction": text},
    }
    return said.get(word, {})


def take(visit: PageRequest, body: dict[str, Any]) -> None:
    """Feedback on a served session, in the form that the gateway takes."""
    db = visit.source.db
    with closing(
        FeedbackIntake(db, EndpointHubs(visit.source.url, [each.name for each in list_endpoints(db)]))
    ) as intake:
        try:
            intake.take(
                read_feedback_body(body, key=f"{visit.who}-{uuid.uuid4().hex}"), caller=Caller(key="", is_admin=True)
            )
        except Refusal as refusal:
            raise Refused(400, message_of(refusal)) from None


def _said(visit: PageRequest, told: FeedbackEntry) -> Feedback:
    redaction = Redaction(PatternRedactor())
    return Feedback(
        id=f"fb-{uuid.uuid4().hex}",
        trajectory=told.place.session,
        source=told.source,
        kind=told.kind,
        value=told.value,
        comment=redaction.text(told.comment),
        created_at=time.time(),
        data={"who": visit.who} | {name: redaction.text(str(value)) for name, value in told.data.items()},
    )


def _answer(visit: PageRequest) -> Response:
    """Answer what an environment asks."""
    try:
        answer(
            visit.source.db,
            visit.form.get("id", ""),
            visit.form.get("choice", ""),
            who=visit.who,
            comment=visit.form.get("comment", "").strip()[:2000],
            at=time.time(),
        )
    except StoreError as error:
        raise Refused(409 if "already" in str(error) else 404, str(error)) from None
    return visit.back("/feedback")


def _choose(visit: PageRequest) -> Response:
    """Record which of two attempts at a task, or of two sessions, is the better one."""
    source = visit.source
    places = [source.find(visit.form.get(name, "")) for name in ("better", "worse")]
    better, worse = places
    if better is None or worse is None or better.trajectory.id == worse.trajectory.id:
        raise Refused(404, "Two trajectories are needed, and one of these is not there.")
    mine = better.trajectory.id
    other = worse.trajectory.id
    if better.hub.startswith(SERVED) and worse.hub.startswith(SERVED):
        take(visit, {"session": mine, "over": {"session": other}})
    else:
        now = time.time()
        mark = uuid.uuid4().hex
        rows = [
            Feedback(id=f"fb-{mark}-{end}", trajectory=id, source="human", kind="choice", value=value, created_at=now,
                     data={"who": visit.who, word: against})
            for id, value, end, word, against in ((mine, 1.0, "a", "over", other), (other, 0.0, "b", "under", mine))
        ]  # fmt: skip
        append_feedback(source.db, rows)
    onward = visit.form.get("next", "")
    return visit.back(onward if onward.startswith("/siblings?") else "/feedback")
