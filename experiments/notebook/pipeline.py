"""A policy judged again and again, of language or of control, and the picture of how it got better."""

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
from matplotlib.figure import Figure

from loomrl.config import (
    ControlExperiment,
    EnvironmentConfig,
    EvaluationConfig,
    RolloutConfig,
    ScriptedPolicy,
)
from loomrl.control.environment import label
from loomrl.control.play import Scripted
from loomrl.errors import ConfigError
from loomrl.evaluation.report import Report, failures_in, judge, reasoning_words
from loomrl.evaluation.returns import ReturnReport
from loomrl.experiments.evaluate_control import RANDOM, judge_outcome, play_evaluation, play_named
from loomrl.experiments.notebook.agentic import environment_choice
from loomrl.experiments.policies import find_policy, open_policy
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.catalogue import find
from loomrl.gym.held_out import HeldOut
from loomrl.gym.manual import ManualEnvironment
from loomrl.gym.policy import OpenPolicy, Policy
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.synchronous import PrivateLoop
from loomrl.gym.task_mixture import gather
from loomrl.schema import merge
from loomrl.store import open_store
from loomrl.threshold import reaches
from loomrl.types import End, Trajectory

_log = logging.getLogger(__name__)

Act = Callable[[Any], Any]
"""A control policy: from observations to actions, many at once."""
RECORDS = "evaluations.jsonl"
UNASKED = "as no policy was given"
REACHED = 0.5
"""The success that a level must have to count as reached."""
CURVES: Mapping[str, tuple[str, float | None]] = {
    "reward": ("Episode reward", None),
    "completed": ("Completion rate", 1.0),
    "success": ("Success rate", 1.0),
    "reasoning": ("Reasoning, words", None),
    "level_reached": ("Level reached", 10.0),
    "steps": ("Steps of an episode", None),
}
"""Curves by their name in the records: a title, and the axis' end if fixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRecord:
    """One attempt in figures. What control environments do not have is None."""

    family: str
    reward: float
    steps: int
    level: int | None = None
    success: float | None = None
    completed: bool | None = None
    reasoning: int | None = None
    """Words said beside the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """One evaluation: its report, and every attempt that did not fail."""

    step: int
    report: Report | ReturnReport
    episodes: tuple[EpisodeRecord, ...]
    level_reached: int | None = None
    """The highest level that is solved in half of the attempts, with all below it; 0 where the lowest is not."""

    @property
    def episode_rewards(self) -> list[float]:
        """The reward of every attempt."""
        return [episode.reward for episode in self.episodes]

    def record(self) -> dict[str, Any]:
        """It as JSON values, as a line of the log has it."""
        report = self.report
        return {
            "step": self.step,
            "policy": report.policy,
            **(self._successes(report) if isinstance(report, Report) else self._returns(report)),
            "report": report.as_dict(),
            "episodes": [asdict(episode) for episode in self.episodes],
        }

    def _successes(self, report: Report) -> dict[str, Any]:
        overall = report.overall
        return {
            "reward": overall.reward,
            "completed": overall.completed,
            "success": overall.success.mean,
            "reasoning": overall.reasoning,
            "level_reached": self.level_reached,
            "failed": report.failed,
        }

    def _returns(self, report: ReturnReport) -> dict[str, Any]:
        return {"reward": report.overall.reward.mean, "steps": report.overall.steps}


class EvaluationPipeline:
    """`EvaluationPipeline("Math", log_dir="evals").evaluate(num_episodes=100, policy="RUN/40")`, then the next version.

    `env` is an environment, or the name of one; attempts are made in fresh ones of its kind. The tasks are held out:
    no training draws them, and every evaluation has the same. A line for each is added to `log_dir`, where a later
    pipeline resumes. A Gymnasium environment, by class or by a name such as "CartPole-v1", is one of control: whole
    episodes are played, and their returns judged. Without a policy the oracle is judged, in control one that acts at
    random, and the report is called so.
    """

    def __init__(
        self,
        env: str | type | BaseEnvironment | ManualEnvironment,
        log_dir: str | Path = "runs/evaluation",
        *,
        levels: Sequence[int] = tuple(range(1, 11)),
        concurrency: int = 64,
        store_url: str = "sqlite:///loom.db",
    ) -> None:
        self._log = Path(log_dir) / RECORDS
        self._judging: _Text | _Control
        if not isinstance(env, BaseEnvironment | ManualEnvironment) and is_control(env):
            self._judging = _Control(env, store_url)
        else:
            if isinstance(env, type):
                raise ConfigError(f"env={env.__qualname__}: give an environment of text by name, or as an object.")
            self._judging = _Text(env, tuple(levels), RolloutConfig(concurrency=concurrency), store_url)

    def evaluate(
        self, num_episodes: int = 100, *, policy: str | Policy | Act | None = None, step: int | None = None
    ) -> PipelineResult:
        """Judge a policy, your own or what `loomrl evaluate --policy` takes. `step` is its place on the curve.

        One of your own has `async def act(conversation)`; in control it is a function from observations to actions.
        """
        name = policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__)
        if policy is None:
            policy = self._judging.unasked
            name = f"{policy}, {UNASKED}"
            _log.warning(
                "EvaluationPipeline: no policy was given, so this judges %s. Set policy=.",
                "the oracle" if policy == "oracle" else "actions at random",
            )
        judged = self._judging.judge(name, num_episodes, policy)
        result = replace(judged, step=len(self.history()) if step is None else step)
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
        return _draw(history, Path(path), self._judging.title)


