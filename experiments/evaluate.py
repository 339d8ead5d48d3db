"""`loomrl evaluate`: the same held-out tasks for every policy, with recorded reports."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from loomrl.config import EvaluationConfig, Experiment, LanguageAlgorithm, LanguagePolicy, LanguageWeave, OpenAIPolicy
from loomrl.control.preference import lattice
from loomrl.errors import ConfigError
from loomrl.evaluation.front import FrontReport, collect_returns, judge_front
from loomrl.evaluation.report import Report, Score, failures_in, judge
from loomrl.evaluation.statistics import Interval
from loomrl.experiments.commands.output import shown_counts, table
from loomrl.experiments.front_view import render_front
from loomrl.experiments.policies import NamedPolicy, find_policy, meet, open_policy
from loomrl.gym.held_out import HeldOut, list_left_out
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.preference import Preference, percents
from loomrl.gym.rewards import open_shaping
from loomrl.gym.task_mixture import TaskMixture, open_task_mixture
from loomrl.run.record import recorded
from loomrl.safety.open import open_text_rules
from loomrl.store import LoomDB, open_store
from loomrl.store.policies import Evaluation, record_evaluation
from loomrl.store.runs import run_id
from loomrl.telemetry.progress import progress
from loomrl.types import Trajectory

NAMED = 8
"""Families named that were not judged."""
PREFERENCES = 11
"""Default number of preferences that a policy is judged by."""


@dataclass(frozen=True, slots=True)
class LanguageResult:
    """The result of an evaluation of one or more policies."""

    run: str
    seconds: float
    reports: tuple[Report, ...]


def evaluate_policies(
    experiment: Experiment,
    policies: Sequence[str] = (),
    *,
    temperature: float = 0.0,
    clock: Callable[[], float] = time.time,
) -> LanguageResult:
    """Evaluate each policy, or the experiment's own if none is named, and record run and reports in LoomDB."""
    with open_store(experiment.store_url) as db:
        mixture = open_task_mixture(experiment, db)
        refuse_league(mixture)
        trusts = isinstance(experiment.algorithm, LanguageAlgorithm) and experiment.algorithm.model.trust_remote_code
        judged = [
            find_policy(
                text, db, temperature=temperature, trust_remote_code=trusts, artifact_url=experiment.artifact_url
            )
            for text in policies
        ]
        judged = judged or [NamedPolicy(experiment.policy.kind, experiment.policy)]
        for policy in judged:
            _refuse_repetition(experiment.evaluation, policy)
            meet(policy.choice)
        run = run_id(None, experiment.name)
        started = clock()
        with recorded(db, experiment, mixture.snapshots, id=run, kind="evaluate", clock=clock) as result:
            reports = asyncio.run(_judge_all(experiment, mixture, run, judged))
            _record(db, run, judged, reports, clock())
            result["success"] = {report.policy: report.overall.success.mean for report in reports}
            result["failures"] = {report.policy: dict(report.failures) for report in reports if report.failures}
        return LanguageResult(run, clock() - started, tuple(reports))


def refuse_league(mixture: TaskMixture) -> None:
    """A ConfigError if an opponent would be drawn among the versions of a run: an evaluation belongs to none."""
    for index, (name, member) in enumerate(mixture.members.items()):
        if member.environment.league is not None:
            raise ConfigError(
                f"environment {name}: opponent.kind=league is of a run that trains, against its own past versions. "
                f"Name the opponent of the evaluation: environments.{index}.settings.opponent.kind=minimax, or random, "
                "mcts, ladder, or policy with a folder that `loomrl policies export` wrote."
            )


def _refuse_repetition(settings: EvaluationConfig, policy: NamedPolicy) -> None:
    sampling = policy.choice.sampling if isinstance(policy.choice, LanguagePolicy | OpenAIPolicy) else None
    if settings.attempts > 1 and sampling is not None and sampling.temperature == 0:
        raise ConfigError(
            f"evaluation.attempts={settings.attempts}: at temperature 0 {policy.name} says the same in every attempt "
            "at a task. Add --temperature 1."
        )


async def _judge_all(
    experiment: Experiment, mixture: TaskMixture, run: str, judged: Sequence[NamedPolicy]
) -> list[Report]:
    settings = experiment.evaluation
    rules = open_text_rules(settings.rules)
    shaping = open_shaping(experiment.rewards)
    asked = preferences_of(experiment)
    reports = []
    async with LoomRLGym(experiment.rollout, open_policy=open_policy) as gym:
        for policy in judged:
            attempts = await _play(gym, policy, mixture, settings, run, asked)
            missing = list_left_out(mixture, [attempt.task for attempt in attempts])
            report = judge(policy.name, attempts, confidence=settings.confidence, rules=rules, left_out=missing)
            reports.append(replace(report, front=front_of(experiment, policy.name, shaping.shape(attempts))))
    return reports


def preferences_of(experiment: Experiment) -> list[Preference]:
    """The preferences that a policy of several objectives is judged by; none for others."""
    algorithm = experiment.algorithm
    if not isinstance(algorithm, LanguageWeave) or not algorithm.objectives:
        return []
    names = algorithm.tree.names
    always = algorithm.preference.always
    asked = [always] if always is not None else lattice(len(names), experiment.evaluation.preferences or PREFERENCES)
    told = [percents(dict(zip(names, map(float, weights), strict=True))) for weights in asked]
    return [{name: percent / 100 for name, percent in one.items()} for one in told]


