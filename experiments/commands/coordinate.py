"""`loomrl coordinate`: the loop of an endpoint, from what it served to its next version."""

import getpass
import time
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.group import DEFAULT, DefaultGroup
from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import Limit, StoreUrl
from loomrl.experiments.commands.tls import Tls
from loomrl.observability.log import teller

if TYPE_CHECKING:
    from loomrl.config.loop import LoopExperiment
    from loomrl.coordinator.job import Job
    from loomrl.coordinator.service import TrainingService
    from loomrl.experiments.coordinate.loop import Coordinator

app = typer.Typer(
    cls=DefaultGroup,
    help="Have what an endpoint served train its next version: `loomrl coordinate EXPERIMENT`.",
    no_args_is_help=True,
)
Words = Annotated[
    list[str], typer.Argument(metavar="EXPERIMENT [PATH=VALUE]...", help="An experiment of kind loop, then overrides.")
]
Id = Annotated[str, typer.Argument(metavar="JOB", help="Id of a job, or its first letters.")]
Who = Annotated[str, typer.Option(help="Your name; by default that of your account.")]
Why = Annotated[str, typer.Option(help="Stays on record.")]


@app.command(DEFAULT)
def run(  # noqa: PLR0913 - a command with its options
    words: Words,
    once: Annotated[bool, typer.Option("--once", help="End when there is nothing to do now; without HTTP.")] = False,
    http: Annotated[bool, typer.Option("--http/--no-http", help="Answer as training service over HTTP.")] = True,
    host: Annotated[
        str, typer.Option(help="Address to serve on; beyond this machine a token is required.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8100,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=["LOOMRL_COORDINATOR_TOKEN", "AGENTGYM_RL_API_KEY"], help="Bearer token that callers need."
        ),
    ] = None,
    tls: Tls = None,
    bus: Annotated[
        str | None,
        typer.Option("--bus", envvar="NATS_URL", help="Take requests from this bus, too: nats://USER:PASSWORD@HOST."),
    ] = None,
) -> None:
    """Coordinate until interrupted. Any number of these may run at once, and each may be killed at any instant."""
    from loomrl.experiments.shipped import resolve_loop

    plan = resolve_loop(words)
    if once:
        _once(plan)
        return
    from loomrl.http.listen import open_door
    from loomrl.http.tls import Certificate

    shown = tls and Certificate(*tls)
    door = open_door(host, port, token=token, certificate=shown) if http else None  # before imports that take seconds
    from loomrl.coordinator.service import served
    from loomrl.experiments.coordinate.loop import coordinating
    from loomrl.observability.presence import present
    from loomrl.store import open_store
    from loomrl.store.service.replicas import ReplicaRole
    from loomrl.telemetry.record import record_routes

    with open_store(plan.store_url) as db, coordinating(db, plan, say=_say) as coordinator, ExitStack() as stack:
        service = _service(coordinator)
        address = ""
        if door is not None:
            routes = stack.enter_context(record_routes(db, plan.store_url))
            address = f"{door.host}:{door.port}"
            _say(
                f"training service of endpoint {plan.endpoint} on {stack.enter_context(served(service, door, routes))}"
            )
        stack.enter_context(present(db, ReplicaRole.COORDINATOR, address=address, endpoint=plan.endpoint))
        _keep_on(coordinator, service, bus, stack)


