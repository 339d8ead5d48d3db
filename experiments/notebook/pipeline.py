"""The short door to judging a language policy again and again, and to the picture of how it got better."""

import json
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loomrl.config import EnvironmentConfig, EvaluationConfig, RolloutConfig, ScriptedPolicy
from loomrl.errors import ConfigError
from loomrl.evaluation.report import Report, failures_in, judge, reasoning_words
from loomrl.experiments.policies import find_policy, open_policy
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.catalogue import find
from loomrl.gym.held_out import HeldOut
from loomrl.gym.host.loop import PrivateLoop
from loomrl.gym.manual import ManualEnvironment
from loomrl.gym.mixture import gather
from loomrl.gym.policy import Policy
from loomrl.gym.pool import LoomRLGym
from loomrl.store import open_store
from loomrl.threshold import reaches
from loomrl.types import End, Trajectory

_log = logging.getLogger(__name__)

RECORDS = "evaluations.jsonl"
UNASKED = "oracle, as no policy was given"
CURVES = ("reward", "completed", "success", "reasoning", "level_reached")
"""What the picture shows of every evaluation, by its names in the records."""
TITLES = ("Episode reward", "Completion rate", "Success rate", "Reasoning, words", "Level reached")
TOPS = (None, 1.0, 1.0, None, 10.0)
"""Where the vertical axes end, if not by the values."""
REACHED = 0.5
"""The success that a level must have to count as reached."""


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One attempt in figures."""

    family: str
    level: int
    reward: float
    success: float
    completed: bool
    reasoning: int
    """Words said beside the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """One evaluation: its report, and every attempt that did not fail."""

    step: int
    report: Report
    episodes: tuple[EpisodeRecord, ...]
    level_reached: int
    """The highest level that is solved in half of the attempts, with all below it; 0 where the lowest is not."""

    @property
    def episode_rewards(self) -> list[float]:
        """The reward of every attempt."""
        return [episode.reward for episode in self.episodes]

    def record(self) -> dict[str, Any]:
        """It as JSON values, as a line of the log has it."""
        overall = self.report.overall
        curves = {
            "reward": overall.reward,
            "completed": overall.completed,
            "success": overall.success.mean,
            "reasoning": overall.reasoning,
            "level_reached": self.level_reached,
            "failed": self.report.failed,
        }
        episodes = [asdict(episode) for episode in self.episodes]
        return {
            "step": self.step,
            "policy": self.report.policy,
            **curves,
            "report": self.report.as_dict(),
            "episodes": episodes,
        }


class EvaluationPipeline:
    """`EvaluationPipeline("Math", log_dir="evals").evaluate(num_episodes=100, policy="RUN/40")`, then the next version.

    `env` is an environment, or the name of one; attempts are made in fresh ones of its kind. The tasks are held out:
    no training draws them, and every evaluation has the same. A line for each is added to `log_dir`, where a later
    pipeline goes on. Without a policy the oracle is judged, and the report is called so.
    """

    def __init__(
        self,
        env: str | BaseEnvironment | ManualEnvironment,
        log_dir: str | Path = "runs/evaluation",
        *,
        levels: Sequence[int] = tuple(range(1, 11)),
        concurrency: int = 64,
        store_url: str = "sqlite:///loom.db",
    ) -> None:
        self._cast = gather([_config(env)], None, lambda id: (find(id).id, ""))
        self._log = Path(log_dir) / RECORDS
        self._levels = tuple(levels)
        self._rollout = RolloutConfig(concurrency=concurrency)
        self._store_url = store_url

    def evaluate(
        self, num_episodes: int = 100, *, policy: str | Policy | None = None, step: int | None = None
    ) -> PipelineResult:
        """Judge a policy, your own or what `loomrl evaluate --policy` takes. `step` is its place on the curve."""
        name = type(policy).__name__ if policy is not None and not isinstance(policy, str) else policy or UNASKED
        if policy is None:
            policy = "oracle"
            _log.warning("EvaluationPipeline: no policy was given, so this judges the %s: set policy=.", UNASKED)
        known = len(self.history())
        settings = EvaluationConfig(episodes=num_episodes, levels=self._levels)
        loop = PrivateLoop()
        try:
            attempts = loop.wait(self._play(settings, policy))
        finally:
            loop.close()
        report = judge(name, attempts)
        if report.failures:
            said = "; ".join(failures_in(report.as_dict()))
            _log.warning("%d of %d attempts failed, success is over the others: %s",
                         report.overall.failures, len(attempts), said)  # fmt: skip
        result = PipelineResult(
            step=known if step is None else step,
            report=report,
            episodes=tuple(_episode(attempt) for attempt in attempts if attempt.end is not End.FAILED),
            level_reached=_level_reached(report),
        )
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(result.record() | {"at": time.time()}) + "\n")
        return result

    def history(self) -> list[dict[str, Any]]:
        """Every evaluation that the log has, in the order in which they were made."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    def plot_learning_curve(self, path: str | Path) -> Path:
        """Draw all evaluations of the log, in the format of the path's suffix: png, svg or pdf."""
        history = sorted(self.history(), key=lambda record: record["step"])
        if not history:
            raise ConfigError(f"{self._log} has no evaluation yet: call evaluate() first.")
        return _draw(history, Path(path), str(next(iter(self._cast.members))))

    async def _play(self, settings: EvaluationConfig, policy: str | Policy) -> list[Trajectory]:
        if isinstance(policy, str):
            with open_store(self._store_url) as db:
                choice, opened = find_policy(policy, db).choice, open_policy
        else:
            choice, opened = ScriptedPolicy(), lambda choice: lambda environment, rng: policy
        held_out = HeldOut(self._cast, settings, run=uuid.uuid4().hex, name="evaluated", policy=choice)
        async with LoomRLGym(self._rollout, open_policy=opened) as gym:
            for wave in held_out.waves():
                async for trajectory in gym.run(wave):
                    held_out.take(trajectory)
        return held_out.trajectories


