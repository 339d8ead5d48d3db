"""Reports of a day and of a job, made from the record, as JSON and as Markdown."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from loomrl.artifacts import Artifacts
from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.job import Code, JobPhase, TrainingJob
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event

MADE = "report.made"
Body = Mapping[str, Any]
ADVICE: Mapping[Code, str] = {
    Code.OOM: "Give trainings more memory, or smaller batches (training.data.batch).",
    Code.CONVERGENCE: "Lower training.algorithm.optimizer.learning_rate, or tighten the leash to the reference policy.",
    Code.DATA: "Look at what the selection leaves out: `loomrl data list`, then loosen `data`.",
    Code.INFRA: "Look at the machines: `loomrl loop list` shows what trainings ended by.",
    Code.TIMEOUT: "Raise patience.training_minutes, or shorten the training.",
    Code.UNKNOWN: "Read the log of the failed training.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyReport:
    """The contents of a daily report."""

    at: float
    endpoint: str
    jobs: Sequence[TrainingJob]
    """All jobs, in the order in which they moved last."""
    rewards: Sequence[float]
    """Rewards of the trajectories judged in the last 24 hours."""
    confidence: float | None
    """The mean share of the weights for which there was evidence."""
    collected: int
    new: int
    """Trajectories since the last training was requested or began."""
    policy: str
    since: float
    """Time since which the policy is stable."""
    means: Sequence[float]
    """Mean rewards of the policy's windows; the first is its baseline."""
    alerts: Sequence[tuple[float, str, str]]
    """Alerts of the last 24 hours: time, name, reason."""
    open_alarms: Mapping[str, float]


def daily(plan: LoopExperiment, day: DailyReport) -> dict[str, Any]:
    """The report of the 24 hours up to a moment."""
    recent = [job for job in day.jobs if job.at > day.at - 86_400]
    failed = [job for job in recent if job.phase is JobPhase.FAILED]
    spread = _spread(day.rewards)
    baseline = day.means[0] if day.means else None
    now = day.means[-1] if day.means else None
    return {
        "kind": "daily",
        "endpoint": day.endpoint,
        "loop": plan.name,
        "at": _iso(day.at),
        "trajectories": {"judged": len(day.rewards), "collected": day.collected, "since_last_training": day.new},
        "reward": {**spread, "confidence": _round(day.confidence)},
        "jobs": {
            "done": sum(job.phase in (JobPhase.DONE, JobPhase.BACK, JobPhase.REFUSED) for job in recent),
            "released": sum(job.phase is JobPhase.DONE for job in recent),
            "failed": len(failed),
            "open": [_line(job) for job in day.jobs if job.is_open],
        },
        "model": {
            "policy": day.policy,
            "since": _iso(day.since),
            "baseline": _round(baseline),
            "reward": _round(now),
            "difference": None if baseline is None or now is None else _round(now - baseline),
        },
        "issues": [
            *(f"{name}, since {_iso(since)}" for name, since in day.open_alarms.items()),
            *(f"{_iso(at)} {name}: {reason}" for at, name, reason in day.alerts),
        ],
        "recommendations": _advice(plan, day, failed),
    }


def after(
    job: TrainingJob, *, plan: LoopExperiment, verdict: Body | None, release: Body | None, at: float
) -> dict[str, Any]:
    """The report of a job that is over."""
    seconds = max(0.0, job.ended_at - job.begun_at) if job.begun_at and job.ended_at else None
    learners = plan.training.algorithm.learners  # type: ignore[union-attr]
    gpus = learners.count * learners.gpus
    price = plan.reports.usd_per_hour
    return {
        "kind": "job",
        "endpoint": job.endpoint,
        "loop": plan.name,
        "at": _iso(at),
        "job": job.id,
        "outcome": job.phase.value,
        "reason": job.reason,
        "trigger": job.trigger.value,
        "attempt": job.attempt,
        "run": job.run or None,
        "dataset": job.dataset or None,
        "samples": job.samples or None,
        "settings": dict(job.settings),
        "duration_s": _round(seconds),
        "policy": job.policy or None,
        "final": job.result.get("after"),
        "improvement": None if verdict is None else _round(verdict["improvement"]),
        "validation": None if verdict is None else {name: verdict[name] for name in ("id", "outcome", "failed")},
        "deployment": release,
        "error": None if job.fault is None else asdict(job.fault),
        "cost": {
            "gpu_hours": None if seconds is None else _round(gpus * seconds / 3600),
            "usd": None if seconds is None or price is None else _round(price * seconds / 3600),
        },
    }


