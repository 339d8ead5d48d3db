"""The `loomrl` command line. Commands import what they need when they run, so that `--help` is instant."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from loomrl.errors import LoomError
from loomrl.experiments.commands import (
    ab,
    bench,
    bus,
    data,
    endpoints,
    envs,
    feedback,
    gate,
    jobs,
    loop,
    people,
    query,
    release,
    rewards,
    runs,
    serve,
    tools,
    train,
    verify,
)
from loomrl.experiments.commands.face import Face, Root, set_face
from loomrl.process import exit_on_sigterm

app = typer.Typer(
    cls=Root,
    name="loomrl",
    help="Train agents with reinforcement learning, serve them, release new versions, learn from production.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""EXPERIMENT: a YAML file, or the name of a shipped one; PATH=VALUE: a setting.
--store: sqlite:///FILE or postgresql://… (LOOMRL_STORE, or sqlite:///loom.db)
--json: one JSON object on the last line  --log-format text|json  --version""",
)
GROUPS: Mapping[str, Sequence[Callable[..., None] | tuple[str, typer.Typer]]] = {
    "Train": [
        train.train,
        train.fork,
        train.evaluate,
        train.compare,
        train.watch,
        train.show,
        train.sweep,
        jobs.submit,
        ("jobs", jobs.jobs),
    ],
    "Serve and release": [
        serve.serve,
        ("endpoints", endpoints.endpoints),
        ("release", release.app),
        ("gate", gate.app),
        verify.verify,
        ("ab", ab.app),
    ],
    "Learn from production": [
        ("feedback", feedback.app),
        ("rewards", rewards.app),
        ("data", data.data),
        ("loop", loop.app),
        ("bus", bus.app),
    ],
    "Look at the record": [
        serve.console,
        ("runs", runs.runs),
        ("policies", runs.policies),
        ("trajectories", runs.trajectories),
        tools.events,
        ("query", query.app),
    ],
    "Operate and build": [
        ("keys", people.keys),
        ("people", people.people),
        serve.hub,
        serve.metrics,
        ("envs", envs.app),
        tools.new,
        tools.doctor,
        bench.bench,
    ],
}
"""The commands as `loomrl --help` groups them: functions by their names, groups by their words."""
SHORT = {
    "train": "Train a policy, until a stopping rule applies",
    "fork": "Begin a run in the middle of another one, with settings changed",
    "evaluate": "Evaluate policies on held-out tasks, with confidence intervals",
    "compare": "Compare two runs on the same tasks, at any look",
    "watch": "Film an episode of a control policy, and show its steps",
    "show": "Print a resolved experiment: what a run would do",
    "sweep": "Search for settings: many trials of one experiment",
    "submit": "Train, or serve, on a Ray cluster",
    "jobs": "List, show, follow and stop jobs of a Ray cluster",
    "serve": "Serve policies over HTTP as OpenAI, Anthropic and /v1/act",
    "endpoints": "The names that callers use: list, show, change, delete",
    "release": "Release a version to an endpoint, step by step",
    "gate": "Judge a version before its release",
    "verify": "Derive a version's record again from its evidence",
    "ab": "Compare arms of an endpoint on a part of its users",
    "feedback": "Feedback on served answers, and questions for people",
    "rewards": "Rewards from outcomes, feedback and measures",
    "data": "Data sets to train on, archives, redaction",
    "loop": "Train the next version from what an endpoint served",
    "bus": "Publish the record, and take in external agents' work",
    "console": "Everything on record in a browser",
    "events": "List what happened, or follow it as lines of JSON",
    "trajectories": "List and show what was played and served",
    "query": "Ask in SQL about what is on record",
    "hub": "Serve the trajectory hub over HTTP",
    "metrics": "Serve the record to Prometheus",
    "new": "Make an environment, algorithm, agent or experiment",
    "doctor": "Check this machine, or cluster files",
    "bench": "Measure this machine",
    "keys": "The keys of callers and of people: create, list, revoke",
    "people": "Keep people off the record, or delete theirs",
    "envs": "List, show, check and compare environments",
    "runs": "List, show and stop trainings, evaluations and sweeps",
    "policies": "List, show, export and prune policy versions",
}
"""A command in the list of all, on a terminal of 80 columns."""
Root.groups = tuple(GROUPS)
for _group, _commands in GROUPS.items():
    for _command in _commands:
        if isinstance(_command, tuple):
            app.add_typer(_command[1], name=_command[0], rich_help_panel=_group, short_help=SHORT[_command[0]])
        else:
            app.command(rich_help_panel=_group, short_help=SHORT[_command.__name__])(_command)


def main() -> None:
    """Run a command. A LoomRL error is one message on stderr and exit status 2, without a traceback."""
    exit_on_sigterm()
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # users' modules, behind everything installed
    try:
        app(prog_name="loomrl")
    except (LoomError, OSError) as error:  # the system's own message names the path
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
    ctx: typer.Context,
    store: Annotated[str | None, typer.Option(help="LoomDB: sqlite:///FILE or postgresql://…")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
    log_format: Annotated[
        str | None, typer.Option(envvar="LOOMRL_LOG", help="text, or json: a JSON object a line on stderr.")
    ] = None,
) -> None:
    """Train agents with reinforcement learning, serve them, release new versions, learn from production."""
    from loomrl.observability.log import VARIABLE, open_log

    set_face(Face(store, as_json), ctx)
    if log_format is not None:
        os.environ[VARIABLE] = log_format  # for processes that this command starts, too
    open_log()