def _config(env: str | BaseEnvironment | ManualEnvironment) -> EnvironmentConfig:
    if isinstance(env, str):
        return EnvironmentConfig(id=env)
    environment = env.environment if isinstance(env, ManualEnvironment) else env
    id = environment.name or f"{type(environment).__module__}:{type(environment).__qualname__}"
    return EnvironmentConfig(id=id, settings=environment.settings.model_dump(mode="json"))


def _episode(attempt: Trajectory) -> EpisodeRecord:
    return EpisodeRecord(
        family=f"{attempt.task.environment}/{attempt.task.family}",
        level=attempt.task.level,
        reward=attempt.reward.total,
        success=attempt.reward.success,
        completed=attempt.end is End.TERMINATED,
        reasoning=reasoning_words(attempt),
    )


def _level_reached(report: Report) -> int:
    reached = 0
    for name, score in sorted(report.by_level.items()):
        if not reaches(score.success.mean or 0.0, REACHED):
            break
        reached = int(name.rpartition("/")[2])
    return reached


def _draw(history: Sequence[Mapping[str, Any]], path: Path, title: str) -> Path:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            f"a picture needs matplotlib ({error}). Install it with: pip install 'loomrl[plot]'."
        ) from None
    figure = Figure(figsize=(12, 7), layout="constrained")
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in formats:
        raise ConfigError(f"path={str(path)!r}: give it one of these endings: {', '.join(sorted(formats))}.")
    failed = max(record.get("failed", 0.0) for record in history)
    left_out = f"; of one, {failed:.0%} failed and are left out" if failed else ""
    policies = ", ".join(dict.fromkeys(record["report"]["policy"] for record in history))
    figure.suptitle(f"{title}: {len(history)} evaluations of {policies:.100}{left_out}")
    *panels, last = figure.subplots(2, 3).flat
    for panel, name, heading, top in zip(panels, CURVES, TITLES, TOPS, strict=True):
        panel.plot([record["step"] for record in history], [record[name] for record in history], marker="o")
        panel.set(title=heading, xlabel="step")
        if top is not None:
            panel.set_ylim(-0.05 * top, 1.05 * top)
    _last_rewards(last, history[-1])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _last_rewards(panel: Any, record: Mapping[str, Any]) -> None:
    """The rewards of the latest evaluation's attempts, by level."""
    levels = sorted({episode["level"] for episode in record["episodes"]})
    rewards = [[e["reward"] for e in record["episodes"] if e["level"] == level] for level in levels]
    panel.boxplot(rewards, tick_labels=levels)
    panel.set(title="Episode rewards, latest evaluation", xlabel="level")
