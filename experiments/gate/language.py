"""The gate of language policies: both parties play the same fresh tasks, and answer the same probes."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loomrl.config import EvaluationConfig, LanguagePolicy, OpenAIPolicy, PolicyChoice, RolloutConfig
from loomrl.config.rewards import JudgeModel
from loomrl.config.suite import Benchmark, LanguageSuite, PairProbing, ProbeLimits
from loomrl.experiments.gate.cost import memory_of, side_by_side
from loomrl.experiments.gate.party import Party
from loomrl.experiments.policies import find_policy, meet, open_policy
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.held_out import HeldOut, draw_held_out
from loomrl.gym.judge import Inquiry, OpenAIJudgeConfig, open_judge
from loomrl.gym.policy import PolicyFactory
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.registry import Registry
from loomrl.gym.task_mixture import TaskMixture, gather, resolve_id
from loomrl.named import named
from loomrl.release.gate.benchmark import BenchmarkScores, refuse_blind
from loomrl.release.gate.check import Example, GateCheck
from loomrl.release.gate.cost import cost
from loomrl.release.gate.detector import QUESTIONS, RULES, Detector, decision
from loomrl.release.gate.probe import Probe, make_probe
from loomrl.release.gate.safety import Outcomes
from loomrl.store import LoomDB
from loomrl.telemetry.progress import progress
from loomrl.types import End, Failure, Message, Source, Task, Trajectory

PROBES = "loomrl.release.gate.probe:ProbeEnvironment"
MOST_EXAMPLES = 5
CHALLENGER = "challenger"
BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """Everything that was played for a verdict."""

    scores: tuple[BenchmarkScores, ...]
    safety: tuple[GateCheck, ...]
    cost: tuple[GateCheck, ...]
    snapshots: Mapping[str, str]
    """`Name@version` of each environment → its snapshot."""


def play_language(
    suite: LanguageSuite, challenger: Party, baseline: Party | None, db: LoomDB, *, seed: int
) -> SuiteResult:
    """Play the suite; a ConfigError before the first task if its thresholds cannot be met."""
    choices = {CHALLENGER: choice_of(suite, challenger, db)}
    if baseline is not None:
        choices[BASELINE] = choice_of(suite, baseline, db)
    for choice in choices.values():
        meet(choice)
    record = Registry(db).record
    mixtures = [gather([benchmark.environment], None, record) for benchmark in suite.benchmarks]
    if suite.regression is not None and baseline is not None:
        sizes = Counter(name for one, mixture in zip(suite.benchmarks, mixtures, strict=True)
                        for name in _families(mixture, one, seed))  # fmt: skip
        refuse_blind(sizes, suite.regression.margin, error_rate=suite.error_rate, is_binary=True)
    memory = memory_of(suite, {CHALLENGER: challenger, BASELINE: baseline}, db)
    probes = record(resolve_id(PROBES))
    playing = _Playing(suite, choices, seed, probes[0].partition("@")[2], memory)
    scores, safety, costs = asyncio.run(playing.all(mixtures))
    snapshots = {name: snapshot for mixture in mixtures for name, snapshot in mixture.snapshots.items()}
    return SuiteResult(scores, safety, costs, snapshots | {probes[0]: probes[1]})


def choice_of(suite: LanguageSuite, party: Party, db: LoomDB) -> PolicyChoice:
    """The policy with the suite's sampling."""
    choice = find_policy(party.key, db, temperature=suite.temperature, trust_remote_code=suite.trust_remote_code).choice
    return shortened(suite, choice)


def shortened(suite: LanguageSuite, choice: PolicyChoice) -> PolicyChoice:
    """The policy with answers no longer than the suite's."""
    if suite.max_tokens is not None and isinstance(choice, LanguagePolicy | OpenAIPolicy):
        fewest = min(suite.max_tokens, choice.sampling.max_tokens)
        return choice.model_copy(update={"sampling": choice.sampling.model_copy(update={"max_tokens": fewest})})
    return choice


def _families(mixture: TaskMixture, benchmark: Benchmark, seed: int) -> list[str]:
    return [
        f"{draw.family.environment}/{draw.family.name}"
        for draw in draw_held_out(mixture, evaluation_of(benchmark, seed))
    ]


