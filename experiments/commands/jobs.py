"""`loomrl submit` and `loomrl jobs …`: the same experiment on a cluster."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loomrl.experiments.commands.face import face, nouns, with_store, without
from loomrl.experiments.commands.listing import add_list
from loomrl.experiments.commands.output import emit
from loomrl.record.declaration import Column, Field, Page, Query, Record

if TYPE_CHECKING:
    from loomrl.cluster.job import Job, Jobs

jobs = nouns("List, show, follow and stop jobs that were submitted to a Ray cluster.")

ADDRESS = "The cluster's dashboard, http://HEAD:8265; without it RAY_ADDRESS, or this machine's."
Address = Annotated[str | None, typer.Option(help=ADDRESS)]
RESULT = '{"run": '
"""Prefix of the last line of a training's log."""
Id = Annotated[str, typer.Argument(help="Of the job; the same as its run's.")]


def submit(
    words: Annotated[
        list[str],
        typer.Argument(metavar="EXPERIMENT [PATH=VALUE]...", help="Experiment files or names, then overrides."),
    ],
    address: Address = None,
    run: Annotated[str | None, typer.Option(help="Id of the run; an existing run is resumed.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the log until the job ends.")] = True,
) -> None:
    """Train, or serve, on a cluster as a Ray job: ships the resolved experiment, follows the log, ends with the job's
    status.
    """
    from loomrl.cluster.job import Jobs, settled, shared_paths
    from loomrl.experiments.shipped import resolve_any
    from loomrl.store.runs import run_id

    wanted = resolve_any(with_store(words))
    run = run_id(run, wanted.name)
    cluster = Jobs(address)
    experiment = settled(wanted, cluster)
    shared = shared_paths(experiment)
    if shared and not cluster.is_here:
        _print_note(f"these folders must be shared by all nodes: {', '.join(f'{k}={v}' for k, v in shared.items())}")
    job = cluster.submit(experiment, run, say=_print_note)
    if wait:
        _follow(cluster, job.id, to_stderr=face().as_json)
        job = cluster.show(job.id)
    else:
        _print_note(f"`loomrl jobs logs {job.id}` follows it, `loomrl jobs stop {job.id}` stops it")
    result = cluster.result(job.id) if job.status == "SUCCEEDED" else None
    emit(
        {"job": job.as_dict(), "sha256": experiment.sha256, "result": result},
        _outcome(job, result),
    )
    raise typer.Exit(job.exit_status if wait else 0)


def _read_jobs(_: object, query: Query) -> "Page[Job]":
    from loomrl.cluster.job import Jobs

    return Page(Jobs(query.get("address")).list()[: query.limit])


JOB_RECORDS = Record["Job"](
    name="job",
    plural="jobs",
    about="List the jobs of a cluster, the latest first.",
    columns=(
        Column("job", "id"),
        Column("status", form="status"),
        Column("started", "started_at", "time"),
        Column("ended", "ended_at", "time"),
        Column("experiment", form="hash"),
    ),
    filters=(Field(name="address", about=ADDRESS),),
    read=_read_jobs,
    none="No jobs. `loomrl submit EXPERIMENT` submits one.",
    limit=1000,
    reads_store=False,
)


def _show(
    id: Annotated[str, typer.Argument(metavar="JOB", help="Id of a job; the same as its run's.")],
    *,
    address: Address = None,
) -> None:
    """Show a job with its result. The exit status is the job's."""
    from loomrl.cluster.job import Jobs

    cluster = Jobs(address)
    job = cluster.show(id)
    result = cluster.result(id) if job.status == "SUCCEEDED" else None
    text = _outcome(job, result) + (f": {job.message}" if job.message else "")
    emit(job.as_dict() | {"result": result}, text)
    raise typer.Exit(job.exit_status if job.is_over else 0)


add_list(jobs, JOB_RECORDS, show=_show)


@jobs.command()
@without("--store", "--json")
def logs(
    id: Id,
    address: Address = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Follow until the job ends.")] = True,
) -> None:
    """Print a job's log, and follow it until the job ends."""
    from loomrl.cluster.job import Jobs

    cluster = Jobs(address)
    if follow:
        _follow(cluster, id, to_stderr=False)
    else:
        print(cluster.logs(id), end="")


@jobs.command()
@without("--store")
def stop(
    id: Id,
    address: Address = None,
) -> None:
    """Stop a job. Submitting its experiment again with the same --run resumes it from its last checkpoint."""
    from loomrl.cluster.job import Jobs

    job = Jobs(address).stop(id)
    emit(job.as_dict(), show=lambda console: console.print(f"{job.id} is asked to stop"))


def _follow(cluster: "Jobs", id: str, *, to_stderr: bool) -> None:
    """Print its log until it ends, without the line for programs. If interrupted, the job continues."""
    stream, rest = sys.stderr if to_stderr else sys.stdout, ""

    def write(text: str) -> None:
        nonlocal rest
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            if not line.startswith(RESULT):
                print(line, file=stream, flush=True)

    try:
        cluster.follow(id, write)
        write("\n" if rest else "")
    except KeyboardInterrupt:
        _print_note(f"\njob {id} continues. `loomrl jobs logs {id}` follows it again, `loomrl jobs stop {id}` stops it")
        raise


def _outcome(job: "Job", result: dict[str, Any] | None) -> str:
    if result is None:
        return f"job {job.id}: {job.status}"
    took = f"{result['updates']} updates and {result['seconds']:.0f} s"
    return f"job {job.id}: {job.status}, {result['policy']} after {took}: {result['stopped']}"


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
