"""`loomrl envs attack`: the parent process. Jobs run in processes that can be killed; what is proved goes to a file."""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from loomrl.errors import ConfigError
from loomrl.gym.attack.attempt import REMEDIES, RULES, Finding
from loomrl.gym.attack.hunt import STAGES
from loomrl.gym.attack.kept import file_of
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.catalogue import make
from loomrl.gym.check.run import ProbeProcess, Subject
from loomrl.gym.task_mixture import resolve_id

SILENCE_S = 45.0
"""A job that tries one attack for longer is killed, and goes on behind that attack."""
LEARN_SILENCE_S = 240.0
"""The same for the stage that trains: its imports take a minute on a busy machine."""
DEATHS = 6
"""Deaths of a job's process before the rest of it is left out."""
PROCESSES = 2
LEARNER = "loomrl.experiments.attacker:learn"
"""Named, because no module of this room may import what trains."""
SHARES = {"spoil": 1.0, "more": 1.0, "blind": 3.0, "execute": 0.3, "search": 4.0, "learn": 3.0}
"""Parts of a family's time."""


@dataclass(frozen=True, slots=True)
class AttackReport:
    """Everything that was tried on an environment, and what is proved."""

    environment: str
    version: str
    file: str
    """The file for what is proved."""
    findings: tuple[Finding, ...]
    bouts: int
    tried: int
    seconds: float
    without_oracle: tuple[str, ...]
    left_out: tuple[str, ...]
    """Jobs that died or found no time."""
    deadly: tuple[str, ...] = ()
    """Attacks that end or hang the process."""
    unfinished: int = 0
    """The number of jobs that died, or found no time or too little."""

    @property
    def passed(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        lines = [line for finding in self.findings for line in describe(finding)]
        lines += [f"not finished: {each}" for each in self.left_out]
        lines += [f"ends or hangs the process: {each:.120}" for each in self.deadly]
        if self.without_oracle:
            lines.append(f"without an oracle, so without changed answers: {', '.join(self.without_oracle)}")
        found = f"{len(self.findings)} found" if self.findings else "nothing found"
        if self.unfinished:
            found += f"; {self.unfinished} jobs had no time, or too little"
        played = f"{self.tried} attacks, {self.bouts} episodes, {self.seconds:.0f} s"
        return "\n".join([*lines, f"{self.environment} {self.version}: {found}; {played}."])


def describe(finding: Finding) -> Iterator[str]:
    """The lines of a finding in the report."""
    attack = finding.attack
    moves = ", ".join(repr(move)[:120] for move in attack.moves[:4]) or "-"
    level, seed = finding.task
    yield f"FOUND {finding.family}: {RULES[finding.rule]}"
    yield f"      attack    {attack.kind} {moves}"
    if finding.example:
        yield f"      example   level {level}, seed {seed}: {' ⏎ '.join(finding.example)[:160]!r}"
    figures = f"at least {finding.low:.2f}; allowed {finding.floor:.2f}"
    yield f"      paid      {finding.value:.2f} on {finding.tasks} fresh tasks, {figures}"
    yield f"      remedy    {REMEDIES[finding.rule]}"


Watch = Callable[[str], None]


def attack_environment(
    target: str | type[BaseEnvironment],
    settings: Mapping[str, Any] | None = None,
    *,
    seconds: float = 600.0,
    families: Sequence[str] = (),
    watch: Watch = lambda line: None,
) -> AttackReport:
    """Attack an environment for this long. Raises only if it cannot be created."""
    environment = make(resolve_id(target), settings or {}) if isinstance(target, str) else target(settings)
    if environment.player is not None:
        raise ConfigError(f"{environment.name}: its program plays whole attempts; only turns can be attacked.")
    for family in families:
        if family not in environment.families:
            raise ConfigError(f"families={family!r}: {environment.name} has {', '.join(environment.families)}.")
    work = _Work(Subject.of(environment), families or environment.families, seconds, watch)
    with ThreadPoolExecutor(PROCESSES) as pool:
        for done in [pool.submit(work.serve) for _ in range(PROCESSES)]:
            done.result()
    return work.report(environment)


class _Work:
    """The jobs of an attack, shared by the processes that do them."""

    def __init__(self, subject: Subject, families: Sequence[str], seconds: float, watch: Watch) -> None:
        self._subject = subject
        self._first = families[0]
        self._jobs = list(itertools.product(STAGES, families))
        self._weight = sum(SHARES[stage] for stage, _ in self._jobs)
        self._began = 0.0
        self._seconds = seconds
        self._watch = watch
        self._lock = threading.Lock()
        self._serving = 0
        self._findings: list[Finding] = []
        self._bouts = 0
        self._tried = 0
        self._without: dict[str, None] = {}
        self._left_out: list[str] = []
        self._untried: list[tuple[str, str]] = []
        self._deadly: list[str] = []

    def serve(self) -> None:
        """Do jobs until none is left."""
        with self._lock:
            self._serving += 1
        with ProbeProcess(self._subject) as probe:
            self._start(probe)
            while (job := self._next()) is not None:
                self._do(probe, *job)

    def _start(self, probe: ProbeProcess) -> None:
        """Start the process and open the first family; the time counts from then on."""
        request = {"stage": "start", "family": self._first, "seconds": self._seconds, "skip": [], "learner": ""}
        probe.check("attack " + json.dumps(request))
        with self._lock:
            self._began = self._began or time.monotonic()

    def _next(self) -> tuple[str, str, float] | None:
        with self._lock:
            left_s = self._seconds - (time.monotonic() - self._began)
            if not self._jobs:
                return None
            stage, family = self._jobs.pop(0)
            if left_s <= 0:
                self._untried.append((stage, family))
                return stage, family, 0.0
            share = left_s * self._serving * SHARES[stage] / max(self._weight, 1e-9)
            self._weight -= SHARES[stage]
            return stage, family, min(share, left_s)

    def _do(self, probe: ProbeProcess, stage: str, family: str, seconds: float) -> None:
        if seconds <= 0:
            return
        skip: list[str] = []
        ends = time.monotonic() + seconds
        for attempt in range(DEATHS):
            left_s = ends - time.monotonic()
            if attempt and left_s <= 0:
                break
            request = {"stage": stage, "family": family, "seconds": left_s, "skip": skip, "learner": LEARNER}
            job = "attack " + json.dumps(request)
            check = probe.check(job, silence_s=LEARN_SILENCE_S if stage == "learn" else SILENCE_S)
            if "died" not in check.figures:
                break
            if probe.place != job:  # else no attack had begun
                skip.append(probe.place)
        self._keep(stage, family, check.passed, check.detail, skip)

    def _keep(self, stage: str, family: str, passed: bool, detail: str, skip: list[str]) -> None:
        with self._lock:
            self._deadly += [f"{family}: {each}" for each in skip]
            if not passed:
                self._left_out.append(f"{stage} {family}: {detail}")
                return
            result = json.loads(detail)
            found = [Finding.read(each) for each in result["findings"]]
            self._findings += [each for each in found if each not in self._findings]
            self._bouts += result["bouts"]
            self._tried += result["tried"]
            if result["cut"]:
                self._left_out.append(f"{stage} {family}: its time ran out; give more --seconds")
            if not result["oracle"]:
                self._without[family] = None
            self._watch(f"{family}: {stage}, {result['tried']} attacks, {len(found)} found")

    def _late(self) -> Iterator[str]:
        """Stages that found no time, with the number of their families."""
        for stage in STAGES:
            families = [family for each, family in self._untried if each == stage]
            if families:
                shown = ", ".join(families[:3]) + (", …" if families[3:] else "")
                yield f"{stage}: no time for {len(families)} families ({shown}); give more --seconds"

    def report(self, environment: BaseEnvironment) -> AttackReport:
        """The report."""
        kept: dict[tuple[str, str], list[Finding]] = {}
        for finding in sorted(self._findings, key=lambda each: (each.family, each.rule, each.attack.size)):
            kept.setdefault((finding.family, finding.rule), []).append(finding)
        findings = tuple(finding for found in kept.values() for finding in found[:3])
        seconds = time.monotonic() - self._began
        return AttackReport(
            environment.name or type(environment).__name__,
            environment.version,
            str(file_of(environment)),
            findings,
            self._bouts,
            self._tried,
            seconds,
            tuple(self._without),
            (*self._left_out, *self._late()),
            tuple(dict.fromkeys(self._deadly)),
            len(self._left_out) + len(self._untried),
        )