def front_of(experiment: Experiment, name: str, attempts: Iterable[Trajectory]) -> FrontReport | None:
    """Returns by preference; None of a policy that has no objectives."""
    algorithm = experiment.algorithm
    if not isinstance(algorithm, LanguageWeave) or not algorithm.objectives:
        return None
    return judge_front(
        name,
        collect_returns(attempts, algorithm.tree),
        objectives=algorithm.tree.names,
        reference=algorithm.reference,
        confidence=experiment.evaluation.confidence,
    )


async def _play(
    gym: LoomRLGym,
    policy: NamedPolicy,
    mixture: TaskMixture,
    settings: EvaluationConfig,
    run: str,
    preferences: Sequence[Preference],
) -> list[Trajectory]:
    held_out = HeldOut(mixture, settings, run=run, name=policy.name, policy=policy.choice, preferences=preferences)
    with progress(f"evaluate {policy.name}", len(held_out)) as report:
        for wave in held_out.waves():
            async for trajectory in gym.run(wave):
                held_out.take(trajectory)
                report(held_out.done)
    return held_out.trajectories


def _record(db: LoomDB, run: str, judged: Sequence[NamedPolicy], reports: Sequence[Report], now: float) -> None:
    for policy, report in zip(judged, reports, strict=True):
        id = f"{run}/{policy.name}"
        record_evaluation(
            db, Evaluation(id=id, report=report.as_dict(), created_at=now, run=run, policy=policy.version)
        )


def as_result(result: LanguageResult) -> dict[str, Any]:
    """The result as one JSON object."""
    return {
        "run": result.run,
        "seconds": round(result.seconds, 3),
        "policies": {report.policy: report.as_dict() for report in result.reports},
    }


def render(result: LanguageResult, console: Console) -> None:
    """Success per family and level, a column per policy; failures, if there were any."""
    reports = result.reports
    columns = ("", *(f"{report.policy}>" for report in reports))
    rows: list[tuple[str, ...]] = [("all", *(_cell(report.overall) for report in reports)), ("",)]
    rows += [(name, *(_cell(r.by_family[name]) for r in reports)) for name in reports[0].by_family] + [("",)]
    rows += [
        (name.replace("/", " level "), *(_cell(r.by_level[name]) for r in reports)) for name in reports[0].by_level
    ]
    missing = reports[0].left_out
    attempts = reports[0].overall.success.count + reports[0].overall.failures
    each = 1 if reports[0].several is None else len(reports[0].several.pass_at)
    tasks = f"{attempts // each} held-out tasks" + f", {each} attempts at each" * (each > 1)
    console.print(table(f"Success on {tasks}, {reports[0].confidence:.0%} confidence", columns, rows))
    if missing:
        console.print(f"\n{not_judged(missing)}", style="yellow", highlight=False)
    if each > 1:
        console.print()
        console.print(_several(reports))
    turns = max(len(report.solved_within) for report in reports)
    if turns > 1:
        shown = shown_counts(turns)
        within = [(report.policy, *(f"{_within(report, count):.3f}" for count in shown)) for report in reports]
        console.print()
        console.print(table("Success within so many turns", ("", *(f"{count}>" for count in shown)), within))
    for report in reports:
        if report.front is not None:
            render_front(report.front, console)
        for name, share in report.violations.items():
            text = (
                "no attempt"
                if share.mean is None
                else f"{share.mean:.3f}  [{share.low:.3f}, {share.high:.3f}] of attempts"
            )
            console.print(f"{report.policy} breaks rule {name} in {text}", markup=False, highlight=False)
        for failure in failures_in(report.as_dict()):
            console.print(f"{report.policy} failed {failure}", markup=False, highlight=False)
    console.print(f"\n{result.seconds:.1f} s, recorded as run {result.run}", highlight=False)


def not_judged(missing: Sequence[str]) -> str:
    """Families that had no episodes."""
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return (
        f"not judged: {', '.join(missing[:NAMED])}{more}. The figures are not about these: raise --episodes, or name "
        "fewer families."
    )


def too_many_failed(result: LanguageResult, most: float) -> str | None:
    """A message if more than this share of a policy's attempts failed; None otherwise."""
    said = [
        f"{report.overall.failures} of {report.overall.failures + report.overall.success.count} attempts by "
        f"{report.policy} failed, and its success is over the others"
        for report in result.reports
        if report.failed > most
    ]
    return f"{'; '.join(said)} (evaluation.may_fail={most:g})" if said else None


def _several(reports: Sequence[Report]) -> Table:
    """pass@k, and the majority's success."""
    told = [(report.policy, report.several) for report in reports if report.several is not None]
    shown = shown_counts(max(len(several.pass_at) for _, several in told))
    rows = [
        (
            name,
            *(_mean(several.pass_at[count - 1]) if count <= len(several.pass_at) else "–" for count in shown),
            "–" if several.majority is None else _mean(several.majority),
        )
        for name, several in told
    ]
    columns = ("", *(f"{count}>" for count in shown), "most frequent answer>")
    return table("Tasks solved by one of so many attempts", columns, rows)


def _mean(interval: Interval) -> str:
    return "–" if interval.mean is None else f"{interval.mean:.3f}"


def _within(report: Report, turns: int) -> float:
    """Turns later than the last that solved something add nothing."""
    return report.solved_within[min(turns, len(report.solved_within)) - 1] if report.solved_within else 0.0


def _cell(score: Score) -> str:
    success = score.success
    failed = f"  {score.failures} failed" if score.failures else ""
    mean = "–" if success.mean is None else f"{success.mean:.3f}  [{success.low:.3f}, {success.high:.3f}]"
    return mean + failed
