"""`python -m tests.lab.bench [--quick]`: the cost of an update by hosts and bandwidth, and a model of it for others.

Everything that crosses the network is real: gradients over gloo, weights, attempts, the hub. The hosts share the cores
of this machine, so computing does not get faster with their number; what the model says of more hosts is about bytes.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loomrl.algorithms.language.build import build_reading
from loomrl.config import Architecture
from loomrl.experiments.bench.rounds import machine, say
from loomrl.experiments.shipped import resolve
from loomrl.load import dump
from loomrl.telemetry.metric import PHASES
from loomrl.telemetry.sink import read_metrics
from tests.lab import Lab

SLOW = 20
FAST = 1000
USUAL = 100
"""Mbit/s."""
LIMIT = 0.2
"""Largest error of the model for a configuration that it has not seen."""
CORES = os.cpu_count() or 1
"""Of this machine, which the hosts share: with more hosts than cores they compute by turns."""
TOKEN = "only-in-this-lab-" + "x" * 32
ROOT = Path(__file__).parents[2]
PART = ("env", f"--chdir={ROOT}", "python", "-m", "tests.lab.bench_part")
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work."""

    hosts: tuple[int, ...] = (1, 2, 4)
    bandwidths: tuple[int, ...] = (SLOW, USUAL, FAST)
    megabytes: tuple[int, ...] = (1, 4, 16)
    updates: int = 8
    published: int = 6
    """Versions."""
    groups: int = 24
    """That the hub takes in."""
    layers: int = 6
    """Of the model that is published."""


FULL = Size()
QUICK = Size(hosts=(1, 2), bandwidths=(SLOW, FAST), megabytes=(1,), updates=3, published=2, groups=4, layers=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An update's median, by its configuration."""

    hosts: int
    mbit: int
    seconds: float
    megabytes: float
    """Through the busiest host's link in its busier direction."""


def measure(size: Size = FULL) -> dict[str, Any]:
    """Every figure of `python -m tests.lab.bench`. It needs root (`python -m tests.lab`)."""
    names = [f"h{number}" for number in range(1, max(size.hosts) + 1)]
    with Lab.up(f"bench-{os.getpid()}", ["head", *names], disk_mb=2048) as lab:
        site = _Site(lab, names)
        figures: dict[str, Any] = {"allreduce": _allreduce(site, size)}
        figures["hub"] = _ingested(site, size)
        site.join("head", head=True)
        figures["publish"] = _published(site, size)
        updates = list(_updates(site, size))
    slow = figures["publish"][f"{SLOW} Mbit/s"]
    figures["nexus_speedup_20mbit"] = round(slow["full_s"] / slow["nexus_s"], 1)
    figures["updates"] = [asdict(each) for each in updates]
    return figures | _model(updates) | {"machine": machine()}


# -- hosts ------------------------------------------------------------------------------------------------------------


class _Site:
    """Hosts of a lab: some of them a Ray cluster."""

    def __init__(self, lab: Lab, names: Sequence[str]) -> None:
        self.lab = lab
        self.names = names
        self.env = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
            "LOOMRL_HUB_TOKEN": TOKEN,
            "RAY_ADDRESS": "head:6379",
            "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "HF_HUB_OFFLINE": "1",
        }
        self._joined: set[str] = set()

    def run(self, host: str, *words: str, **env: str) -> Any:
        """A part on a host, to its end; what it found."""
        done = self.lab.run(host, [*PART, *words], env=self.env | env, timeout_s=PATIENCE_S)
        return json.loads(done.stdout.splitlines()[-1])

    def join(self, host: str, *, head: bool = False) -> None:
        """Ray on a host."""
        if host in self._joined:
            return
        kind = {} if head else {"learner": 1, "rollout": 1}
        where = ["--head", "--port=6379", "--include-dashboard=false"] if head else ["--address=head:6379"]
        size = ["--num-cpus=2", "--object-store-memory=150000000", "--disable-usage-stats"]
        words = ["ray", "start", *where, *size, f"--resources={json.dumps(kind)}"]
        self.lab.run(host, words, env=self.env, timeout_s=240)
        self._joined.add(host)

    def limit(self, mbit: int) -> None:
        """The bandwidth of every link."""
        for host in ("head", *self.names):
            self.lab.link(host, mbit=mbit)

    def moved(self) -> dict[str, tuple[int, int]]:
        """Bytes that every host has received and sent so far."""
        found = {}
        for host in ("head", *self.names):
            (link,) = [
                each
                for each in json.loads(self.lab.run(host, ["ip", "-j", "-s", "link"]).stdout)
                if each["ifname"] != "lo"
            ]
            counted = link["stats64"]
            found[host] = counted["rx"]["bytes"], counted["tx"]["bytes"]
        return found


