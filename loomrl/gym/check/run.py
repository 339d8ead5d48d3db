"""`loomrl envs check`: does an environment keep its contract? Every check runs in a process that can be killed."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import IO, Any, Self

from loomrl.config.placement import PER_CORE
from loomrl.errors import ConfigError, RegistryError, unknown
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.catalogue import make
from loomrl.gym.check.hostile import TEXTS
from loomrl.gym.check.probe import CheckReport, EnvironmentCheck, summarize
from loomrl.gym.task_mixture import resolve_id

_PLAIN = ("settings", "tasks", "determinism", "oracle", "rewards")
CHECKS = ("contract", *_PLAIN, "opponents", "attacks", "hostile", "sandbox")
"""The checks by name. `contract` always runs first; if it fails, no other runs. `attacks` and `sandbox` apply to
some environments only.
"""
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


Watch = Callable[[EnvironmentCheck], None]


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
    kept = _kept_attacks(environment) if "attacks" in only else []
    with ProbeProcess(subject, step_limit_s=step_limit_s) as probe:
        return CheckReport(name, environment.version, tuple(_checks(probe, only, step_limit_s, kept, watch)))


def _kept_attacks(environment: BaseEnvironment) -> list[str]:
    """The attacks that `loomrl envs attack` has proved, as jobs."""
    from loomrl.gym.attack.kept import file_of, read

    file = file_of(environment)
    return [f"replay {json.dumps(finding.data())}" for finding in read(file)] if file.exists() else []


def _checks(
    probe: "ProbeProcess", only: Sequence[str], step_limit_s: float, kept: Sequence[str], watch: Watch
) -> Iterator[EnvironmentCheck]:
    def run_job(job: str) -> EnvironmentCheck:
        check = probe.check(job)
        watch(check)
        return check

    contract = probe.check("contract")
    yield contract
    if not contract.passed:
        return
    for name in _PLAIN:
        if name in only:
            check = run_job(name)
            yield _compare_processes(probe, check) if name == "determinism" and check.passed else check
    if "opponents" in only:
        yield from (run_job("random"), run_job("constant"))
        yield _summary([run_job(f"hack {index}") for index in range(int(contract.figures["hacks"]))])
    if kept:
        yield _attacks([run_job(job) for job in kept])
    if "hostile" in only:
        yield _hostile(probe, step_limit_s)
    if "sandbox" in only and contract.figures["sandboxed"]:
        yield probe.check("sandbox")


def _summary(hacks: list[EnvironmentCheck]) -> EnvironmentCheck:
    """The checks of all hacks as one."""
    faults = [f"{check.name}: {check.detail}" for check in hacks if not check.passed]
    worst = max((check.figures.get("worst_family", 0.0) for check in hacks), default=0.0)
    episodes = sum(check.figures.get("episodes", 0) for check in hacks)
    figures = {"hacks": len(hacks), "worst_family": worst, "episodes": episodes}
    detail = f"{len(hacks)} ways, mean success in the worst family {worst:.3f}; {episodes:.0f} episodes"
    return EnvironmentCheck("hacking", not faults, "; ".join(faults[:3]) or detail, figures)


def _attacks(replayed: list[EnvironmentCheck]) -> EnvironmentCheck:
    """The kept attacks as one check."""
    faults = [check.detail for check in replayed if not check.passed]
    figures = {"attacks": len(replayed), "paid": len(faults)}
    return EnvironmentCheck("attacks", not faults, summarize(faults) or f"{len(replayed)} are no longer paid", figures)


def _compare_processes(probe: "ProbeProcess", check: EnvironmentCheck) -> EnvironmentCheck:
    """Replay in processes with different hash seeds, where sets and hashes have another order."""
    with probe.sibling(hash_seed=1) as sibling:
        first, second = (each.check("fingerprint") for each in (probe, sibling))
    if not (first.passed and second.passed):
        return EnvironmentCheck("determinism", False, first.detail if not first.passed else second.detail)
    ours = json.loads(first.detail)
    theirs = json.loads(second.detail)
    for case, episode in ours.items():
        if episode != theirs[case]:
            return EnvironmentCheck(
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


def _hostile(probe: "ProbeProcess", step_limit_s: float) -> EnvironmentCheck:
    """All hostile texts; a process that hangs on one is killed, and a fresh one continues with the next."""
    faults = []
    slowest = 0.0
    kills = 0
    for tried, name in enumerate(TEXTS):
        if kills == KILLS:
            faults.append(f"{kills} hangs are enough: {len(TEXTS) - tried} more texts were not tried")
            break
        check = probe.check(f"hostile {name}", silence_s=step_limit_s * _HANG_FACTOR)
        slowest = max(slowest, check.figures.get("slowest_s", 0.0))
        kills += "died" in check.figures
        if not check.passed:
            faults.append(check.detail)
    if faults:
        return EnvironmentCheck(
            "hostile", False, "; ".join(faults[:4]) + (f"; and {len(faults) - 4} more" if faults[4:] else "")
        )
    detail = f"{len(TEXTS)} kinds of hostile text got a typed answer, the slowest after {slowest * 1000:.0f} ms"
    return EnvironmentCheck("hostile", True, detail, {"slowest_s": slowest})


class ProbeProcess:
    """A process that does one job after another. A job that ends or hangs it fails, and the next has a fresh one."""

    def __init__(self, subject: Subject, *, step_limit_s: float = STEP_LIMIT_S, hash_seed: int = 0) -> None:
        self._subject = subject
        self._request = json.dumps(asdict(subject) | {"step_limit_s": step_limit_s})
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path),
            "PYTHONHASHSEED": str(hash_seed),
        }
        self.place = ""
        """Its last report of where a job is."""
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def sibling(self, *, hash_seed: int) -> "ProbeProcess":
        """One like this, in which sets and hashes have another order."""
        return ProbeProcess(self._subject, hash_seed=hash_seed)

    def check(self, job: str, *, silence_s: float = SILENCE_S) -> EnvironmentCheck:
        """The job's check; it fails if nothing is reported for `silence_s`."""
        process = self._process or self._start()
        assert process.stdin is not None
        with suppress(OSError):  # it died after its last job: there will be no answer
            process.stdin.write(f"{job}\n")
            process.stdin.flush()
        self.place = "the start"
        patience_s = max(SILENCE_S, silence_s)
        while True:
            try:
                line = self._lines.get(timeout=patience_s)
            except queue.Empty:
                self._end()
                return _death(job, f"{self.place}: no answer within {patience_s:g} s, killed")
            if not line:
                code = process.wait()
                self._end()
                return _death(job, f"{self.place}: the process died (exit code {code})")
            message = json.loads(line)
            if "at" not in message:
                return EnvironmentCheck(**message)
            self.place = message["at"]
            patience_s = silence_s

    def _start(self) -> subprocess.Popen[str]:
        # In a process of its own, so that a hang or a crash of the environment is a finding and not the end.
        command = [sys.executable, "-m", "loomrl.gym.check.child", self._request]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        )
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=_pass_on, args=(self._process.stdout, self._lines))
        self._reader.start()
        return self._process

    def _end(self) -> None:
        process = self._process
        self._process = None
        if process is not None:
            with suppress(BrokenPipeError), process:
                process.kill()
                self._reader.join()


