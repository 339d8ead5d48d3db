"""Evaluation of control policies: greedy episodes in separate environments, with the experiment's settings."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from loomrl.config import ControlExperiment, Weave
from loomrl.control.environment import agents_in, label, open_environment, open_environments, snapshot
from loomrl.control.play import ActingPolicy, Idle, PlayOutcome, RandomPolicy, Scripted, play, play_each
from loomrl.control.policy import ControlPolicy
from loomrl.control.preference import Always, Preferred, Steering, VectorRewards, group_returns, lattice
from loomrl.errors import ConfigError, unknown
from loomrl.evaluation.front import FrontReport, PreferenceEpisodes, judge_front
from loomrl.evaluation.returns import Cut, ReturnReport, judge_returns
from loomrl.experiments.commands.output import shown_counts, table
from loomrl.experiments.front_view import render_front
from loomrl.experiments.policies import is_control
from loomrl.named import named
from loomrl.run.record import recorded
from loomrl.run.version import copied, find_version
from loomrl.store import LoomDB, open_store
from loomrl.store.policies import Evaluation, record_evaluation
from loomrl.store.runs import RUNS, run_id

AT_ONCE = 16
"""Environments played side by side."""
HELD_OUT = 0x10035
"""Mixed into the seed, so that no environment starts as one in training did."""
RANDOM = "random"
MOST_PREFERENCES = 101
"""Default number of preferences."""
PICTURE = "front.svg"
FORMS = ["pkg.module:callable", "RUN", "RUN/NUMBER", "a policy's folder"]


@dataclass(frozen=True, slots=True)
class ControlResult:
    """The result of an evaluation of one or more policies."""

    run: str
    environment: str
    seconds: float
    reports: tuple[ReturnReport, ...]
    picture: str | None = None
    """The file with the fronts, if there are several objectives."""


def judge_control(policy: ActingPolicy, experiment: ControlExperiment, *, name: str) -> ReturnReport:
    """The policy's return in the environment of the last stage. Equal policies get equal reports."""
    if experiment.objectives:
        return judge_preferences(policy, experiment, name=name, seed=_seed(experiment))
    return judge_outcome(name, play_evaluation(policy, experiment), experiment)


def judge_outcome(name: str, outcome: PlayOutcome, experiment: ControlExperiment) -> ReturnReport:
    """The report on these episodes."""
    return judge_returns(
        name,
        outcome.returns,
        outcome.lengths,
        trials=outcome.trials,
        cut=None if outcome.limit is None else Cut(outcome.limit, outcome.cut),
        confidence=experiment.evaluation.confidence,
    )


def idle_return(experiment: ControlExperiment) -> float | None:
    """The return of doing nothing in the same episodes; None if no action means that, or with several objectives."""
    choice = experiment.judged_in
    if experiment.objectives:
        return None
    with closing(open_environments(choice, agents_in(choice, choice.settings), choice.settings)) as one:
        if not Idle.can(one.single_action_space):
            return None
    return float(np.mean(play_evaluation(Idle(), experiment).returns))


def play_evaluation(policy: ActingPolicy, experiment: ControlExperiment) -> PlayOutcome:
    """The evaluation's episodes."""
    settings = experiment.evaluation
    choice = experiment.judged_in
    agents = agents_in(choice, choice.settings)
    count = min(settings.episodes, AT_ONCE) * agents
    with closing(open_environments(choice, count, choice.settings)) as environments:
        return play(
            policy,
            environments,
            settings.episodes * agents,
            seed=_seed(experiment),
            max_steps=settings.max_steps,
        )


def _seed(experiment: ControlExperiment) -> int:
    return int(np.random.SeedSequence([experiment.evaluation.seed, HELD_OUT]).generate_state(1)[0] >> 1)


def evaluate_control(
    experiment: ControlExperiment, policies: Sequence[str] = (), *, clock: Callable[[], float] = time.time
) -> ControlResult:
    """Evaluate each policy, or a random one if none is named, record run and reports in LoomDB, draw fronts."""
    with open_store(experiment.store_url) as db:
        settings = experiment.judged_in.settings
        found = [find_acts(text, settings, db) for text in policies or [RANDOM]]
        run = run_id(None, experiment.name)
        started = clock()
        environments = snapshot(experiment.judged_in)
        with recorded(db, experiment, environments, id=run, kind="evaluate", clock=clock) as result:
            reports = [judge_control(policy, experiment, name=name) for name, policy, _ in found]
            for report, (name, _, version) in zip(reports, found, strict=True):
                id = f"{run}/{name}"
                now = clock()
                record_evaluation(
                    db, Evaluation(id=id, report=report.as_dict(), created_at=now, run=run, policy=version)
                )
            result["return"] = {report.policy: report.overall.reward.mean for report in reports}
            picture = Path(experiment.evaluation.picture or Path(experiment.train.folder, run, PICTURE))
            drawn = draw_fronts(reports, picture)
        return ControlResult(run, label(experiment.environment), clock() - started, tuple(reports), drawn)


def judge_preferences(policy: ActingPolicy, experiment: ControlExperiment, *, name: str, seed: int) -> FrontReport:
    """Every preference plays its episodes in an environment of its own. Equal policies get equal reports."""
    settings = experiment.evaluation
    algorithm = experiment.algorithm
    assert isinstance(algorithm, Weave)
    preferences = _preferences(algorithm, settings.preferences)
    with closing(
        VectorRewards([partial(_open_preferred, experiment, tuple(row.tolist())) for row in preferences])
    ) as opened:
        returns, steps, cut, limit = play_each(
            policy,
            opened,
            settings.episodes,
            seed=seed,
            gamma=algorithm.gamma,
            max_steps=settings.max_steps,
        )
    return judge_front(
        name,
        PreferenceEpisodes(
            preferences,
            list(group_returns(returns, algorithm.tree)),
            list(steps),
            cut=None if limit is None else Cut(limit, cut),
        ),
        objectives=algorithm.tree.names,
        reference=algorithm.reference,
        confidence=settings.confidence,
    )