class _Text:
    """Judges attempts at held-out tasks."""

    unasked = "oracle"

    def __init__(
        self, env: str | BaseEnvironment | ManualEnvironment, levels: tuple[int, ...], rollout: RolloutConfig, url: str
    ) -> None:
        self._mixture = gather([_config(env)], None, lambda id: (find(id).id, ""))
        self._levels = levels
        self._rollout = rollout
        self._store_url = url
        self.title = next(iter(self._mixture.members))

    def judge(self, name: str, episodes: int, policy: Any) -> PipelineResult:
        """The result of so many attempts."""
        settings = EvaluationConfig(episodes=episodes, levels=self._levels)
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
        return PipelineResult(
            step=0,
            report=report,
            episodes=tuple(_episode(attempt) for attempt in attempts if attempt.end is not End.FAILED),
            level_reached=_level_reached(report),
        )

    async def _play(self, settings: EvaluationConfig, policy: Any) -> list[Trajectory]:
        if isinstance(policy, str):
            with open_store(self._store_url) as db:
                choice = find_policy(policy, db).choice
                opened: OpenPolicy = open_policy
        else:
            choice = ScriptedPolicy()
            opened = _always(policy)
        held_out = HeldOut(self._mixture, settings, run=uuid.uuid4().hex, name="evaluated", policy=choice)
        async with LoomRLGym(self._rollout, open_policy=opened) as gym:
            for wave in held_out.waves():
                async for trajectory in gym.run(wave):
                    held_out.take(trajectory)
        return held_out.trajectories


class _Control:
    """Judges whole episodes by their returns."""

    unasked = RANDOM

    def __init__(self, env: str | type, store_url: str) -> None:
        tree = {"name": "evaluation", "environment": environment_choice(env), "store_url": store_url}
        self._experiment = ControlExperiment.parse(merge(ControlExperiment.defaults(), tree), origin="env")
        self.title = label(self._experiment.environment)

    def judge(self, name: str, episodes: int, policy: Any) -> PipelineResult:
        """The result of so many episodes."""
        experiment = self._experiment.override({"evaluation.episodes": episodes})
        if isinstance(policy, str):
            with open_store(experiment.store_url) as db:
                outcome = play_named(policy, experiment, db)
        else:
            outcome = play_evaluation(Scripted(policy), experiment)
        return PipelineResult(
            step=0,
            report=judge_outcome(name, outcome, experiment),
            episodes=tuple(
                EpisodeRecord(family=self.title, reward=float(reward), steps=int(count))
                for reward, count in zip(outcome.returns, outcome.lengths, strict=True)
            ),
        )


def is_control(env: str | type) -> bool:
    """True for a control environment: a class of Gymnasium's or PettingZoo's, or a name that Gymnasium knows."""
    if isinstance(env, type):
        return not issubclass(env, BaseEnvironment)
    return isinstance(env, str) and env in gymnasium.registry and not env.startswith("loomrl/")


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
        steps=len(attempt.turns),
    )


def _level_reached(report: Report) -> int:
    reached = 0
    for name, score in sorted(report.by_level.items()):
        if not reaches(score.success.mean or 0.0, REACHED):
            break
        reached = int(name.rpartition("/")[2])
    return reached


def _always(policy: Policy) -> OpenPolicy:
    """Opens the given policy for every choice."""
    return lambda choice: lambda environment, rng: policy


def _draw(history: Sequence[Mapping[str, Any]], path: Path, title: str) -> Path:
    """Draw all evaluations in the format of the path's suffix: png, svg or pdf."""
    shown = [name for name in CURVES if any(record.get(name) is not None for record in history)]
    columns = -(-(len(shown) + 1) // 2)
    figure = Figure(figsize=(4 * columns, 7), layout="constrained")
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in formats:
        raise ConfigError(f"path={str(path)!r}: give it one of these endings: {', '.join(sorted(formats))}.")
    failed = max(record.get("failed", 0.0) for record in history)
    left_out = f"; of one, {failed:.0%} failed and are left out" if failed else ""
    policies = ", ".join(dict.fromkeys(record["report"]["policy"] for record in history))
    figure.suptitle(f"{title}: {len(history)} evaluations of {policies:.100}{left_out}")
    panels = list(figure.subplots(2, columns).flat)
    for panel, name in zip(panels, shown, strict=False):
        heading, top = CURVES[name]
        panel.plot([record["step"] for record in history], [record.get(name) for record in history], marker="o")
        panel.set(title=heading, xlabel="step")
        if top is not None:
            panel.set_ylim(-0.05 * top, 1.05 * top)
    _last_rewards(panels[len(shown)], history[-1])
    for empty in panels[len(shown) + 1 :]:
        empty.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _last_rewards(panel: Any, record: Mapping[str, Any]) -> None:
    """The rewards of the latest evaluation's episodes, by level where there are levels."""
    if record["episodes"][0].get("level") is None:
        panel.hist([episode["reward"] for episode in record["episodes"]], bins=20)
        panel.set(title="Episode rewards, latest evaluation", xlabel="reward", ylabel="episodes")
        return
    levels = sorted({episode["level"] for episode in record["episodes"]})
    rewards = [[e["reward"] for e in record["episodes"] if e["level"] == level] for level in levels]
    panel.boxplot(rewards, tick_labels=levels)
    panel.set(title="Episode rewards, latest evaluation", xlabel="level")