def markdown(report: Body) -> str:
    """A report as a page for people."""
    return _daily_page(report) if report["kind"] == "daily" else _job_page(report)


def keep(db: LoomDB, artifacts: Artifacts, name: str, report: Body, *, at: float) -> bool:
    """Put a report on record, once, and store it as files; False if it was there."""
    is_new = EVENTS.append_once(db, Event(kind=MADE, subject=name, data=report, created_at=at))
    store(db, artifacts, name)
    return is_new


def store(db: LoomDB, artifacts: Artifacts, name: str) -> None:
    """Write the files of a report that is on record."""
    report = find_report(db, name)
    if report is not None:
        artifacts.write_text(f"reports/{name}.json", json.dumps(report, indent=2, sort_keys=True) + "\n")
        artifacts.write_text(f"reports/{name}.md", markdown(report))


def find_report(db: LoomDB, name: str) -> Body | None:
    """The report of this name; None if there is none."""
    found = EVENTS.read(db, kind=MADE, subject=name, limit=1)
    return found[0][1].data if found else None


def _advice(plan: LoopExperiment, day: DailyReport, failed: Sequence[TrainingJob]) -> list[str]:
    found = [ADVICE[code] for code in dict.fromkeys(job.fault.code for job in failed if job.fault is not None)]
    if day.collected and not day.rewards:
        found.append("Nothing was judged in 24 hours: is `rewards` on, or `loomrl rewards run` up?")
    if day.confidence is not None and day.confidence < 0.5:
        found.append(
            "Most of each reward is a guess: have callers tell outcomes, or give thumbs (`POST /v1/feedback`)."
        )
    if plan.triggers.count is not None and day.new >= plan.triggers.count and not any(job.is_open for job in day.jobs):
        found.append("Enough new trajectories wait, and no training is open: is a coordinator up?")
    if any(job.phase is JobPhase.REFUSED for job in day.jobs[-3:]):
        found.append("The gate refused the latest versions: look at `loomrl gate list` before the next training.")
    return found


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"mean": None, "deviation": None}
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return {"mean": _round(mean), "deviation": _round(math.sqrt(variance))}


def _line(job: TrainingJob) -> str:
    return f"{job.id} {job.phase.value}: {job.reason}"


def _daily_page(report: Body) -> str:
    model = report["model"]
    reward = report["reward"]
    jobs = report["jobs"]
    lines = [
        f"# {report['endpoint']}, {report['at']}",
        "",
        f"- Trajectories judged in 24 hours: {report['trajectories']['judged']}; collected since the last training: "
        f"{report['trajectories']['since_last_training']}",
        f"- Reward: {_number(reward['mean'])} ± {_number(reward['deviation'])}, confidence "
        f"{_number(reward['confidence'])}",
        f"- Jobs: {jobs['done']} done, {jobs['released']} of them released, {jobs['failed']} failed",
        f"- Model: {model['policy']} since {model['since']}; reward {_number(model['reward'])}, its baseline "
        f"{_number(model['baseline'])}",
        *_section("Open jobs", jobs["open"]),
        *_section("Issues", report["issues"]),
        *_section("Recommendations", report["recommendations"]),
    ]
    return "\n".join(lines) + "\n"


def _job_page(report: Body) -> str:
    validation = report["validation"]
    cost = report["cost"]
    lines = [
        f"# Training {report['job'][:8]} of {report['endpoint']}: {report['outcome']}",
        "",
        f"{report['reason']}",
        "",
        f"- Trigger: {report['trigger']}, attempt {report['attempt']}",
        f"- Duration: {_number(report['duration_s'])} s",
        f"- Samples: {_number(report['samples'])}, data set {report['dataset'] or '–'}",
        f"- Policy: {report['policy'] or '–'}; final success {_ways(report['final'])}",
        f"- Improvement: {_number(report['improvement'])}",
        f"- Validation: {'–' if validation is None else validation['id'] + ' ' + validation['outcome']}",
        f"- Deployment: {_release_text(report['deployment'])}",
        f"- Cost: {_number(cost['gpu_hours'])} GPU hours, {_number(cost['usd'])} USD",
        *([f"- Error: {report['error']['code']}: {report['error']['message']}"] if report["error"] else []),
    ]
    return "\n".join(lines) + "\n"


def _release_text(release: Body | None) -> str:
    return "–" if release is None else f"{release['id']} {release['state']}: {release['reason']}"


def _ways(final: Mapping[str, float] | None) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in (final or {}).items()) or "–"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *(f"- {line}" for line in lines)] if lines else []


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
