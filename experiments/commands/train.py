"""`loomrl train`, `evaluate`, `show` and `sweep`: experiments, and what becomes of them."""

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.errors import ConfigError
from loomrl.experiments.commands.face import Scraped, Words, face, with_store
from loomrl.experiments.commands.output import beginning, emit, remark, table

if TYPE_CHECKING:
    from loomrl.config import AnyExperiment
    from loomrl.experiments.sweep import SweepResult

WHICH_RUN = frozenset({"kind", "name", "store_url"})
"""Settings by which a run to resume is found."""
SweepWords = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE [PATH=VALUE]...", help="A sweep's file or the name of a shipped one, then overrides."),
]


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
) -> None:
    """Train: curriculum → rollouts → hub → lease → learn → publish → checkpoint and ack, until a stopping rule
    applies.
    """
    gc.set_threshold(50_000)  # imports make a million objects to keep: looking for garbage among them takes 0.7 CPU s
    from loomrl.experiments.shipped import TRAINED, assumed, resolve

    said = with_store(words)
    is_named = any("=" not in word or word.startswith("name=") for word in said)
    # what is changed of a run is of its own experiment, which the store knows
    base = said if not resume else [word for word in said if word.partition("=")[0] in WHICH_RUN or "=" not in word]
    experiment = resolve(base, default=TRAINED)
    beginning(f"resume {run or 'the latest run'}" if resume else f"train {experiment.name}")
    if not resume and (note := assumed(said, default=TRAINED)) is not None:
        remark(note)
    from loomrl.experiments.train import resumed
    from loomrl.load import parse_assignments
    from loomrl.store.runs import run_id

    if resume:
        changes = parse_assignments(word for word in said if "=" in word)
        experiment, run = resumed(experiment, run, changes, of_any_name=not is_named)
        beginning(f"resume {run}")
    _train(experiment, run_id(run, experiment.name), metrics)


def fork(
    point: Annotated[str, typer.Argument(metavar="RUN@STEP", help="A training, and a step that has a checkpoint.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Settings that differ from the run's.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="Id of the fork; once on record: `loomrl train --resume`.")] = None,
    metrics: Scraped = None,
) -> None:
    """Begin a run in the middle of another one, with settings changed. Weights, optimizer, curriculum and random
    streams go on as they were, so that without a change the fork equals the run's own continuation.
    """
    from loomrl.experiments.fork import fork as begin

    beginning(f"fork {point}")
    experiment, id = begin(face().store, point, words or [], run=run)
    beginning(f"train {id}")
    _train(experiment, id, metrics)


def _train(experiment: "AnyExperiment", run: str, metrics: str | None) -> None:
    """Train, and say what became of it, or how to go on."""
    from loomrl.experiments.train import how_to_resume, render, train

    try:
        result = train(experiment, run=run, metrics=metrics)
    except (KeyboardInterrupt, SystemExit):
        print(f"\nloomrl: {how_to_resume(experiment, run)}", file=sys.stderr, flush=True)
        raise
    emit(result.as_dict(), show=lambda console: render(result, console))
    if result.is_unjudged:
        print(f"loomrl: no success is known: attempts of the last evaluation failed, {result.failed}", file=sys.stderr)
        raise typer.Exit(1)


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
) -> None:
    """Evaluate policies on held-out tasks: success with confidence intervals, per family and level.

    Failed attempts (no sandbox, no engine, a bug) are reported beside the figure, which is over the others; the exit
    status is 1 then, unless evaluation.may_fail=SHARE allows for them.

    The first word may also be a RUN or a model's folder: then that is evaluated, on the run's own environments.

    `--transfer FROM EXPERIMENT` trains instead, and tells after how many steps an evaluation's return is
    train.stop.evaluated, or train.stop.target.
    """
    if transfer:
        return _transfer(with_store(words), transfer, seeds=seed or [1, 2, 3], policy=policy)
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
    experiment, policies = judged_words(with_store(words), policy or [], env=env)
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
        return emit(shown, show=lambda console: evaluate_control.render(result, console))
    from loomrl.experiments.evaluate import as_result, evaluate_policies, render, too_many_failed

    evaluation = evaluate_policies(experiment, policies, temperature=temperature)
    emit(as_result(evaluation), show=lambda console: render(evaluation, console))
    trouble = too_many_failed(evaluation, experiment.evaluation.may_fail)
    if trouble is not None:
        print(f"loomrl: {trouble}", file=sys.stderr)
        raise typer.Exit(1)
    return None


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="RUN, RUN/STEP, or several: A1,A2,A3.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one, or as many others in the same order.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[evaluation.PATH=VALUE]...", help="How both are judged.")
    ] = None,
) -> None:
    """Compare two runs on the same tasks and random numbers, with an interval that holds at any look: they play until
    the difference is decided or evaluation.episodes are used up. Several runs a side are pairs of seeds.
    """
    from loomrl.experiments.compare import compare, render

    beginning(f"compare {a} with {b}")
    result = compare(face().store, a, b, words or [])
    emit(result.as_dict(), show=lambda console: render(result, console))