def evaluation_of(benchmark: Benchmark, seed: int) -> EvaluationConfig:
    """The tasks of a benchmark in a verdict of this seed."""
    return EvaluationConfig(episodes=benchmark.episodes, levels=benchmark.levels, seed=seed)


def tasks_of(benchmark: Benchmark, mixture: TaskMixture, choice: PolicyChoice, *, seed: int, name: str) -> HeldOut:
    """The tasks of a benchmark for one of the parties."""
    return HeldOut(mixture, evaluation_of(benchmark, seed), run="gate", name=name, policy=choice)


@dataclass(slots=True)
class _Playing:
    """Plays a suite in one event loop, in which each policy is opened once."""

    suite: LanguageSuite
    choices: Mapping[str, PolicyChoice]
    seed: int
    probe_version: str
    memory: Mapping[str, float]
    opened: dict[str, PolicyFactory] = field(default_factory=dict)

    async def all(
        self, mixtures: Sequence[TaskMixture]
    ) -> tuple[tuple[BenchmarkScores, ...], tuple[GateCheck, ...], tuple[GateCheck, ...]]:
        """Scores of the benchmarks, and the checks of safety and cost."""
        async with LoomRLGym(RolloutConfig(), open_policy=self._open) as gym:
            pairs = zip(self.suite.benchmarks, mixtures, strict=True)
            scores = [await self._scores(gym, one, mixture) for one, mixture in pairs]
            safety = await self._safety(gym)
        costs = await self._cost(mixtures[0])
        return tuple(scores), tuple(safety), tuple(costs)

    async def _cost(self, mixture: TaskMixture) -> list[GateCheck]:
        limits = self.suite.cost
        if limits is None:
            return []
        settings = EvaluationConfig(episodes=limits.answers, levels=self.suite.benchmarks[0].levels, seed=self.seed)
        policies = {name: self._open(choice) for name, choice in self.choices.items()}
        measured = await side_by_side(policies, mixture, settings)
        told = {name: replace(each, memory_mb=self.memory.get(name)) for name, each in measured.items()}
        return cost(limits, told[CHALLENGER], told.get(BASELINE), error_rate=self.suite.error_rate)

    def _open(self, choice: PolicyChoice) -> PolicyFactory:
        key = choice.model_dump_json()
        if key not in self.opened:
            self.opened[key] = open_policy(choice)
        return self.opened[key]

    # -- benchmarks -------------------------------------------------------------------------------------------------

    async def _scores(self, gym: LoomRLGym, benchmark: Benchmark, mixture: TaskMixture) -> BenchmarkScores:
        played = {name: await self._attempts(gym, benchmark, mixture, name) for name in self.choices}
        mine = played[CHALLENGER]
        theirs = played.get(BASELINE)
        every = [*mine, *(theirs or ())]
        return BenchmarkScores(
            benchmark=next(iter(mixture.members)),
            families=[trajectory.task.family for trajectory in mine],
            challenger=[score_of(trajectory) for trajectory in mine],
            baseline=None if theirs is None else [score_of(trajectory) for trajectory in theirs],
            failures=Counter(_kind(trajectory.failure) for trajectory in every if trajectory.failure),
            examples=[_example(t, f"success {t.reward.success:g}") for t in mine if score_of(t) == 0][:MOST_EXAMPLES],
        )

    async def _attempts(
        self, gym: LoomRLGym, benchmark: Benchmark, mixture: TaskMixture, name: str
    ) -> list[Trajectory]:
        tasks = tasks_of(benchmark, mixture, self.choices[name], seed=self.seed, name=name)
        with progress(f"{name}: {next(iter(mixture.members))}", len(tasks)) as report:
            for wave in tasks.waves():
                async for trajectory in gym.run(wave):
                    tasks.take(trajectory)
                    report(tasks.done)
        return tasks.trajectories

    # -- safety -----------------------------------------------------------------------------------------------------

    async def _safety(self, gym: LoomRLGym) -> list[GateCheck]:
        checks = []
        for kind in type(self.suite.safety).model_fields:
            probing = getattr(self.suite.safety, kind)
            if probing is None:
                continue
            is_pair = isinstance(probing, PairProbing)
            answers = await self._answers(gym, kind, 2 * probing.pairs if is_pair else probing.prompts)
            judged = _judge_pairs(answers) if is_pair else await _judge_answers(kind, answers, probing)
            rates = {"error_rate": self.suite.error_rate, "may_fail": self.suite.may_fail}
            checks.append(judged.check(f"safety.{kind}", probing.at_most, **rates))
        return checks

    async def _answers(self, gym: LoomRLGym, kind: str, count: int) -> list[Trajectory]:
        plans = []
        for index in range(count):
            task = Task("GateProbe", self.probe_version, kind, 1, 2 * self.seed + index)
            id = f"gate/{kind}/{index}"
            attempt = Attempt(id=id, task=task, group=id, source=Source.EVALUATION)
            plans.append(Plan(attempt=attempt, policy=self.choices[CHALLENGER], seed=id))
        found = {trajectory.id: trajectory async for trajectory in gym.run(plans)}
        return [found[plan.attempt.id] for plan in plans]


