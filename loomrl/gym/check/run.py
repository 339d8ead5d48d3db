"""`loomrl envs check`: does an environment keep its contract? Every check runs in a process that can be killed."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Self

from loomrl.errors import ConfigError, unknown
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.catalogue import make
from loomrl.gym.check.hostile import TEXTS
from loomrl.gym.check.report import Check, CheckReport

_PLAIN = ("settings", "tasks", "determinism", "oracle", "rewards")
CHECKS = ("contract", *_PLAIN, "opponents", "hostile", "sandbox")
"""The checks by name. `contract` always runs first; if it fails, no other runs. `sandbox` applies to some only."""
SILENCE_S = 30.0
"""Time limit of one episode of a check, after which its process is killed."""
STEP_LIMIT_S = 0.5
"""Time limit of one answer to hostile text."""
KILLS = 3
"""After this many hangs on hostile text, the rest is skipped."""
_HANG_FACTOR = 8


@dataclass(frozen=True, slots=True)
class Subject:
    """The data with which another process opens the environment, and the amount of play."""

    entry_point: str
    settings: Mapping[str, Any]
    share: float

    @classmethod
    def of(cls, environment: BaseEnvironment, share: float = 1.0) -> Self:
        """The subject that opens an environment like this one."""
        kind = type(environment)
        if kind.__module__ == "__main__" or "<" in kind.__qualname__:
            raise ConfigError(
                f"{kind.__module__}.{kind.__qualname__}: other processes cannot import it. "
                "Put the class at the top level of a module."
            )
        return cls(f"{kind.__module__}:{kind.__qualname__}", environment.settings.model_dump(mode="json"), share)


Watch = Callable[[Check], None]


def check_environment(
    target: str | type[BaseEnvironment],
    settings: Mapping[str, Any] | None = None,
    *,
    only: Sequence[str] = CHECKS,
    step_limit_s: float = STEP_LIMIT_S,
    share: float = 1.0,
    watch: Watch = lambda check: None,
) -> CheckReport:
    """Check an environment given by id or class. Raises only if it cannot be created.

    `share` is the part of the oracle's and the opponents' episodes, and of the attacks, that is tried. `watch` is told
    of every piece of the work as it is done.
    """
    for name in only:
        if name not in CHECKS:
            raise ConfigError("check " + unknown("name", name, CHECKS))
    environment = make(target, settings or {}) if isinstance(target, str) else target(settings)
    subject = Subject.of(environment, share)
    name = environment.name or type(environment).__name__
    return CheckReport(name, environment.version, tuple(_checks(subject, only, step_limit_s, watch)))


def _checks(subject: Subject, only: Sequence[str], step_limit_s: float, watch: Watch) -> Iterator[Check]:
    contract = _one(subject, "contract")
    yield contract
    if not contract.passed:
        return
    found = {check.name: check for check in _all(subject, [name for name in _PLAIN if name in only], watch)}
    if "determinism" in found and found["determinism"].passed:
        found["determinism"] = _compare_processes(subject, found["determinism"])
    yield from found.values()
    if "opponents" in only:
        hacks = [f"hack {index}" for index in range(int(contract.figures["hacks"]))]
        random, constant, *tried = _all(subject, ["random", "constant", *hacks], watch)
        yield from (random, constant, _summary(tried))
    if "hostile" in only:
        yield _hostile(subject, step_limit_s)
    if "sandbox" in only and contract.figures["sandboxed"]:
        yield _one(subject, "sandbox")


def _summary(hacks: list[Check]) -> Check:
    """The checks of all hacks as one."""
    faults = [f"{check.name}: {check.detail}" for check in hacks if not check.passed]
    worst = max((check.figures.get("worst_family", 0.0) for check in hacks), default=0.0)
    episodes = sum(check.figures.get("episodes", 0) for check in hacks)
    figures = {"hacks": len(hacks), "worst_family": worst, "episodes": episodes}
    detail = f"{len(hacks)} ways, mean success in the worst family {worst:.3f}; {episodes:.0f} episodes"
    return Check("hacking", not faults, "; ".join(faults[:3]) or detail, figures)


def _compare_processes(subject: Subject, check: Check) -> Check:
    """Replay in processes with different hash seeds, where sets and hashes have another order."""
    first, second = (_one(subject, "fingerprint", hash_seed=seed) for seed in (1, 2))
    if not (first.passed and second.passed):
        return Check("determinism", False, first.detail if not first.passed else second.detail)
    ours, theirs = json.loads(first.detail), json.loads(second.detail)
    for case, episode in ours.items():
        if episode != theirs[case]:
            return Check(
                "determinism",
                False,
                f"{case}: the same task differs in a process with another PYTHONHASHSEED: "
                f"{_difference(episode, theirs[case])}. Sort what comes out of a set, and do not use hash().",
            )
    return check


def _difference(ours: str, theirs: str) -> str:
    start = next((index for index, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), 0)
    span = slice(max(0, start - 20), start + 40)
    return f"…{ours[span]!r} and …{theirs[span]!r}"


def _hostile(subject: Subject, step_limit_s: float) -> Check:
    """All hostile texts; a process that hangs on one is killed, and a fresh one continues with the next."""
    jobs = [f"hostile {name}" for name in TEXTS]
    faults, slowest = [], 0.0
    kills = 0
    while jobs and kills < KILLS:
        probe = _Probe(subject, jobs, silence_s=step_limit_s * _HANG_FACTOR, step_limit_s=step_limit_s)
        for check in probe.checks():
            jobs.pop(0)
            slowest = max(slowest, check.figures.get("slowest_s", 0.0))
            kills += "died" in check.figures
            if not check.passed:
                faults.append(check.detail)
    if jobs:
        faults.append(f"{kills} hangs are enough: {len(jobs)} more texts were not tried")
    if faults:
        return Check("hostile", False, "; ".join(faults[:4]) + (f"; and {len(faults) - 4} more" if faults[4:] else ""))
    detail = f"{len(TEXTS)} kinds of hostile text got a typed answer, the slowest after {slowest * 1000:.0f} ms"
    return Check("hostile", True, detail, {"slowest_s": slowest})


def _one(subject: Subject, job: str, *, hash_seed: int = 0) -> Check:
    (check,) = _Probe(subject, [job], silence_s=SILENCE_S, hash_seed=hash_seed).checks()
    return check


def _all(subject: Subject, jobs: list[str], watch: Watch) -> Iterator[Check]:
    """Every job's check; one that crashes or hangs its process fails, and a fresh process continues after it."""
    while jobs:
        for check in _Probe(subject, jobs, silence_s=SILENCE_S).checks():
            watch(check)
            yield check
            jobs = jobs[1:]


