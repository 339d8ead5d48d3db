"""`loomrl submit`, `loomrl jobs …` and `loomrl cluster check`: the same experiment on a cluster."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loomrl.experiments.commands.output import AsJson, emit, table

if TYPE_CHECKING:
    from loomrl.cluster.job import Job, Jobs

jobs = typer.Typer(help="Look after jobs that were submitted to a cluster.", no_args_is_help=True)
clusters = typer.Typer(help="Check cluster files.", no_args_is_help=True)

Address = Annotated[
    str | None,
    typer.Option(help="The cluster's dashboard, http://HEAD:8265; without it RAY_ADDRESS, or this machine's."),
]
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
    as_json: AsJson = False,
) -> None:
    """Train, or serve, on a cluster as a Ray job: ships the resolved experiment, follows the log, ends with the job's
    status.
    """
    from loomrl.cluster.job import Jobs, settled, shared_paths
    from loomrl.experiments.shipped import resolve_any
    from loomrl.store.runs import run_id

    wanted = resolve_any(words)
    run = run_id(run, wanted.name)
    cluster = Jobs(address)
    experiment = settled(wanted, cluster)
    shared = shared_paths(experiment)
    if shared and not cluster.is_here:
        _tell(f"taken for folders that all nodes share: {', '.join(f'{k}={v}' for k, v in shared.items())}")
    job = cluster.submit(experiment, run, say=_tell)
    if wait:
        _follow(cluster, job.id, to_stderr=as_json)
        job = cluster.show(job.id)
    else:
        _tell(f"`loomrl jobs logs {job.id}` follows it, `loomrl jobs stop {job.id}` stops it")
    result = cluster.result(job.id) if job.status == "SUCCEEDED" else None
    emit(
        {"job": job.as_dict(), "sha256": experiment.sha256, "result": result},
        as_json=as_json,
        show=lambda console: console.print(_outcome(job, result), highlight=False),
    )
    raise typer.Exit(job.exit_status if wait else 0)


@jobs.command("list")
def list_jobs(address: Address = None, as_json: AsJson = False) -> None:
    """List the jobs of a cluster, the latest first."""
    from loomrl.cluster.job import Jobs

    found = Jobs(address).list()
    rows = [(job.id, job.status, _when(job.started_at), _when(job.ended_at), (job.experiment or "")[:12])
            for job in found]  # fmt: skip
    columns = ("job", "status", "started", "ended", "experiment")
    emit(
        {"jobs": [job.as_dict() for job in found]},
        as_json=as_json,
        show=lambda console: console.print(table("", columns, rows) if rows else "No jobs."),
    )


@jobs.command()
def status(id: Id, address: Address = None, as_json: AsJson = False) -> None:
    """Show a job's status; the exit status is the job's, once it has ended."""
    from loomrl.cluster.job import Jobs

    job = Jobs(address).show(id)
    note = f": {job.message}" if job.message else ""
    emit(job.as_dict(), as_json=as_json, show=lambda console: console.print(f"{job.id}: {job.status}{note}"))
    raise typer.Exit(job.exit_status if job.is_over else 0)


@jobs.command()
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
def stop(id: Id, address: Address = None, as_json: AsJson = False) -> None:
    """Stop a job. Submitting its experiment again with the same --run resumes it from its last checkpoint."""
    from loomrl.cluster.job import Jobs

    job = Jobs(address).stop(id)
    emit(job.as_dict(), as_json=as_json, show=lambda console: console.print(f"{job.id} is asked to stop"))


@jobs.command()
def result(id: Id, address: Address = None) -> None:
    """Print the result of the training as one JSON object."""
    from loomrl.cluster.job import Jobs

    emit(Jobs(address).result(id), as_json=True, show=lambda console: None)


@clusters.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Cluster files: of Ray's launcher, or of KubeRay.")],
    crds: Annotated[
        list[Path] | None,
        typer.Option(help="Definitions of the KubeRay that will read them: `kubectl get crd NAME… -o yaml`."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find mistakes in cluster files without a cluster: unknown keys are listed with the nearest known one."""
    from loomrl.cluster.check import check_file
    from loomrl.cluster.crds import read_crds

    schemas = {about: schema for file in crds for about, schema in read_crds(file).items()} if crds else None
    found = {str(file): check_file(file, schemas) for file in files}
    lines = "\n".join(f"{file}: {', '.join(what)}" for file, what in found.items())
    emit(found, as_json=as_json, show=lambda console: console.print(lines, highlight=False))


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
        _tell(f"\njob {id} continues. `loomrl jobs logs {id}` follows it again, `loomrl jobs stop {id}` stops it")
        raise


def _outcome(job: "Job", result: dict[str, Any] | None) -> str:
    if result is None:
        return f"job {job.id}: {job.status}"
    took = f"{result['updates']} updates and {result['seconds']:.0f} s"
    return f"job {job.id}: {job.status}, {result['policy']} after {took}: {result['stopped']}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _when(seconds: float | None) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}" if seconds else ""