def _allreduce(site: _Site, size: Size) -> dict[str, dict[str, float]]:
    """Seconds of an all-reduce by hosts, bandwidth and megabytes."""
    found = {}
    for count in size.hosts[1:]:
        for mbit in size.bandwidths:
            say(f"all-reduce over {count} hosts at {mbit} Mbit/s")
            site.limit(mbit)
            found[f"{count} hosts, {mbit} Mbit/s"] = _reduced(site, site.names[:count], size)
    return found


def _reduced(site: _Site, hosts: Sequence[str], size: Size) -> dict[str, float]:
    words = [str(len(hosts)), *map(str, size.megabytes)]
    env = site.env | {"MASTER_ADDR": hosts[0], "MASTER_PORT": "29500"}
    others = [
        site.lab.start(host, [*PART, "reduce", str(rank), *words], env=env)
        for rank, host in enumerate(hosts[1:], start=1)
    ]
    found = site.run(hosts[0], "reduce", "0", *words, MASTER_ADDR=hosts[0], MASTER_PORT="29500")
    for other in others:
        other.wait(timeout=60)
    return {f"{megabytes} MB": round(seconds, 4) for megabytes, seconds in found.items()}


def _ingested(site: _Site, size: Size) -> dict[str, float]:
    """Tokens per second that a hub on another host takes in, by bandwidth."""
    served = site.lab.start("head", [*PART, "hub", "/tmp/hub.db", "8000"], env=site.env)
    try:
        found = {}
        for mbit in size.bandwidths:
            say(f"a hub over {mbit} Mbit/s")
            site.limit(mbit)
            told = site.run(site.names[0], "ingest", "http://head:8000", str(size.groups))
            found[f"{mbit} Mbit/s"] = round(told["tokens_per_s"])
        return found
    finally:
        served.kill()
        served.wait()


