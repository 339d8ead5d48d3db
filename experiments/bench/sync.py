"""Transfer of weights from learner to engines: the cost of checks, the size of deltas, the time to a first token.

A real run of the demo provides the versions: after its warm start it is updated at several learning rates, with master
weights in float32, and its versions are measured as they would be published in bfloat16.
"""

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from loomrl.algorithms.language.publish import Probing
from loomrl.config import VllmEngineConfig
from loomrl.experiments.bench.rounds import machine, say, seconds
from loomrl.inference.open import Opening
from loomrl.inference.vllm.fleet import open_fleet
from loomrl.inference.weights.nexus import Receiver, Sender
from loomrl.inference.weights.sealed import Weights, seal, stage, unstage
from loomrl.telemetry.metric import PHASES, Metric

SMALL_RATES = (1e-6, 3e-6, 1e-5)
"""Typical rates of fine-tuning; `nexus_bytes_ratio` is over all their versions."""
LARGE_RATES = (1e-4, 3e-4)


@dataclass(frozen=True, slots=True)
class SyncSize:
    """The amount of work."""

    warm_steps: int = 1300
    loads: int = 9
    versions: int = 12
    """Versions at each learning rate."""
    rates: tuple[float, ...] = (*SMALL_RATES, *LARGE_RATES)


FULL = SyncSize()
QUICK = SyncSize(warm_steps=600, versions=2, rates=(1e-6,), loads=3)
"""After only ten steps nothing is rewarded yet, and no version would differ from the one before it."""

Metrics = Mapping[str, float]


