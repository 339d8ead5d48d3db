"""A verdict of the gate, concluded again from its scores, and a share of the scores themselves."""

import asyncio
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomrl.algorithms.language.again import RecordMismatch
from loomrl.config import Experiment, PolicyChoice, RolloutConfig
from loomrl.config.suite import Benchmark, LanguageSuite
from loomrl.errors import DataError
from loomrl.experiments.gate.judge import checks_of_scores
from loomrl.experiments.gate.language import CHALLENGER, score_of, shortened, tasks_of
from loomrl.experiments.gate.suite import parse_suite
from loomrl.experiments.policies import language_policy, open_policy
from loomrl.files import scratch
from loomrl.gym.memory import remembers
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.registry import Registry, snapshot_of
from loomrl.gym.task_mixture import TaskMixture, gather
from loomrl.release.gate.benchmark import BenchmarkScores, improvement
from loomrl.release.gate.check import CheckState, GateCheck, outcome_of, strategy_of
from loomrl.store import open_store
from loomrl.store.verdicts import StoredVerdict

BELIEVED = "the baseline's scores, safety, cost and origin are believed"


@dataclass
class VerdictAgain:
    """One verdict about a version whose model is in a folder."""

    verdict: StoredVerdict
    experiment: Experiment
    number: int
    model: Path
    share: float
    rng: random.Random
    checked: int = 0
    of: int = 0
    unchecked: str = BELIEVED

    def compare(self) -> Iterator[RecordMismatch]:
        """Everything in which the verdict differs from what follows from it and its version."""
        report = self.verdict.report
        suite = parse_suite(report["suite"], origin=self.verdict.id)
        if suite.sha256 != self.verdict.suite_hash:
            yield self._differs("the suite's hash is not that of its settings")
            return
        if "scores" not in report:
            self.unchecked = "the verdict is older than scores on record"
            return
        scores = [_scores(one, self.verdict.id) for one in report["scores"]]
        yield from self._conclude(report, suite, scores)
        if not isinstance(suite, LanguageSuite):
            raise DataError(f"verdict {self.verdict.id}: a suite for language is needed.")
        yield from self._play(suite, scores)

    def _conclude(
        self, report: Mapping[str, Any], suite: Any, scores: list[BenchmarkScores]
    ) -> Iterator[RecordMismatch]:
        """Checks from scores, and the outcome from checks."""
        recorded = {check["name"]: check for check in report["checks"]}
        for made in checks_of_scores(suite, scores):
            there = recorded.get(made.name)
            if there is None or _without_examples(json.loads(json.dumps(made.as_dict()))) != _without_examples(there):
                yield self._differs(f"{made.name}: the check on record does not follow from the scores")
        checks = [
            GateCheck(name=each["name"], state=CheckState(each["state"]), reason="", figures=each["figures"])
            for each in report["checks"]
        ]
        outcome = outcome_of(checks, needs_approval=bool(suite.approvers))
        if outcome is not self.verdict.outcome:
            yield self._differs(f"outcome {self.verdict.outcome} on record, {outcome} follows from its checks")
        found = improvement(scores, error_rate=suite.error_rate)
        strategy, share = strategy_of(outcome, found, checks)
        if report["strategy"] != {"name": strategy, "share": share}:
            yield self._differs("the strategy on record does not follow from the improvement")
        if report["improvement"] != (None if found is None else found.mean):
            yield self._differs("the improvement on record does not follow from the scores")

    def _play(self, suite: LanguageSuite, scores: list[BenchmarkScores]) -> Iterator[RecordMismatch]:
        """A share of the tasks, played again by the version."""
        for id, hash in self.verdict.report["environments"].items():
            if id.partition("@")[0] != "GateProbe" and snapshot_of(id).hash != hash:
                yield RecordMismatch("code", id, f"verdict {self.verdict.id} was given with another version of it")
                return
        choice = shortened(suite, language_policy(self.experiment, self.model, suite.temperature, self.number))
        with open_store(f"sqlite:///{scratch('verify')}/gate.db") as db:
            record = Registry(db).record
            for benchmark, recorded in zip(suite.benchmarks, scores, strict=True):
                mixture = gather([benchmark.environment], None, record)
                yield from self._benchmark(benchmark, mixture, choice, recorded)

    def _benchmark(
        self, benchmark: Benchmark, mixture: TaskMixture, choice: PolicyChoice, recorded: BenchmarkScores
    ) -> Iterator[RecordMismatch]:
        plans = tasks_of(benchmark, mixture, choice, seed=self.verdict.report["seed"], name=CHALLENGER).plans
        self.of += len(plans)
        if [plan.attempt.task.family for plan in plans] != list(recorded.families):
            yield self._differs(f"benchmark {recorded.benchmark}: its tasks are not those of its seed")
            return
        if any(remembers(member.environment) for member in mixture.members.values()):
            self.unchecked = "attempts with a memory of earlier ones"
            return
        count = max(1, round(self.share * len(plans)))
        drawn = sorted(self.rng.sample(range(len(plans)), min(count, len(plans))))
        self.checked += len(drawn)
        made: dict[str, float | None] = {}

        async def play() -> None:
            async with LoomRLGym(RolloutConfig(), open_policy=open_policy) as gym:
                async for attempt in gym.run([plans[at] for at in drawn]):
                    made[attempt.id] = score_of(attempt)

        asyncio.run(play())
        for at in drawn:
            score = made[plans[at].attempt.id]
            if score != recorded.challenger[at]:
                yield self._differs(f"task {at} of {recorded.benchmark}: score {recorded.challenger[at]}, made {score}")

    def _differs(self, what: str) -> RecordMismatch:
        return RecordMismatch("verdict", self.verdict.id, what)


def _scores(told: Mapping[str, Any], id: str) -> BenchmarkScores:
    try:
        return BenchmarkScores(**told)
    except TypeError as error:
        raise DataError(f"verdict {id}: its scores cannot be read: {error}.") from None


def _without_examples(check: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in check.items() if name != "examples"}