def _open_preferred(experiment: ControlExperiment, weights: tuple[float, ...]) -> Preferred:
    choice = experiment.judged_in
    algorithm = experiment.algorithm
    assert isinstance(algorithm, Weave)
    steering = Steering.of(algorithm, source=Always(weights))
    return Preferred(open_environment(choice, choice.settings), steering)


def _preferences(algorithm: Weave, most: int | None) -> NDArray[np.float32]:
    """Preferences spread evenly over all of them; or only the fixed one."""
    always = algorithm.preference.always
    if always is not None:
        return np.array([always], np.float32)
    return lattice(len(algorithm.objectives), most or MOST_PREFERENCES)


def draw_fronts(reports: Sequence[ReturnReport], file: Path) -> str | None:
    """Save a picture of the fronts among the reports; returns its path, or None if there is nothing to draw."""
    fronts = [report for report in reports if isinstance(report, FrontReport) and len(report.objectives) > 1]
    if not fronts:
        return None
    from loomrl.telemetry.plot import plot_fronts  # with matplotlib

    plot_fronts(file, fronts)
    return str(file)


def play_named(text: str, experiment: ControlExperiment, db: LoomDB) -> PlayOutcome:
    """The episodes that this policy plays; what `--policy` takes."""
    _, policy, _ = find_acts(text, experiment.judged_in.settings, db)
    return play_evaluation(policy, experiment)


def find_acts(text: str, settings: Mapping[str, Any], db: LoomDB) -> tuple[str, ActingPolicy, str | None]:
    """Name, policy, and version if it has one. User code is called with the environment's settings."""
    if text == RANDOM:
        return text, RandomPolicy(), None
    if ":" in text:
        return text, _open_scripted(text, settings), None
    if is_control(text):
        return text, ControlPolicy.load(Path(text)), None
    version = find_version(text, db)
    if version is None:
        raise ConfigError(
            "policy " + unknown("name", text, [RANDOM, *FORMS, *(run.id for run in RUNS.latest(db, kind="train"))])
        )
    folder = copied(version, db) / "policy"
    if not is_control(str(folder)):
        raise ConfigError(f"policy {text!r} is one of language: judge it on the experiment it was made with.")
    return text, ControlPolicy.load(folder), version.id


def _open_scripted(text: str, settings: Mapping[str, Any]) -> Scripted:
    made = named(text, what="--policy")
    try:
        act = made(**settings)
    except TypeError as error:
        raise ConfigError(f"--policy={text!r}, called with settings {dict(settings)}: TypeError: {error}.") from error
    if not callable(act):
        raise ConfigError(f"--policy={text!r} gave {act!r:.60}, and no callable from observations to actions.")
    return Scripted(act)


def as_result(result: ControlResult) -> dict[str, Any]:
    """The result as one JSON object."""
    told = {
        "run": result.run,
        "seconds": round(result.seconds, 3),
        "policies": {report.policy: report.as_dict() for report in result.reports},
    }
    return told | {"picture": result.picture} if result.picture else told


def render(result: ControlResult, console: Console) -> None:
    """Return and length of episodes, a row per policy."""
    rows = [
        (report.policy, format_return(report.as_dict()["overall"]), *_spread(report.as_dict()["overall"]))
        for report in result.reports
    ]
    first = result.reports[0]
    title = f"Return in {result.environment}, {first.overall.episodes} episodes, {first.confidence:.0%} confidence"
    console.print(table(title, ("", "mean>", "least>", "greatest>", "steps>"), rows))
    if trials := max((len(report.trials) for report in result.reports), default=0):
        shown = shown_counts(trials)
        by_trial = [(report.policy, *(f"{report.trials[n - 1]:.2f}" for n in shown)) for report in result.reports]
        console.print()
        console.print(table("Mean return by trial", ("", *(f"{n}>" for n in shown)), by_trial))
    for report in result.reports:
        if isinstance(report, FrontReport):
            console.print()
            render_front(report, console)
    for line in cut_lines(result.reports):
        console.print(f"\n{line}", highlight=False)
    if result.picture:
        console.print(f"\npicture: {result.picture}", highlight=False)
    console.print(f"\n{result.seconds:.1f} s, recorded as run {result.run}", highlight=False)


def cut_lines(reports: Sequence[ReturnReport]) -> list[str]:
    """The bound of an episode's steps, where there is one, and how many episodes of which policy it cut."""
    bounded = [(report, report.cut) for report in reports if report.cut is not None]
    return [
        f"{cut.episodes} of {report.overall.episodes} episodes of {report.policy} were cut after {cut.max_steps} steps "
        "(evaluation.max_steps), and count as truncated: their returns are those up to there."
        if cut.episodes
        else f"Episodes of {report.policy} would be cut after {cut.max_steps} steps (evaluation.max_steps): none was."
        for report, cut in bounded
    ]


def format_return(score: Mapping[str, Any]) -> str:
    """Mean return with its interval; a single episode has none."""
    reward = score["reward"]
    if reward["low"] is None:
        return f"{reward['mean']:.2f}"
    return f"{reward['mean']:.2f}  [{reward['low']:.2f}, {reward['high']:.2f}]"


def _spread(score: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{score['least']:.2f}", f"{score['greatest']:.2f}", f"{score['steps']:.1f}"