def watch(
    words: Words = None,
    policy: Annotated[str | None, typer.Option(help="random, RUN, RUN/NUMBER, a folder, pkg.module:callable.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many of the evaluation's episodes.")] = 1,
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Sample actions, as in training; else the likeliest.")
    ] = False,
    film: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .gif or, with ffmpeg, a .mp4; by default beside the run.")
    ] = None,
) -> None:
    """Watch a control policy: an episode as a film, and its actions, values and rewards step by step.

    The first word is a RUN or RUN/NUMBER, which plays in the run's own environment, or an experiment for --policy.
    evaluation.max_steps=STEPS bounds the episode.
    """
    from loomrl.config import ControlExperiment
    from loomrl.experiments.shipped import judged_words

    if not words and policy is None:
        raise ConfigError("nothing to watch. Name a run of control, RUN or RUN/NUMBER; `loomrl runs` lists runs.")
    experiment, policies = judged_words(with_store(words), [] if policy is None else [policy])
    if not isinstance(experiment, ControlExperiment):
        raise ConfigError(
            f"experiment {experiment.name!r} is one of language: `loomrl trajectories` and the console show what it "
            "said. Name a run of control."
        )
    if len(policies) > 1:
        raise ConfigError(f"{' and '.join(policies)}: one policy at a time. Leave --policy out, or name an experiment.")
    name = policies[0] if policies else "random"
    beginning(f"watch {name}")
    from loomrl.experiments.watch import render
    from loomrl.experiments.watch import watch as begin

    result = begin(experiment, name, episodes=episodes, explore=sampled, file=film)
    emit(result.as_dict(), show=lambda console: render(result, console))


def _transfer(words: list[str], parents: list[str], *, seeds: list[int], policy: list[str] | None) -> None:
    from loomrl.experiments.shipped import CONTROL, resolve

    if policy:
        raise ConfigError(f"--policy={policy[0]}: --transfer evaluates what it trains, and no other policy.")
    experiment = resolve(words, default=CONTROL)
    beginning(f"transfer to {experiment.name}")
    from loomrl.experiments.transfer import render, transfer

    result = transfer(experiment, parents, seeds=seeds)
    emit(result.as_dict(), show=lambda console: render(result, console))


def show(
    words: Words = None,
    plan: Annotated[bool, typer.Option("--plan", help="What a training would need, and could show, instead.")] = False,
    memory: Annotated[
        float | None, typer.Option(min=0, metavar="GB", help="Of --plan: free memory; by default this machine's.")
    ] = None,
) -> None:
    """Print the resolved experiment and its hash: what a run would do. What it names has to be there."""
    from loomrl.experiments.preflight import check_parts
    from loomrl.experiments.shipped import resolve_any
    from loomrl.load import dump

    experiment = resolve_any(with_store(words))
    check_parts(experiment)
    if memory is not None and not plan:
        raise ConfigError("--memory has no effect without --plan. Add it.")
    if plan:
        from dataclasses import asdict

        from loomrl.experiments.plan import plan_run

        needs = plan_run(experiment, memory_gb=memory)
        emit(asdict(needs), show=needs.render)
        return

    def render(console: Console) -> None:
        console.print(dump(experiment), end="", markup=False, highlight=False)
        console.print(f"# sha256: {experiment.sha256}", highlight=False)

    result = {"experiment": experiment.plain, "sha256": experiment.sha256}
    emit(result, show=render)


def sweep(
    words: SweepWords = None,
    run: Annotated[str | None, typer.Option(help="Id of the sweep; an existing sweep is resumed.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume --run, or the latest of this name, with its original settings.")
    ] = False,
) -> None:
    """Search for settings: many trials of one experiment; bad ones are stopped, or continue from good ones' weights."""
    from loomrl.experiments.sweep_file import resolve_sweep

    store = face().given_store
    plan = resolve_sweep([*(words or []), *([] if store is None else [f"experiment.store_url={store}"])])
    beginning(f"sweep {plan.name}")
    from loomrl.experiments.sweep import resumed
    from loomrl.experiments.sweep import sweep as begin

    changes = [word for word in words or [] if "=" in word and not word.startswith("experiment.store_url=")]
    if resume and changes:
        raise ConfigError(f"--resume: a sweep keeps its settings, so {changes[0]} would have no effect. Leave it out.")
    if resume:
        plan, run = resumed(plan, run)
    result = begin(plan, run=run)
    emit(result.as_dict(), show=lambda console: render_sweep(result, console))


def render_sweep(result: "SweepResult", console: Console) -> None:
    """The trials, best first; the errors; and how to continue."""
    from loomrl.experiments.sweep_file import short

    paths = list(result.trials[0].changes)
    failed = any(trial.failed for trial in result.trials)
    after = (f"{result.metric}>", *(["failed>"] if failed else []), f"{result.unit}>", "ended")
    columns = ("run", *(f"{name}>" for name in short(paths)), *after)
    rows = [
        (
            trial.run,
            *(_cell(trial.changes[path]) for path in paths),
            "–" if trial.score is None else f"{trial.score:.4g}",
            *([f"{trial.failed:,}"] if failed else []),
            f"{trial.done:,}",
            trial.stopped,
        )
        for trial in result.trials
    ]
    console.print(table("", columns, rows))
    console.print(f"\n{len(rows)} trials in {result.seconds:.0f} s: sweep {result.sweep}", highlight=False)
    console.print(f"parallel coordinates: {result.picture}", highlight=False)
    console.print(f"the best one, judged: loomrl evaluate {result.trials[0].run}", highlight=False)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