def _death(job: str, detail: str) -> EnvironmentCheck:
    name = "hostile" if job.startswith("hostile") else job
    return EnvironmentCheck(name, False, detail, {"died": 1.0})


def _pass_on(stream: IO[str], lines: "queue.Queue[str]") -> None:
    """Every line, then an empty one."""
    for line in stream:
        lines.put(line)
    lines.put("")


@dataclass(frozen=True, slots=True)
class PoolCheck:
    """The results of several checks; `left_out` lists environments with missing requirements."""

    reports: tuple[CheckReport, ...]
    left_out: Mapping[str, str]
    seconds: float

    @property
    def passed(self) -> bool:
        """True if every checked environment keeps its contract."""
        return all(report.passed for report in self.reports)


def check_all(
    ids: Sequence[str],
    settings: Mapping[str, Any] | None = None,
    *,
    jobs: int = 1,
    may_lack: bool = False,
    share: float = 1.0,
) -> PoolCheck:
    """Check these environments; one that cannot be opened is an error, or left out where it `may_lack` something.

    `share` is how much is played.
    """
    most = PER_CORE * (os.cpu_count() or 1)
    if jobs > most:
        raise ConfigError(f"--jobs={jobs}: this machine has cores for {most}, {PER_CORE} to each. Ask for fewer.")
    began = time.monotonic()
    left_out: dict[str, str] = {}
    opened = []
    for id in ids:
        try:
            make(name := resolve_id(id), settings)
        except (ConfigError, RegistryError) as error:
            if not may_lack:
                raise
            left_out[id] = str(error)
        else:
            opened.append(name)
    with ThreadPoolExecutor(jobs) as pool:
        reports = tuple(pool.map(partial(_check, settings=settings, share=share), opened))
    return PoolCheck(reports, left_out, time.monotonic() - began)


def _check(name: str, *, settings: Mapping[str, Any] | None, share: float) -> CheckReport:
    def tell(check: EnvironmentCheck) -> None:
        print(f"{name} {check.name}: {'ok' if check.passed else 'not kept'}", file=sys.stderr, flush=True)

    return check_environment(name, settings, share=share, watch=tell)
