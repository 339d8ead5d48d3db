"""`loomrl rewards …`: rewards of served trajectories, with all evidence."""

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.face import face, nouns, open_face_store
from loomrl.experiments.commands.listing import add_list
from loomrl.experiments.commands.output import emit, table
from loomrl.record.detail import REWARD

if TYPE_CHECKING:
    from loomrl.config import RewardPipeline
    from loomrl.evaluation.statistics import Interval
    from loomrl.feedback.calibrate import CalibrationReport
    from loomrl.feedback.content import Contents
    from loomrl.feedback.reward.judging import Judging, JudgingRound
    from loomrl.hub import Hub
    from loomrl.store import LoomDB

app = nouns("Rewards of served trajectories, from outcomes, feedback and measures.")
PAUSE_S = 0.1
"""Between two looks at whether there is anything new."""
Where = Annotated[str, typer.Argument(metavar="NAME", help="An endpoint, a run, or an external agent.")]
WithRubric = Annotated[str, typer.Option(help="The experiment whose rewards.parts have the judge.")]
Part = Annotated[str | None, typer.Option(help="The judge's name, if there are several.")]
Settings = Annotated[list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Over the experiment's.")]


class By(StrEnum):
    """Where people's ratings come from."""

    FEEDBACK = "feedback"
    INBOX = "inbox"


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="ENDPOINT", help="The name that callers give as model.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Such as weights.user_feedback=0.4.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help="An experiment of kind serving, whose `rewards` are taken.")
    ] = None,
    agent: Annotated[
        bool, typer.Option("--agent", help="ENDPOINT is the name of an external agent, whose trajectories came by bus.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="End when all is judged, instead of waiting for more.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Judge all that the hub has again: a new reward where settings differ.")
    ] = False,
) -> None:
    """Turn new trajectories and new feedback into rewards, until interrupted. Any number of these may run at once."""
    from loomrl.experiments.shipped import resolve_rewards

    pipeline = resolve_rewards(experiment, settings or [])
    with open_face_store() as db, _open_judging(db, name, pipeline, is_agent=agent) as judging:
        if again:
            judging.start_over()
        if once:
            _print_round(judging.drain())
        else:
            _judge_forever(judging)


add_list(app, REWARD)


@app.command()
def ask(
    name: Where,
    experiment: WithRubric,
    settings: Settings = None,
    part: Part = None,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Trajectories to ask about.")] = 50,
    days: Annotated[float, typer.Option(min=0.01, max=365, help="How long the questions wait.")] = 14.0,
) -> None:
    """Ask people what a rubric asks its judge: a question for every criterion (`loomrl feedback questions`).

    Repeated with the same count it asks about the same trajectories, and nothing twice.
    """
    from loomrl.experiments.shipped import resolve_rubric
    from loomrl.feedback.content import Contents
    from loomrl.feedback.rating import ask_people

    rubric = resolve_rubric(experiment, part, settings or [])
    with open_face_store() as db, Contents(face().store) as contents:
        asked = ask_people(db, _hub_of(db, contents, name), rubric.criteria, count=count, days=days)
    result = {"trajectories": asked, "questions": asked * len(rubric.criteria)}
    said = f"{result['questions']} questions about {asked} trajectories wait for {days:g} days."
    emit(result, said)


@app.command()
def calibrate(  # noqa: PLR0913 - a command with its options
    name: Where,
    experiment: WithRubric,
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="The map, as JSON; the part names it as `calibration`.")] = Path(
        "calibration.json"
    ),
    part: Part = None,
    by: Annotated[
        By, typer.Option(help="People's ratings: feedback on record, or answers to `rewards ask`.")
    ] = By.FEEDBACK,
    count: Annotated[
        int, typer.Option(min=1, max=100_000, help="Rated trajectories at most; each costs two grades.")
    ] = 500,
) -> None:
    """Compare a judge with people, and fit the map from its score to theirs. Ends with 1 if there is none."""
    from loomrl.config.rewards import ClassifierPart
    from loomrl.errors import ConfigError
    from loomrl.experiments.shipped import resolve_judge
    from loomrl.feedback.calibrate import compare
    from loomrl.feedback.content import Contents
    from loomrl.feedback.rating import from_feedback, from_inbox

    judge = resolve_judge(experiment, part, settings or [])
    with open_face_store() as db, Contents(face().store) as contents:
        hub = _hub_of(db, contents, name)
        if by is By.FEEDBACK:
            ratings = from_feedback(db, hub)
        elif isinstance(judge, ClassifierPart):
            raise ConfigError(f"--by inbox: part {judge.name!r} is a classifier without criteria. Use --by feedback.")
        else:
            ratings = from_inbox(db, judge.criteria, hub)
    report, made = compare(judge, ratings.some(count), by=by.value, at=time.time())
    if made is not None:
        made.write(out)
    result = {"report": report.data(), "file": str(out) if made else None}
    emit(result, show=lambda console: _render_report(report, str(out) if made else None, console))
    raise typer.Exit(0 if made else 1)