def measure(size: SyncSize = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench sync`."""
    from loomrl.experiments.algorithms import open_algorithm, ray_running
    from loomrl.experiments.shipped import TRAINED, resolve

    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder, ray_running(2):
        experiment = resolve([TRAINED]).override(
            {
                "store_url": f"sqlite:///{folder}/loom.db",
                "artifact_url": f"{folder}/artifacts",
                "algorithm.warm_start.steps": size.warm_steps,
                "train.updates": 10**6,
                "train.checkpoint_every": 10**6,
            }
        )
        algo = open_algorithm(experiment).build_algo()
        say("warm start")
        algo.begin()
        figures: dict[str, Any] = {"parameters_m": round(sum(w.numel() for w in algo.weights().values()) / 1e6, 2)}
        history: list[Metrics] = []
        sequences = {rate: _versions(algo, rate, size.versions, history) for rate in size.rates}
        figures |= _overhead(history, algo.weights()) | _nexus(sequences, Path(folder))
        if find_spec("vllm") is not None:
            say("vLLM")
            figures |= _first_token(algo, size)
        algo.stop()
    return figures | {"machine": machine(torch=torch.__version__)}


def _versions(algo: Any, rate: float, count: int, history: list[Metrics]) -> list[Weights]:
    """The weights before and after each of `count` updates at this learning rate."""
    from loomrl.algorithms.language.algorithm import METRICS
    from loomrl.algorithms.schedule import open_schedule

    say(f"{count} updates at learning rate {rate:g}")
    algo._schedule = open_schedule(rate, algo.config.algorithm.optimizer.schedule, count)
    versions: list[Weights] = [algo.weights()]
    for _ in range(count):
        history.append(dict(algo.train()[METRICS]))
        versions.append(algo.weights())
    return versions


def _overhead(history: Sequence[Metrics], weights: Weights) -> dict[str, Any]:
    """Share of an iteration for checksums (sealing, arrival, reading back) and probes."""
    sealed = seal(weights, 0)
    checksums_s = 3 * statistics.median(seconds(sealed.verify) for _ in range(9))
    settled = history[1:]
    probes_s = statistics.median(line[Metric.TIME_PUBLISH.of("probe")] for line in settled)
    iteration_s = statistics.median(sum(line[phase] for phase in PHASES) for line in settled)
    parts = {
        part: round(statistics.median(line[Metric.TIME_PUBLISH.of(part)] for line in settled), 5)
        for part in ("seal", "load", "probe")
    }
    return {
        "check_overhead": round((checksums_s + probes_s) / iteration_s, 4),
        "checksums_s": round(checksums_s, 5),
        "publish_s": parts,
        "iteration_s": round(iteration_s, 3),
        "probe_distance": max(line[Metric.PUBLISH_DISTANCE] for line in settled),
    }


# -- Nexus ------------------------------------------------------------------------------------------------------------


def _nexus(sequences: Mapping[float, Sequence[Weights]], folder: Path) -> dict[str, Any]:
    """Bytes and seconds of deltas against full weights, in bfloat16, and in float32 as in the learner."""
    say("deltas")
    found = {rate: _travel(versions, torch.bfloat16, folder) for rate, versions in sequences.items()}
    small = [one for rate, each in found.items() if rate in SMALL_RATES for one in each]
    exact = {rate: _travel(versions, torch.float32, folder) for rate, versions in sequences.items()}
    return {
        "nexus_bytes_ratio": _round(statistics.fmean(one.ratio for one in small)),
        "nexus_s": _round(statistics.median(one.delta_s for one in small)),
        "full_s": _round(statistics.median(one.full_s for one in small)),
        "changed": {f"{rate:g}": _round(statistics.fmean(one.changed for one in each)) for rate, each in found.items()},
        "ratio": {f"{rate:g}": _round(statistics.fmean(one.ratio for one in each)) for rate, each in found.items()},
        "ratio_float32": {
            f"{rate:g}": _round(statistics.fmean(one.ratio for one in each)) for rate, each in exact.items()
        },
    }


@dataclass(frozen=True, slots=True)
class Trip:
    """One version's transfer to a receiver with the previous one, without a network."""

    ratio: float
    """Bytes of the delta divided by those of the full weights."""
    changed: float
    """Share of changed numbers."""
    delta_s: float
    """Encoded, received in chunks, applied, verified."""
    full_s: float
    """Full weights written, read, and verified."""


def _travel(versions: Sequence[Weights], dtype: torch.dtype, folder: Path) -> list[Trip]:
    sender = Sender()
    receiver = Receiver()
    trips = list[Trip]()
    before: Weights = {}
    for number, weights in enumerate(versions):
        sealed = seal({name: tensor.to(dtype) for name, tensor in weights.items()}, number)
        full = sum(tensor.numel() * tensor.element_size() for tensor in sealed.weights.values())
        begun = time.perf_counter()
        sender.hold(sealed)
        parcel = sender.parcel(receiver.holds)
        for index in receiver.offer(parcel.manifest):
            receiver.take(index, bytes(parcel.chunks[index]))
        receiver.finish()
        delta_s = time.perf_counter() - begun
        full_s = seconds(lambda sealed=sealed: unstage(stage(sealed, folder / "full")).verify())  # type: ignore[misc]
        if before:
            moved = sum(int((before[name] != tensor).sum()) for name, tensor in sealed.weights.items())
            trips.append(Trip(parcel.size / full, moved * dtype.itemsize / full, delta_s, full_s))
        before = sealed.weights
    return trips


# -- from the learner to a token --------------------------------------------------------------------------------------


def _first_token(algo: Any, size: SyncSize) -> dict[str, Any]:
    """Seconds from weights in the learner to the first token that a vLLM engine samples with them."""
    config = algo.config
    settings = config.algorithm.model
    probes = Probing.of_run(config).brief[:1]
    opening = Opening(origin=config.origin, context=settings.context, slots=8, dtype=settings.dtype)
    times: list[float] = []
    with open_fleet(VllmEngineConfig(kind="vllm"), opening) as fleet:
        for version in range(1, size.loads + 1):
            begun = time.perf_counter()
            fleet.load(algo._first_of(lambda learner, version=version: learner.seal(version)))
            ((completion,),) = fleet.probe(probes)
            times.append(time.perf_counter() - begun)
            assert {*map(int, completion.versions_T)} == {version}
            fleet.admit(version)
    return {
        "shared_memory_first_token_s": round(statistics.median(times[1:]), 4),
        "shared_memory_first_token_worst_s": round(max(times[1:]), 4),
    }


def _round(value: float) -> float:
    return round(value, 5)