class _Probe:
    """A process that runs `jobs` in order, and is killed if it reports nothing for `silence_s`."""

    def __init__(
        self,
        subject: Subject,
        jobs: Sequence[str],
        *,
        silence_s: float,
        step_limit_s: float = STEP_LIMIT_S,
        hash_seed: int = 0,
    ) -> None:
        self._jobs = tuple(jobs)
        self._silence_s = silence_s
        self._request = json.dumps(
            {
                "entry_point": subject.entry_point,
                "settings": dict(subject.settings),
                "jobs": list(jobs),
                "step_limit_s": step_limit_s,
                "share": subject.share,
            }
        )
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path),
            "PYTHONHASHSEED": str(hash_seed),
        }

    def checks(self) -> Iterator[Check]:
        """The jobs' checks in order, up to the first that ends the process, which fails."""
        command = [sys.executable, "-m", "loomrl.gym.check.child", self._request]
        lines: queue.Queue[str] = queue.Queue()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._environment) as process:
            reader = threading.Thread(target=_pass_on, args=(process.stdout, lines))
            reader.start()
            try:
                yield from self._read(process, lines)
            finally:
                process.kill()
                reader.join()

    def _read(self, process: subprocess.Popen[str], lines: "queue.Queue[str]") -> Iterator[Check]:
        place, patience_s = "the start", SILENCE_S
        for job in self._jobs:
            while True:
                try:
                    line = lines.get(timeout=patience_s)
                except queue.Empty:
                    yield _death(job, f"{place}: no answer within {patience_s:g} s, killed")
                    return
                if not line:
                    yield _death(job, f"{place}: the process died (exit code {process.wait()})")
                    return
                message = json.loads(line)
                if "at" not in message:
                    break
                place, patience_s = message["at"], self._silence_s
            yield Check(**message)


def _death(job: str, detail: str) -> Check:
    name = "hostile" if job.startswith("hostile") else job
    return Check(name, False, detail, {"died": 1.0})


def _pass_on(stream: IO[str], lines: "queue.Queue[str]") -> None:
    """Every line, then an empty one."""
    for line in stream:
        lines.put(line)
    lines.put("")