async def _judge_answers(kind: str, answers: Sequence[Trajectory], probing: ProbeLimits) -> Outcomes:
    """The flaws of these answers. A failed detector or judge gives no outcome, like a failed attempt."""
    outcomes: list[Example | None] = []
    failures: Counter[str] = Counter()
    opinion = _opinion(kind, probing)
    for answer in answers:
        if answer.failure is not None:
            failures[_kind(answer.failure)] += 1
            continue
        probe = make_probe(kind, answer.task.seed)
        try:
            flaw = await opinion(probe, answer.turns[-1].action)
        except Exception as error:  # noqa: BLE001 - the boundary to detectors of others
            failures[f"detector: {type(error).__name__}: {error!s:.200}"] += 1
            continue
        outcomes.append(None if flaw is None else _example(answer, flaw))
    return Outcomes(outcomes=outcomes, failures=failures)


def _opinion(kind: str, probing: ProbeLimits) -> Callable[[Probe, str], Awaitable[str | None]]:
    if probing.judge is not None:
        return _asking(kind, probing.judge)
    rule: Detector = RULES[kind]
    if probing.detector is not None:
        rule = named(probing.detector, what=f"safety.{kind}.detector")

    async def detect(probe: Probe, answer: str) -> str | None:
        return rule(probe, answer)

    return detect


def _asking(kind: str, model: JudgeModel) -> Callable[[Probe, str], Awaitable[str | None]]:
    judge = open_judge(OpenAIJudgeConfig(url=model.url, model=model.model, key_variable=model.key_variable))

    async def ask(probe: Probe, answer: str) -> str | None:
        conversation = (*probe.messages, Message("assistant", answer))
        opinion = await judge.ask(Inquiry(QUESTIONS[kind], conversation, ("no", "yes")))
        return None if opinion.choice == "yes" else f"{opinion.who}: {opinion.reason}"

    return ask


def _judge_pairs(answers: Sequence[Trajectory]) -> Outcomes:
    """The pairs whose decisions differ."""
    outcomes: list[Example | None] = []
    failures: Counter[str] = Counter()
    for one, other in zip(answers[::2], answers[1::2], strict=True):
        broken = one.failure or other.failure
        if broken is not None:
            failures[_kind(broken)] += 1
            continue
        said = [decision(each.turns[-1].action) for each in (one, other)]
        differ = said[0] != said[1]
        reason = f"{said[0] or 'no decision'}, but {said[1] or 'no decision'} for: {_prompt(other)}"
        outcomes.append(_example(one, reason) if differ else None)
    return Outcomes(outcomes=outcomes, failures=failures)


def score_of(trajectory: Trajectory) -> float | None:
    """Its success; None if it failed."""
    return None if trajectory.end is End.FAILED else trajectory.reward.success


def _kind(failure: Failure) -> str:
    return f"{failure.boundary}: {failure.kind}: {failure.message:.200}"


def _example(trajectory: Trajectory, reason: str) -> Example:
    return Example(prompt=_prompt(trajectory), answer=trajectory.turns[-1].action[:2000], reason=reason)


def _prompt(trajectory: Trajectory) -> str:
    return "\n".join(f"{message.role}: {message.text}" for message in trajectory.turns[0].observation)[:2000]
