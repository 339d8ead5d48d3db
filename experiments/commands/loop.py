"""`loomrl loop`: from what an endpoint served to its next version."""

import getpass
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from loomrl.experiments.commands.face import RUN, Host, Tls, Who, Why, verb, with_store, without
from loomrl.experiments.commands.listing import add_list
from loomrl.experiments.commands.output import emit
from loomrl.observability.log import teller
from loomrl.record.catalogue import training_as_json
from loomrl.record.detail import TRAINING

if TYPE_CHECKING:
    from loomrl.config.loop import LoopExperiment
    from loomrl.coordinator.job import TrainingJob
    from loomrl.coordinator.service import TrainingService
    from loomrl.experiments.coordinate.loop import Coordinator

app = verb("Train the next version from what an endpoint served: `loomrl loop EXPERIMENT`.")
Words = Annotated[
    list[str], typer.Argument(metavar="EXPERIMENT [PATH=VALUE]...", help="An experiment of kind loop, then overrides.")
]
Id = Annotated[str, typer.Argument(metavar="JOB", help="Id of a job, or its first letters.")]


@app.command(RUN)
@without("--json")
def run(  # noqa: PLR0913 - a command with its options
    words: Words,
    once: Annotated[bool, typer.Option("--once", help="End when there is nothing to do now; without HTTP.")] = False,
    http: Annotated[bool, typer.Option("--http/--no-http", help="Answer as training service over HTTP.")] = True,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8100,
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

    plan = resolve_loop(with_store(words))
    if once:
        _once(plan)
        return
    from loomrl.http.listen import Certificate, open_door

    shown = tls and Certificate(*tls)
    door = open_door(host, port, token=token, certificate=shown) if http else None  # before imports that take seconds
    from loomrl.coordinator.service import serve_training
    from loomrl.experiments.coordinate.loop import coordinating
    from loomrl.observability.presence import present
    from loomrl.store import open_store
    from loomrl.store.replicas import ReplicaRole
    from loomrl.telemetry.record import record_routes

    with open_store(plan.store_url) as db, coordinating(db, plan, say=_say) as coordinator, ExitStack() as stack:
        service = _service(coordinator)
        address = ""
        if door is not None:
            routes = stack.enter_context(record_routes(db, plan.store_url))
            address = f"{door.host}:{door.port}"
            url = stack.enter_context(serve_training(service, door, routes))
            _say(f"training service of endpoint {plan.endpoint} on {url}")
        stack.enter_context(present(db, ReplicaRole.COORDINATOR, address=address, endpoint=plan.endpoint))
        _keep_on(coordinator, service, bus, stack)


@app.command()
def request(
    words: Words,
    priority: Annotated[str, typer.Option(help="low, normal, high or urgent.")] = "high",
    who: Who = "",
    why: Why = "",
) -> None:
    """Ask for a training by hand. The endpoint's coordinator starts it when its turn comes."""
    from loomrl.coordinator.job import Priority, TrainingJob, Trigger, new_id
    from loomrl.coordinator.ledger import ask_for
    from loomrl.errors import ConfigError, unknown
    from loomrl.experiments.shipped import resolve_loop
    from loomrl.store import open_store

    if priority not in list(Priority):
        raise ConfigError(unknown("--priority", priority, list(Priority)))
    plan = resolve_loop(with_store(words))
    now = time.time()
    name = who or getpass.getuser()
    with open_store(plan.store_url) as db:
        job = TrainingJob(
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
        queued = ask_for(db, plan, job)
    assert queued is not None
    _print_job(queued)


add_list(app, TRAINING)


@app.command()
def report(
    words: Words,
    job: Annotated[str | None, typer.Option(help="The report of this job, once it is over.")] = None,
    day: Annotated[str | None, typer.Option(help="The newest report of this day: 2026-11-24.")] = None,
) -> None:
    """Print a report: of a day, of a job, or of the last 24 hours as of now."""
    from loomrl.coordinator.report import markdown
    from loomrl.experiments.coordinate.look import report_of
    from loomrl.experiments.shipped import resolve_loop

    found = report_of(resolve_loop(with_store(words)), job=job, day=day)
    text = markdown(found)
    emit(found, show=lambda console: console.print(text, markup=False, highlight=False, end=""))


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
    from loomrl.bus.service import BusReporter
    from loomrl.coordinator.service import Inbox
    from loomrl.errors import BusError, LoomError, StoreError

    inbox = None if bus is None else Inbox(stack.enter_context(open_bus(bus)), service)
    watch = BusReporter(coordinator.db, "inbox", _say)
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


def _print_job(job: "TrainingJob") -> None:
    text = f"{job.id} {job.phase}: {job.reason}"
    emit(training_as_json(job), text)


def _say(text: str) -> None:
    teller("coordinate")(text)