@app.command()
def request(
    words: Words,
    priority: Annotated[str, typer.Option(help="low, normal, high or urgent.")] = "high",
    who: Who = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Ask for a training by hand. Whoever coordinates the endpoint starts it when its turn comes."""
    from loomrl.coordinator.job import Job, Priority, Trigger, new_id
    from loomrl.coordinator.ledger import ask_for
    from loomrl.errors import ConfigError, unknown
    from loomrl.experiments.shipped import resolve_loop
    from loomrl.store import open_store

    if priority not in list(Priority):
        raise ConfigError(unknown("--priority", priority, list(Priority)))
    plan = resolve_loop(words)
    now = time.time()
    name = who or getpass.getuser()
    with open_store(plan.store_url) as db:
        job = Job(
            id=new_id(),
            endpoint=plan.endpoint,
            trigger=Trigger.HAND,
            priority=Priority(priority),
            asked_at=now,
            at=now,
            since=now,
            reason=why or f"by {name}",
            who=name,
        )
        asked = ask_for(db, plan, job)
    assert asked is not None
    _tell(asked, as_json=as_json)


@app.command()
def jobs(
    endpoint: Annotated[str | None, typer.Option(help="Only those of this endpoint.")] = None,
    store: StoreUrl = "sqlite:///loom.db",
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest jobs, latest moved first."""
    from loomrl.coordinator.job import Job
    from loomrl.store import open_store
    from loomrl.store.trainings import list_trainings

    with open_store(store) as db:
        found = [Job.of(row) for row in list_trainings(db, endpoint=endpoint, limit=limit)]
    rows = [(job.id[:8], job.endpoint, job.phase, job.trigger, job.policy or job.run, _at(job.at), job.reason[:120])
            for job in found]  # fmt: skip
    columns = ("job", "endpoint", "state", "trigger", "policy", "at", "reason")
    emit(
        {"jobs": [_as_json(job) for job in found]},
        as_json=as_json,
        show=lambda console: console.print(table("", columns, rows) if rows else f"No jobs in {store}."),
    )


@app.command()
def show(id: Id, store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """Show a job from its request to its end: every row of its log."""
    from loomrl.coordinator.job import Job
    from loomrl.coordinator.ledger import find_job
    from loomrl.store import open_store
    from loomrl.store.trainings import show_log

    with open_store(store) as db:
        rows = [Job.of(row) for row in show_log(db, find_job(db, id).id)]

    def render(console: Console) -> None:
        shown = [(_at(job.at), job.phase, f"{10 * job.tenths} %", job.who, job.reason) for job in rows]
        console.print(table(f"job {rows[-1].id}", ("at", "state", "done>", "who", "reason"), shown))

    emit({"job": _as_json(rows[-1]), "log": [_as_json(job) for job in rows]}, as_json=as_json, show=render)


@app.command()
def cancel(
    id: Id, who: Who = "", why: Why = "", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False
) -> None:
    """Have a job end: at once if it has not begun, else as soon as its training or its gate has stopped."""
    from loomrl.coordinator import ledger
    from loomrl.store import open_store

    with open_store(store) as db:
        job = ledger.cancel(db, ledger.find_job(db, id).id, who=who or getpass.getuser(), why=why, at=time.time())
    _tell(job, as_json=as_json)


@app.command()
def report(
    words: Words,
    job: Annotated[str | None, typer.Option(help="The report of this job, once it is over.")] = None,
    day: Annotated[str | None, typer.Option(help="The newest report of this day: 2026-11-24.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a report: of a day, of a job, or of the last 24 hours as of now."""
    from loomrl.coordinator.report import markdown
    from loomrl.experiments.coordinate.look import report_of
    from loomrl.experiments.shipped import resolve_loop

    found = report_of(resolve_loop(words), job=job, day=day)
    text = markdown(found)
    emit(found, as_json=as_json, show=lambda console: console.print(text, markup=False, highlight=False, end=""))


def _once(plan: "LoopExperiment") -> None:
    """Everything that can be done now."""
    from loomrl.experiments.coordinate.loop import coordinating
    from loomrl.store import open_store

    with open_store(plan.store_url) as db, coordinating(db, plan, say=_say) as coordinator:
        while coordinator.tick():
            pass
        _say(f"nothing more to do now; trajectories collected so far: {coordinator.observer.collected()}")


def _keep_on(coordinator: "Coordinator", service: "TrainingService", bus: str | None, stack: ExitStack) -> None:
    """Look again and again. What cannot be reached is waited for; a new reason is said once."""
    from loomrl.bus.open import open_bus
    from loomrl.bus.service import Watch
    from loomrl.coordinator.service import Inbox
    from loomrl.errors import BusError, LoomError, StoreError

    inbox = None if bus is None else Inbox(stack.enter_context(open_bus(bus)), service)
    watch = Watch(coordinator.db, "inbox", _say)
    said = ""
    while True:
        done = False
        try:
            done = coordinator.tick()
            said = ""
        except LoomError as error:  # the database or the artifacts may be away for a while
            if said != str(error):
                _say(f"{type(error).__name__}: {error}")
            said = str(error)
        if inbox is not None:
            try:
                done = bool(inbox.step()) or done
                watch.worked()
            except (BusError, StoreError) as error:
                watch.failed(error)
        if not done:
            time.sleep(coordinator.plan.pace_s)


def _service(coordinator: "Coordinator") -> "TrainingService":
    from loomrl.coordinator.service import TrainingService

    observer = coordinator.observer
    return TrainingService(coordinator.db, coordinator.plan, collected=observer.collected, live=observer.live)


def _tell(job: "Job", *, as_json: bool) -> None:
    text = f"{job.id} {job.phase}: {job.reason}"
    emit(_as_json(job), as_json=as_json, show=lambda console: console.print(text, highlight=False, markup=False))


def _as_json(job: "Job") -> dict[str, Any]:
    row = job.row()
    about = {"id": job.id, "endpoint": job.endpoint, "state": job.phase.value, "run": job.run, "at": job.at}
    return about | {name: value for name, value in row.content.items() if name not in ("experiment", "request")}


def _at(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


def _say(text: str) -> None:
    teller("coordinate")(text)
