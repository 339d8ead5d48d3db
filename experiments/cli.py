"""The `loomrl` command line. Commands import what they need when they run, so that `--help` is instant."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.commands import ab as cli_ab
from loomrl.experiments.commands import analytics as cli_analytics
from loomrl.experiments.commands import archives as cli_archives
from loomrl.experiments.commands import bench as cli_bench
from loomrl.experiments.commands import bus as cli_bus
from loomrl.experiments.commands import cluster as cli_cluster
from loomrl.experiments.commands import console as cli_console
from loomrl.experiments.commands import coordinate as cli_coordinate
from loomrl.experiments.commands import data as cli_data
from loomrl.experiments.commands import envs as cli_envs
from loomrl.experiments.commands import events as cli_events
from loomrl.experiments.commands import feedback as cli_feedback
from loomrl.experiments.commands import gate as cli_gate
from loomrl.experiments.commands import keys as cli_keys
from loomrl.experiments.commands import lab as cli_lab
from loomrl.experiments.commands import metrics as cli_metrics
from loomrl.experiments.commands import monitor as cli_monitor
from loomrl.experiments.commands import new as cli_new
from loomrl.experiments.commands import people as cli_people
from loomrl.experiments.commands import records as cli_records
from loomrl.experiments.commands import redact as cli_redact
from loomrl.experiments.commands import release as cli_release
from loomrl.experiments.commands import rewards as cli_rewards
from loomrl.experiments.commands import serve as cli_serve
from loomrl.experiments.commands import sweep as cli_sweep
from loomrl.experiments.commands.output import AsJson, beginning, emit, remark, table
from loomrl.experiments.commands.records import Scraped
from loomrl.experiments.commands.tls import Tls
from loomrl.experiments.commands.words import experiments_like
from loomrl.process import exit_on_sigterm

app = typer.Typer(
    name="loomrl",
    help="Train agents with reinforcement learning on Ray, judge them, and keep a record of all of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="An EXPERIMENT is a YAML file or the name of a shipped one; PATH=VALUE overrides any setting in it.",
)
app.add_typer(cli_envs.app, name="envs")
app.add_typer(cli_bench.app, name="bench")
app.add_typer(cli_cluster.jobs, name="jobs")
app.add_typer(cli_cluster.clusters, name="cluster")
app.add_typer(cli_coordinate.app, name="coordinate")
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_records.exports, name="export")
app.add_typer(cli_feedback.app, name="feedback")
app.add_typer(cli_release.app, name="release")
app.add_typer(cli_rewards.app, name="rewards")
app.add_typer(cli_gate.app, name="gate")
app.add_typer(cli_serve.endpoints, name="endpoints")
app.add_typer(cli_keys.app, name="keys")
app.add_typer(cli_lab.app, name="lab")
app.add_typer(cli_people.app, name="people")
app.add_typer(cli_archives.app, name="archives")
app.add_typer(cli_metrics.app, name="metrics")
app.add_typer(cli_monitor.app, name="monitor")
app.add_typer(cli_ab.app, name="ab")
app.add_typer(cli_analytics.app, name="analytics")
app.add_typer(cli_bus.app, name="bus")
app.command()(cli_serve.serve)
app.command()(cli_console.console)
app.command()(cli_people.forget)
app.command()(cli_archives.prune)
app.command()(cli_bus.nats)
app.command()(cli_cluster.submit)
app.command()(cli_redact.redact)
app.command()(cli_sweep.sweep)
app.command()(cli_events.events)
app.command()(cli_records.runs)
app.command()(cli_records.stop)
app.command()(cli_records.lineage)
app.command()(cli_records.league)
app.command("import")(cli_records.take_over)
app.command()(cli_analytics.query)
app.command()(cli_new.new)

WHICH_RUN = frozenset({"kind", "name", "store_url"})
"""Settings by which a run to resume is found."""
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EXPERIMENT] [PATH=VALUE]...",
        help="Experiment files or names, then overrides.",
        autocompletion=experiments_like,
    ),
]


def main() -> None:
    """Run a command. A LoomRL error is one message on stderr and exit status 2, without a traceback."""
    exit_on_sigterm()
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # users' modules, behind everything installed
    try:
        app(prog_name="loomrl")
    except (LoomError, OSError) as error:  # of what the machine refuses, its own words name the path
        print(f"loomrl: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _version(is_asked: bool) -> None:
    if is_asked:
        from loomrl import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def begin(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
    log_format: Annotated[
        str | None, typer.Option(envvar="LOOMRL_LOG", help="text, or json: a JSON object a line on stderr.")
    ] = None,
) -> None:
    """Train agents with reinforcement learning on Ray, judge them, and keep a record of all of it."""
    from loomrl.observability.log import VARIABLE, open_log

    if log_format is not None:
        os.environ[VARIABLE] = log_format  # for whatever this command starts, too
    open_log()


@app.command()
def show(words: Words = None, as_json: AsJson = False) -> None:
    """Print the resolved experiment and its hash: what a run would do. What it names has to be there."""
    from loomrl.experiments.shipped import resolve_any
    from loomrl.experiments.sound import check_parts
    from loomrl.load import dump

    experiment = resolve_any(words or [])
    check_parts(experiment)

    def render(console: Console) -> None:
        console.print(dump(experiment), end="", markup=False, highlight=False)
        console.print(f"# sha256: {experiment.sha256}", highlight=False)

    result = {"experiment": experiment.plain, "sha256": experiment.sha256}
    emit(result, as_json=as_json, show=render)


@app.command()
def evaluate(  # noqa: PLR0913 - a command with its options
    words: Words = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="oracle, random, constant, RUN, RUN/NUMBER, a folder, pkg.module:callable, URL#MODEL."),
    ] = None,
    env: Annotated[str | None, typer.Option(help="Evaluate on this environment instead of the experiment's.")] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="How many held-out tasks.")] = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="How many attempts at each, for pass@k.")] = None,
    temperature: Annotated[float, typer.Option(min=0, help="Of language policies; 0 is greedy.")] = 0.0,
    transfer: Annotated[
        list[str] | None,
        typer.Option(metavar="FROM", help="Train EXPERIMENT from this version, and from scratch; may be repeated."),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Of --transfer, by default 1, 2 and 3.")] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate policies on held-out tasks: success with confidence intervals, per family and level.

    Failed attempts (no sandbox, no engine, a bug) are reported beside the figure, which is over the others; the exit
    status is 1 then, unless evaluation.may_fail=SHARE allows for them.

    The first word may also be a RUN or a model's folder: then that is evaluated, on the run's own environments.

    `--transfer FROM EXPERIMENT` trains instead, and tells after how many steps an evaluation's return is
    train.stop.evaluated, or train.stop.target.
    """
    if transfer:
        return _transfer(words or [], transfer, seeds=seed or [1, 2, 3], policy=policy, as_json=as_json)
    if seed:
        raise ConfigError(f"--seed={seed[0]} is of --transfer FROM, which is not given. Say seed={seed[0]}.")
    from loomrl.config import ControlExperiment
    from loomrl.experiments.shipped import assumed, judged_words, unnamed_policy

    if not words and not policy and env is None:
        raise ConfigError(
            "nothing to evaluate. Name a run, RUN or RUN/NUMBER, or a model's folder: `loomrl evaluate mine`. Or "
            "policies and where they act: `loomrl evaluate EXPERIMENT --policy oracle --policy mine`, or `--env Math`. "
            "`loomrl runs` lists runs, `loomrl envs list` environments."
        )
    experiment, policies = judged_words(words or [], policy or [], env=env)
    given = {"evaluation.episodes": episodes, "evaluation.attempts": attempts}
    experiment = experiment.override({path: value for path, value in given.items() if value is not None})
    beginning(f"evaluate on {experiment.name}")
    if env is None and (note := assumed(words or [])) is not None:
        remark(note)
    if not policies:
        remark(f"no policy was named, so it is {unnamed_policy(experiment)}")
    if isinstance(experiment, ControlExperiment):
        from loomrl.experiments import evaluate_control

        result = evaluate_control.evaluate_control(experiment, policies)
        shown = evaluate_control.as_result(result)
        return emit(shown, as_json=as_json, show=lambda console: evaluate_control.render(result, console))
    from loomrl.experiments.evaluate import as_result, evaluate_policies, render, too_many_failed

    evaluation = evaluate_policies(experiment, policies, temperature=temperature)
    emit(as_result(evaluation), as_json=as_json, show=lambda console: render(evaluation, console))
    trouble = too_many_failed(evaluation, experiment.evaluation.may_fail)
    if trouble is not None:
        print(f"loomrl: {trouble}", file=sys.stderr)
        raise typer.Exit(1)
    return None