def _published(site: _Site, size: Size) -> dict[str, dict[str, float]]:
    """Seconds of a version's way to another host, by Nexus and whole."""
    say("versions to publish")
    folder = site.lab.shared / "versions"
    architecture = Architecture(hidden_size=384, intermediate_size=1024, layers=size.layers, heads=6)
    model, tokenizer, _ = build_reading(architecture, ["Tell me about 1."], context=256, seed=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    site.run("head", "versions", "/tmp/shared/versions", str(size.published + 1))
    (folder / "model.safetensors").unlink()
    site.limit(FAST)
    site.join(site.names[0])
    found = {}
    for mbit in size.bandwidths:
        say(f"publication over {mbit} Mbit/s")
        site.limit(mbit)
        told = site.run("head", "publish", "/tmp/shared/versions", site.names[0])
        found[f"{mbit} Mbit/s"] = {name: round(value, 4) for name, value in told.items()}
    return found


# -- updates ----------------------------------------------------------------------------------------------------------


def _updates(site: _Site, size: Size) -> Iterator[Update]:
    """Training with a learner and a runner on every host."""
    for count in size.hosts:
        site.limit(FAST)
        for host in site.names[:count]:
            site.join(host)
        for mbit in size.bandwidths:
            say(f"training on {count} hosts at {mbit} Mbit/s")
            site.limit(mbit)
            yield _trained(site, size, count, mbit)


def _trained(site: _Site, size: Size, count: int, mbit: int) -> Update:
    name = f"on-{count}-at-{mbit}"
    wanted = resolve(["language/math_tiny_grpo"]).override(
        {
            "algorithm.warm_start.steps": 0,
            "algorithm.learners.count": count,
            "rollout": {"runners": count, "group_size": 4, "groups_per_update": 4, "concurrency": 16},
            "placement.learner.resources": {"learner": 1},
            "placement.runner.resources": {"rollout": 1},
            "algorithm.sampling.max_tokens": 32,
            "evaluation.episodes": 4,
            "train": {"updates": size.updates, "checkpoint_every": size.updates, "folder": "/tmp/shared/runs"},
            "store_url": "sqlite:////tmp/shared/loom.db",
            "artifact_url": "/tmp/shared/artifacts",
        }
    )
    (site.lab.shared / f"{name}.yaml").write_text(dump(wanted))
    log = site.lab.shared / f"{name}.log"
    lines = site.lab.shared / "runs" / name / "metrics.jsonl"
    with _running(site, ["loomrl", "train", f"/tmp/shared/{name}.yaml", "--run", name], log) as is_over:
        _until(lambda: _count(lines) >= 1 or is_over(), log)
        begun = site.moved()
        first = _count(lines)
        _until(lambda: _count(lines) >= size.updates or is_over(), log)
        ended = site.moved()
        last = _count(lines)
    rows = read_metrics(lines)
    if len(rows) < size.updates:
        raise RuntimeError(f"{name} has ended: {log.read_text()[-3000:]}")
    seconds = statistics.median(sum(row.get(phase, 0.0) for phase in PHASES) for row in rows[1:])
    busiest = max(now - then for host in ended for now, then in zip(ended[host], begun[host], strict=True))
    megabytes = busiest / 1e6 / max(last - first, 1)
    return Update(hosts=count, mbit=mbit, seconds=round(seconds, 3), megabytes=round(megabytes, 3))


@contextmanager
def _running(site: _Site, words: Sequence[str], log: Path) -> Iterator[Any]:
    with log.open("w") as written:
        process = site.lab.start("head", words, env=site.env, stdout=written, stderr=written)
        try:
            yield lambda: process.poll() is not None
            process.wait(timeout=PATIENCE_S)
        finally:
            process.kill()
            process.wait()


def _count(lines: Path) -> int:
    with suppress(FileNotFoundError):
        return lines.read_text().count("\n")
    return 0


def _until(is_so: Any, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing new within {PATIENCE_S:g} s: {log.read_text()[-3000:]}")
        time.sleep(0.05)


# -- the model --------------------------------------------------------------------------------------------------------


def _model(updates: Sequence[Update]) -> dict[str, Any]:
    """Seconds = own · hosts to a core + megabytes / bandwidth · factor; fitted, and the errors of left-out ones."""
    fitted = _fit(updates)
    errors = {}
    for left in updates:
        others = [each for each in updates if each is not left]
        said = float(_terms(left) @ _fit(others))
        errors[f"{left.hosts} hosts, {left.mbit} Mbit/s"] = round(said / left.seconds - 1, 3)
    worst = max(map(abs, errors.values()))
    names = ("own_s", "wire_factor")
    return {
        "model": {name: round(float(value), 4) for name, value in zip(names, fitted, strict=True)},
        "left_out_errors": errors,
        "left_out_worst": worst,
        "is_good_enough": worst <= LIMIT,
    }


def _terms(update: Update) -> Any:
    return np.array([max(1.0, update.hosts / CORES), 8 * update.megabytes / update.mbit])


def _fit(updates: Sequence[Update]) -> Any:
    seconds = np.array([each.seconds for each in updates])
    rows = np.stack([_terms(each) for each in updates]) / seconds[:, None]
    return np.linalg.lstsq(rows, np.ones(len(updates)), rcond=None)[0]


if __name__ == "__main__":
    print(json.dumps(measure(QUICK if "--quick" in sys.argv else FULL)))
