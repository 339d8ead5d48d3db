"""Evaluation of control policies: greedy episodes in separate environments, with the experiment's settings."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TransformReward
from numpy.typing import NDArray
from rich.console import Console

from loomrl.config import ControlEnvironment, ControlExperiment, Weave
from loomrl.control.environment import agents_in, label, open_environment, open_environments, policies_of, snapshot
from loomrl.control.episode import GIF
from loomrl.control.film import LONGEST, Take, film_episode, open_filmed
from loomrl.control.play import ActingPolicy, Idle, PlayOutcome, RandomPolicy, Scripted, play, play_each
from loomrl.control.preference import Always, Preferred, Steering, VectorRewards, group_returns, lattice
from loomrl.control.team_policy import TeamPolicy, load_acting
from loomrl.errors import ConfigError, unknown
from loomrl.evaluation.front import FrontReport, PreferenceEpisodes, judge_front
from loomrl.evaluation.returns import Cut, ReturnReport, ReturnScore, judge_returns, score_returns
from loomrl.experiments.commands.output import shown_counts, table
from loomrl.experiments.front_view import render_front
from loomrl.experiments.policies import is_control
from loomrl.named import named
from loomrl.run.record import recorded
from loomrl.run.version import copied, find_version
from loomrl.store import LoomDB, open_store
from loomrl.store.policies import Evaluation, record_evaluation
from loomrl.store.runs import RUNS, run_id
from loomrl.telemetry.progress import progress

_log = logging.getLogger(__name__)

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
    film: str | None = None
    """The film of an episode of the first policy, if the environment renders pictures."""


def judge_control(policy: ActingPolicy, experiment: ControlExperiment, *, name: str) -> ReturnReport:
    """The policy's return in the environment of the last stage. Equal policies get equal reports."""
    if experiment.objectives:
        return judge_preferences(policy, experiment, name=name, seed=seed_of(experiment))
    return judge_outcome(name, play_evaluation(policy, experiment, name=name), experiment)


def judge_outcome(name: str, outcome: PlayOutcome, experiment: ControlExperiment) -> ReturnReport:
    """The report on these episodes."""
    report = judge_returns(
        name,
        outcome.returns,
        outcome.lengths,
        trials=outcome.trials,
        cut=None if outcome.limit is None else Cut(outcome.limit, outcome.cut),
        confidence=experiment.evaluation.confidence,
    )
    return replace(report, policies=_score_policies(outcome, experiment))


def _score_policies(outcome: PlayOutcome, experiment: ControlExperiment) -> dict[str, ReturnScore]:
    """The score of each policy, if the agents have several."""
    choice = experiment.judged_in
    if not policies_of(choice):
        return {}
    with closing(open_environments(choice, agents_in(choice, choice.settings), choice.settings)) as world:
        places = world.unwrapped.places
    found = {}
    for name, own in places.items():
        mine = [n for n, place in enumerate(outcome.places) if place % world.num_envs in own]
        returns = [outcome.returns[n] for n in mine]
        lengths = [outcome.lengths[n] for n in mine]
        found[name] = score_returns(returns, lengths, confidence=experiment.evaluation.confidence)
    return found


def idle_return(experiment: ControlExperiment) -> float | None:
    """The return of doing nothing in the same episodes; None if no action means that, or with several objectives."""
    choice = experiment.judged_in
    if experiment.objectives:
        return None
    with closing(open_environments(choice, agents_in(choice, choice.settings), choice.settings)) as one:
        if not Idle.can(one.single_action_space):
            return None
    return float(np.mean(play_evaluation(Idle(), experiment).returns))


def play_evaluation(policy: ActingPolicy, experiment: ControlExperiment, *, name: str = "") -> PlayOutcome:
    """The evaluation's episodes."""
    settings = experiment.evaluation
    choice = experiment.judged_in
    agents = agents_in(choice, choice.settings)
    count = min(settings.episodes, AT_ONCE) * agents
    if isinstance(policy, RandomPolicy) and policies_of(choice):
        policy = TeamPolicy({name: RandomPolicy() for name in policies_of(choice)})
    with (
        closing(open_environments(choice, count, choice.settings)) as environments,
        progress(f"evaluate {name}".strip(), settings.episodes * agents, only_if_long=True) as report,
    ):
        return play(
            policy,
            environments,
            settings.episodes * agents,
            seed=seed_of(experiment),
            max_steps=settings.max_steps,
            report=report,
        )


# -- films ------------------------------------------------------------------------------------------------------------


@contextmanager
def open_scene(experiment: ControlExperiment) -> Iterator[tuple[VectorEnv[Any, Any, Any], str | None]]:
    """One world of evaluations, with a camera if it can have one; else why it cannot."""
    environments, reason = open_filmed(partial(_open_world, experiment))
    with closing(environments):
        yield environments, reason