def _transfer(
    words: list[str], parents: list[str], *, seeds: list[int], policy: list[str] | None, as_json: bool
) -> None:
    from loomrl.experiments.shipped import CONTROL, resolve

    if policy:
        raise ConfigError(f"--policy={policy[0]}: --transfer evaluates what it trains, and no other policy.")
    experiment = resolve(words, default=CONTROL)
    beginning(f"transfer to {experiment.name}")
    from loomrl.experiments.transfer import render, transfer

    result = transfer(experiment, parents, seeds=seeds)
    emit(result.as_dict(), as_json=as_json, show=lambda console: render(result, console))


@app.command()
def train(
    words: Words = None,
    run: Annotated[str | None, typer.Option(help="Id of the run; an existing run is resumed.")] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume --run, or the latest run, with its own experiment, or where and for how long you say.",
        ),
    ] = False,
    metrics: Scraped = None,
    as_json: AsJson = False,
) -> None:
    """Train: curriculum → rollouts → hub → lease → learn → publish → checkpoint and ack, until a stopping rule
    applies.
    """
    from loomrl.experiments.shipped import TRAINED, assumed, resolve

    said = words or []
    is_named = any("=" not in word or word.startswith("name=") for word in said)
    # what is changed of a run is of its own experiment, which the store knows
    base = said if not resume else [word for word in said if word.partition("=")[0] in WHICH_RUN or "=" not in word]
    experiment = resolve(base, default=TRAINED)
    beginning(f"resume {run or 'the latest run'}" if resume else f"train {experiment.name}")
    if not resume and (note := assumed(said, default=TRAINED)) is not None:
        remark(note)
    from loomrl.experiments.train import how_to_resume, render, resumed, train
    from loomrl.load import parse_assignments
    from loomrl.store.runs import run_id

    if resume:
        changes = parse_assignments(word for word in said if "=" in word)
        experiment, run = resumed(experiment, run, changes, of_any_name=not is_named)
        beginning(f"resume {run}")
    run = run_id(run, experiment.name)
    try:
        result = train(experiment, run=run, metrics=metrics)
    except (KeyboardInterrupt, SystemExit):
        print(f"\nloomrl: {how_to_resume(experiment, run)}", file=sys.stderr, flush=True)
        raise
    emit(result.as_dict(), as_json=as_json, show=lambda console: render(result, console))
    if result.is_unjudged:
        print(f"loomrl: no success is known: attempts of the last evaluation failed, {result.failed}", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def hub(
    words: Words = None,
    host: Annotated[
        str, typer.Option(help="Address to serve on; beyond this machine a token is required.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="LOOMRL_HUB_TOKEN", help="Bearer token that callers need.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name of the server, as behind a proxy; repeatable.")
    ] = None,
    tls: Tls = None,
) -> None:
    """Serve the trajectory hub over HTTP until interrupted: the Atropos routes under /, our own under /v2.

    A killed server is restarted, and its clients wait meanwhile; SIGTERM ends it.
    """
    from loomrl.http.keeper import come_back_when_killed
    from loomrl.http.listen import open_door
    from loomrl.http.tls import Certificate

    door = open_door(  # before what takes seconds to import
        host,
        port,
        token=token,
        allowed_hosts=allow_host or (),
        certificate=tls and Certificate(*tls),
    )
    from loomrl.experiments.shipped import resolve_language
    from loomrl.hub import open_hub
    from loomrl.hub.atropos.routes import atropos_routes
    from loomrl.hub.serve import serve_hub
    from loomrl.store import open_store
    from loomrl.store.notes import Notes

    experiment = resolve_language(words or [])
    rollout = experiment.rollout
    come_back_when_killed()
    with (
        open_hub(
            experiment.store_url,
            experiment.hub,
            groups_per_update=rollout.groups_per_update,
            environments=experiment.environments,
        ) as served,
        open_store(experiment.store_url) as db,
    ):
        print(f"hub of {experiment.store_url} on {door.url}", file=sys.stderr, flush=True)
        serve_hub(served, door, extra_routes=atropos_routes(served, Notes(db)))


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Report versions, cores, GPUs, and optional parts with how to install them."""
    from loomrl.experiments.doctor import close_to_others, examine

    found = examine()

    def render(console: Console) -> None:
        console.print(f"Python {found['python']} on {found['platform']}", highlight=False)
        gpus = ", ".join(found["gpus"]) or "no GPU"
        console.print(f"{found['cores']} cores, {found['memory_gb']} GB memory, {gpus}\n", highlight=False)
        parts = [(p["name"], p["found"] or f"missing: {p['remedy']}", p["purpose"])
                 for p in found["required"] + found["optional"]]  # fmt: skip
        console.print(table("", ("part", "found", "for"), parts))
        console.print("\nhealthy" if found["healthy"] else "\nnot healthy: a required part is missing")
        if paths := found["exposed"]:
            console.print(f"\nOther users of this machine can read {', '.join(paths)}. To prevent it:", highlight=False)
            console.print(f"  {close_to_others(paths)}", highlight=False, soft_wrap=True)

    emit(found, as_json=as_json, show=render)
    raise typer.Exit(0 if found["healthy"] else 1)