def _hub_of(db: "LoomDB", contents: "Contents", name: str) -> "Hub":
    """The hub of an endpoint, of an external agent, or of a run."""
    from loomrl.bus.agent import hub_name, list_agents
    from loomrl.errors import ConfigError, unknown
    from loomrl.store.endpoints import list_endpoints
    from loomrl.store.runs import RUNS

    endpoints = [one.name for one in list_endpoints(db)]
    agents = list_agents(db)
    runs = [one.id for one in RUNS.latest(db, limit=1000)]
    hubs = {
        **{one: one for one in runs},
        **{one: hub_name(one) for one in agents},
        **{one: f"endpoint-{one}" for one in endpoints},
    }
    if name not in hubs:
        raise ConfigError(unknown("name", name, hubs))
    return contents.hub(hubs[name])


def _render_report(report: "CalibrationReport", file: str | None, console: Console) -> None:
    def text(one: "Interval | None") -> str:
        if one is None or one.mean is None:
            return "not defined"
        return f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}] of {one.count}"

    rows = [
        ("rank correlation with people", text(report.rank)),
        ("kappa of upper and lower half", text(report.kappa)),
        ("choices that the judge would make", text(report.pairs) if report.pairs else "people made none"),
        *((f"{name}: {one.measure}", text(one.found)) for name, one in report.criteria.items()),
        ("verdicts that the order changes", text(report.changed)),
        ("score in the opposite order, more by", text(report.shift)),
        ("goes with length, more by", text(report.length)),
        *((f"squared error of the {name}", f"{value:.4f}") for name, value in report.errors.items()),
    ]
    console.print(table("", ("judge against people", "found"), rows))
    if report.failed:
        console.print(f"No verdict on {len(report.failed)}, such as {report.failed[0]}", markup=False, highlight=False)
    if report.gone:
        console.print(f"{report.gone} rated trajectories are no longer in the hub.", highlight=False)
    said = f"Written: {file}" if file else "No map: it is not proved that the judge's score rises with people's."
    console.print(said, highlight=False, markup=False)


@contextmanager
def _open_judging(db: "LoomDB", name: str, settings: "RewardPipeline", *, is_agent: bool) -> Iterator["Judging"]:
    """The step for an endpoint, or for an external agent."""
    from loomrl.bus.agent import hub_name, list_agents, open_agent_hub
    from loomrl.config import HubConfig
    from loomrl.errors import ConfigError, unknown
    from loomrl.feedback.reward.judging import Judging, open_judging
    from loomrl.feedback.reward.pipeline import Pipeline
    from loomrl.store.endpoints import show_endpoint

    if not is_agent:
        show_endpoint(db, name)
        with open_judging(db, face().store, name, settings) as judging:
            yield judging
        return
    agents = list_agents(db)
    if name not in agents:
        raise ConfigError(unknown("agent", name, agents))
    with open_agent_hub(face().store, name, HubConfig()) as hub:
        yield Judging(db, hub, Pipeline(settings), endpoint=hub_name(name))


def _judge_forever(judging: "Judging") -> None:
    from loomrl.errors import StoreError

    gc.freeze()  # what is here stays: looking through it again and again would cost a third of the time
    while True:
        try:
            done = judging.round()
        except StoreError as error:  # the database may be away for a while
            print(f"loomrl: {error}", file=sys.stderr)
            time.sleep(1.0)
            continue
        if done.rewards or done.alarms:
            _print_round(done)
        if done.is_idle:
            time.sleep(PAUSE_S)


def _print_round(done: "JudgingRound") -> None:
    said = f"{done.rewards} rewards of {done.trajectories} trajectories and {done.feedback} rows of feedback"

    def render(console: Console) -> None:
        console.print(said, highlight=False)
        for alarm in done.alarms:
            console.print(f"ALARM {alarm.reason}", highlight=False, markup=False)

    emit(asdict(done), show=render)