def _open_world(experiment: ControlExperiment, more: Mapping[str, Any]) -> VectorEnv[Any, Any, Any]:
    judged = experiment.judged_in
    choice = judged.model_copy(update={"vectorization": "sync", "settings": {**judged.settings, **more}})
    if not experiment.objectives:
        return open_environments(choice, agents_in(choice, choice.settings), choice.settings)
    algorithm = experiment.algorithm
    assert isinstance(algorithm, Weave)
    weights = np.array(algorithm.preference.always or [1 / len(experiment.objectives)] * len(experiment.objectives))

    def preferred() -> Any:
        one = _open_preferred(choice, algorithm, tuple(weights.tolist()))
        return TransformReward(one, lambda paid: float(group_returns(np.asarray(paid), algorithm.tree) @ weights))

    return SyncVectorEnv([preferred])


def take_of(experiment: ControlExperiment, number: int = 0, *, frames: int, explore: bool = False) -> Take:
    """The evaluation's episode of this number, counted from 0."""
    seed = seed_of(experiment) + number
    return Take(seed=seed, frames=frames, max_steps=experiment.evaluation.max_steps, explore=explore)


def keep_film(policy: ActingPolicy, experiment: ControlExperiment, folder: Path) -> str | None:
    """Film the beginning of the evaluation's first episode into this folder; the film's path, or None without one.

    Nothing that happens while it is filmed ends an evaluation: it is logged.
    """
    settings = experiment.evaluation
    if not settings.film or policies_of(experiment.environment):
        return None
    bounded = experiment.override({"evaluation.max_steps": min(settings.max_steps or LONGEST, LONGEST)})
    try:
        with open_scene(bounded) as (environments, reason):
            if reason is not None:
                _log.info("no film: %s", reason)
                return None
            film_episode(policy, environments, take_of(bounded, frames=settings.film)).save(folder)
    except Exception as error:  # noqa: BLE001 - the boundary to the environment's author and to drivers
        _log.warning("no film of an evaluation: %s: %s", type(error).__name__, error)
        return None
    return str(folder / GIF)


def seed_of(experiment: ControlExperiment) -> int:
    """The seed of an evaluation's first environment."""
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
            film = keep_film(found[0][1], experiment, Path(experiment.train.folder, run))
        return ControlResult(run, label(experiment.environment), clock() - started, tuple(reports), drawn, film)


def judge_preferences(policy: ActingPolicy, experiment: ControlExperiment, *, name: str, seed: int) -> FrontReport:
    """Every preference plays its episodes in an environment of its own. Equal policies get equal reports."""
    settings = experiment.evaluation
    algorithm = experiment.algorithm
    assert isinstance(algorithm, Weave)
    preferences = _preferences(algorithm, settings.preferences)
    choice = experiment.judged_in
    with (
        closing(
            VectorRewards([partial(_open_preferred, choice, algorithm, tuple(row.tolist())) for row in preferences])
        ) as opened,
        progress(f"evaluate {name}", settings.episodes * len(preferences), only_if_long=True) as report,
    ):
        returns, steps, cut, limit = play_each(
            policy,
            opened,
            settings.episodes,
            seed=seed,
            gamma=algorithm.gamma,
            max_steps=settings.max_steps,
            report=report,
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


def _open_preferred(choice: ControlEnvironment, algorithm: Weave, weights: tuple[float, ...]) -> Preferred:
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
        return text, load_acting(Path(text)), None
    version = find_version(text, db)
    if version is None:
        raise ConfigError(
            "policy " + unknown("name", text, [RANDOM, *FORMS, *(run.id for run in RUNS.latest(db, kind="train"))])
        )
    folder = copied(version, db) / "policy"
    if not is_control(str(folder)):
        raise ConfigError(f"policy {text!r} is one of language: judge it on the experiment it was made with.")
    return text, load_acting(folder), version.id


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
    files = {"picture": result.picture, "film": result.film}
    return told | {name: file for name, file in files.items() if file}


def render(result: ControlResult, console: Console) -> None:
    """Return and length of episodes, a row per policy."""
    scores = [
        (name, score)
        for report in map(ReturnReport.as_dict, result.reports)
        for name, score in ((report["policy"], report["overall"]), *_by_policy(report))
    ]
    rows = [(name, format_return(score), *_spread(score)) for name, score in scores]
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
    for name, file in (("picture", result.picture), ("film", result.film)):
        if file:
            console.print(f"\n{name}: {file}", highlight=False)
    console.print(f"\n{result.seconds:.1f} s, recorded as run {result.run}", highlight=False)


def _by_policy(report: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"  {name}", score) for name, score in report.get("policies", {}).items()]


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
