"""Simulated releases: how often a good version comes back, a bad one gets through, and how soon one is noticed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.release.betting import Floats, log_capital
from loomrl.release.comparison import Mean, Mismatch, beyond, score
from loomrl.release.guard import Better, Guard
from loomrl.release.paired import compare_pairs

UNITS_PER_MINUTE = 20
Ramp = tuple[tuple[int, float], ...]
RAMP: Ramp = ((1200, 0.10), (1200, 0.25), (2400, 0.50))
"""Units and share of each step: 60, 60 and 120 minutes."""


def units_of(ramp: Ramp) -> int:
    """The units of all steps."""
    return sum(units for units, _ in ramp)


WHOLE = units_of(RAMP)
DAY = 1440 * UNITS_PER_MINUTE // 6
"""Units in a day; a sixth of one, so that a ramp of four hours sees a whole day pass."""


@dataclass(frozen=True, slots=True)
class Harm:
    """Observed harms of releases `R` in one metric, unit by unit: 0 is the best, 1 the worst."""

    guard: Guard
    plain_RN: Floats
    eased_RN: Floats
    """After what the guard accepts by `times`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A guard, and the distribution of its metric. `fault` is added to the challenger's mean."""

    guard: Guard
    mean: float
    fault: float = 0.0
    deviation: float | None = None
    """None for a rate; of the logarithm for latencies, whose mean is the logarithm's, too."""
    drift_N: Floats | float = 0.0
    """Added to both means."""

    def draw(self, rng: np.random.Generator, is_challenger_RN: Floats) -> Harm:
        """The harm of units."""
        mean_RN = self.mean + self.drift_N + self.fault * is_challenger_RN
        if self.guard.quantile is not None:
            assert self.deviation is not None
            return _slow(self.guard, rng.lognormal(mean_RN, self.deviation), is_challenger_RN)
        if self.deviation is None:
            values = (rng.random(mean_RN.shape) < mean_RN).astype(np.float64)
        else:
            weight = mean_RN * (1 - mean_RN) / self.deviation**2 - 1
            values = rng.beta(mean_RN * weight, (1 - mean_RN) * weight)
        harm = 1 - values if self.guard.better is Better.HIGHER else values
        return Harm(self.guard, harm, np.where(is_challenger_RN == 1, harm / (self.guard.times or 1.0), harm))


def _slow(guard: Guard, latencies_RN: Floats, is_challenger_RN: Floats) -> Harm:
    rows = [beyond(row, taken, guard, []) for row, taken in zip(latencies_RN, is_challenger_RN, strict=True)]
    plain, eased = (np.nan_to_num(np.stack(part)) for part in zip(*rows, strict=True))
    return Harm(guard, plain, eased)


def steps(parts: Sequence[tuple[int, float]]) -> Floats:
    """The challenger's share at every unit."""
    return np.concatenate([np.full(units, share) for units, share in parts])


def assigned(rng: np.random.Generator, releases: int, chance_N: Floats) -> Floats:
    """1 where a unit meets the challenger."""
    return (rng.random((releases, len(chance_N))) < chance_N).astype(np.float64)


def day(units: int, swing: float) -> Floats:
    """The cycle of a day."""
    cycle: Floats = swing * np.sin(2 * np.pi * np.arange(units) / DAY)
    return cycle


def against_the_day(units: int) -> Floats:
    """Shares that a person raises to a half whenever the day is bad."""
    return np.where(day(units, 1.0) < 0, 0.5, 0.1)


Ints = NDArray[np.int64]

LEAST_UNITS = 20
"""Units of both arms before a z-test looks for the first time."""


def first(alarms_RN: NDArray[np.bool_]) -> Ints:
    """The place of each row's first True; the length of the row without one."""
    return np.where(alarms_RN.any(1), alarms_RN.argmax(1), alarms_RN.shape[1])


def peeking(harm_RN: Floats, is_challenger_RN: Floats, error_rate: float) -> Ints:
    """A one-sided z-test of the two means over all units so far, looked at after every unit."""
    from scipy.stats import norm  # type: ignore[import-untyped,unused-ignore]

    new = _moments(harm_RN, is_challenger_RN)
    old = _moments(harm_RN, 1 - is_challenger_RN)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(new[2] / new[0] + old[2] / old[0])
        z = (new[1] - old[1]) / error
    ready = (np.minimum(new[0], old[0]) >= LEAST_UNITS) & (error > 0)
    return first(ready & (z > norm.isf(error_rate)))


def _moments(harm_RN: Floats, taken_RN: Floats) -> tuple[Floats, Floats, Floats]:
    """Count, mean and variance so far."""
    count = np.cumsum(taken_RN, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.cumsum(harm_RN * taken_RN, axis=1) / count
        variance = np.cumsum(harm_RN**2 * taken_RN, axis=1) / count - mean**2
    return count, mean, np.maximum(variance, 0)


ERROR_RATE = 0.05
BLOCK = 100_000
"""Units simulated at once: more do not fit into the caches."""

SUCCESS = Guard(metric="success", better=Better.HIGHER, margin=0.05)
REWARD = Guard(metric="reward", better=Better.HIGHER, margin=0.05)
ERROR = Guard(metric="error", better=Better.LOWER, margin=0.05)
LATENCY = Guard(metric="latency_s", better=Better.LOWER, quantile=0.95, times=1.25, required=False)
VIOLATION = Guard(metric="violation", better=Better.LOWER, margin=0.02)
NEGATIVE = Guard(metric="negative", better=Better.LOWER, times=2.0, required=False)
SHIPPED = (
    Metric(guard=SUCCESS, mean=0.7),
    Metric(guard=REWARD, mean=0.7, deviation=0.2),
    Metric(guard=ERROR, mean=0.02),
    Metric(guard=LATENCY, mean=0.0, deviation=0.5),
    Metric(guard=VIOLATION, mean=0.002),
    Metric(guard=NEGATIVE, mean=0.05),
)
"""The guards of a release, and metrics such as they might be."""
SHARE_OF_ERROR = ERROR_RATE / len(SHIPPED)


@dataclass(frozen=True, slots=True)
class ReleaseSize:
    """The amount of work."""

    releases: int = 1000
    patience: int = 12_000
    """Units until a release that was not promoted is given up."""


FULL = ReleaseSize()
QUICK = ReleaseSize(releases=60, patience=6000)


def measure(size: ReleaseSize = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench release`."""
    false = {name: _rates(metrics, chance, size) for name, metrics, chance in harmless()}
    missed = {name: missed_share(metric, size) for name, metric in harmful()}
    found = {
        name: detection_units(replace(SHIPPED[0], fault=fault), size)
        for name, fault in (("detect_20", -0.2), ("detect_10", -0.1))
    }
    return {
        "releases": size.releases,
        "false_rollback": max(rates["ours"] for rates in false.values()),
        "missed": max(missed.values()),
        "detect_20": found["detect_20"]["ours"],
        "detect_10": found["detect_10"]["ours"],
        "false_rollbacks": false,
        "misses": missed,
        "detection": found,
        "good": good(size, RAMP),
        "from_25": begun_further_on(size),
        "pairs": pairs(size),
        "mismatch": mismatch(size),
    }


def harmless() -> Iterator[tuple[str, tuple[Metric, ...], Floats]]:
    """Releases of versions that are as good as the old one: name, metrics, and shares."""
    shares = {"10 %": steps([(WHOLE, 0.10)]), "25 %": steps([(WHOLE, 0.25)]), "50 %": steps([(WHOLE, 0.5)])}
    shares["ramp"] = steps(RAMP)
    for rate in (0.05, 0.25, 0.5, 0.75, 0.95):
        for share, chance in shares.items():
            yield f"rate {rate}, {share}", (Metric(guard=SUCCESS, mean=rate),), chance
    for share, chance in shares.items():
        yield f"mean 0.7 ± 0.1, {share}", (Metric(guard=REWARD, mean=0.7, deviation=0.1),), chance
        yield f"mean 0.1 ± 0.2, {share}", (Metric(guard=REWARD, mean=0.1, deviation=0.2),), chance
        yield f"p95 latency, {share}", (SHIPPED[3],), chance
    for share, chance in {"ramp": steps(RAMP), "shares against it": against_the_day(WHOLE)}.items():
        cycle = Metric(guard=SUCCESS, mean=0.6, drift_N=day(WHOLE, 0.3))
        yield f"rate 0.3 to 0.9 in a day, {share}", (cycle,), chance
        yield f"p95 latency, threefold in a day, {share}", (replace(SHIPPED[3], drift_N=day(WHOLE, 0.55)),), chance
    yield "all six metrics, ramp", SHIPPED, steps(RAMP)


def harmful() -> Iterator[tuple[str, Metric]]:
    """Versions that are worse by more than their guard accepts, most of them hardly."""
    yield "success 0.70 to 0.649", replace(SHIPPED[0], fault=-0.051)
    yield "success 0.70 to 0.60", replace(SHIPPED[0], fault=-0.1)
    yield "reward 0.70 to 0.649", replace(SHIPPED[1], fault=-0.051)
    yield "errors 0.02 to 0.071", replace(SHIPPED[2], fault=0.051)
    yield "p95 latency times 1.26", replace(SHIPPED[3], fault=math.log(1.26))
    yield "negative 0.05 to 0.101", replace(SHIPPED[5], fault=0.051)
    yield "violations 0 to 0.021", replace(SHIPPED[4], mean=0.0, fault=0.021)


def _blocks(size: ReleaseSize, chance_N: Floats) -> Iterator[tuple[np.random.Generator, Floats]]:
    """Generators, and who meets the challenger: all releases in blocks that fit into memory."""
    rng = np.random.default_rng(0)
    most = max(1, BLOCK // len(chance_N))
    for begin in range(0, size.releases, most):
        yield rng, assigned(rng, min(most, size.releases - begin), chance_N)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of harm after every unit."""

    log_capital_RN: Floats
    is_beyond_RN: NDArray[np.bool_]
    """The estimate is beyond what the guard accepts."""

    def worse_at(self, error_rate: float) -> Ints:
        """The unit at which ours finds the challenger worse; the number of units if never."""
        proved = self.log_capital_RN >= -math.log(error_rate)
        return first(np.maximum.accumulate(proved, axis=1) & self.is_beyond_RN)


def evidence(harm: Harm, is_challenger_RN: Floats, chance_N: Floats) -> Evidence:
    """The evidence of `Comparison`, for many releases at once."""
    found, _ = score(harm.plain_RN, is_challenger_RN, chance_N, Mean())
    eased, _ = score(harm.eased_RN, is_challenger_RN, chance_N, Mean())
    is_beyond = np.cumsum(eased.score, axis=1) > harm.guard.margin * np.cumsum(eased.weight)
    return Evidence(log_capital(found.score, found.weight, found.below, 0.0), is_beyond)


def fine_now(harm: Harm, is_challenger_RN: Floats, chance_N: Floats) -> NDArray[np.bool_]:
    """True where ours finds the challenger fine, after every unit."""
    eased, _ = score(harm.eased_RN, is_challenger_RN, chance_N, Mean())
    return log_capital(-eased.score, eased.weight, eased.above, -harm.guard.margin) >= -math.log(ERROR_RATE)


def _alarms(metric: Metric, drawn: tuple[np.random.Generator, Floats], chance_N: Floats) -> dict[str, Ints]:
    """The unit at which each rule rolls back because of this metric. Ours has a sixth of the error rate, as in a
    release; peeking has all of it.
    """
    rng, taken = drawn
    harm = metric.draw(rng, taken)
    return {
        "ours": evidence(harm, taken, chance_N).worse_at(SHARE_OF_ERROR),
        "peeking": peeking(harm.plain_RN, taken, ERROR_RATE),
    }


def _rates(metrics: Sequence[Metric], chance_N: Floats, size: ReleaseSize) -> dict[str, float]:
    """The share of releases that each rule rolls back. The guards accept nothing, so that all rests on the evidence."""
    strict = [replace(metric, guard=replace(metric.guard, margin=0.0, times=None)) for metric in metrics]
    ends: dict[str, list[Ints]] = {}
    for rng, taken in _blocks(size, chance_N):
        alarms = [_alarms(metric, (rng, taken), chance_N) for metric in strict]
        for rule in alarms[0]:
            ends.setdefault(rule, []).append(np.min([each[rule] for each in alarms], axis=0))
    return {rule: float((np.concatenate(parts) < len(chance_N)).mean()) for rule, parts in ends.items()}


def detection_units(metric: Metric, size: ReleaseSize) -> dict[str, float | None]:
    """Median units of the challenger until each rule rolls back, at 10 %; None if it does not in half of the releases.

    The guard shares its error rate as it does in a release.
    """
    chance = steps([(WHOLE, 0.10)])
    units: dict[str, list[Floats]] = {}
    for rng, taken in _blocks(size, chance):
        met = np.concatenate([np.cumsum(taken, axis=1), np.full((len(taken), 1), math.inf)], axis=1)
        for rule, ends in _alarms(metric, (rng, taken), chance).items():
            units.setdefault(rule, []).append(np.take_along_axis(met, ends[:, None], axis=1)[:, 0])
    medians = {rule: float(np.median(np.concatenate(parts))) for rule, parts in units.items()}
    return {rule: median if math.isfinite(median) else None for rule, median in medians.items()}


def _whole(size: ReleaseSize, ramp: Ramp) -> Floats:
    return steps([*ramp, (size.patience - units_of(ramp), 0.5)])


def missed_share(metric: Metric, size: ReleaseSize) -> float:
    """The share of versions that get all of the traffic although nothing but this metric can stop them."""
    chance = _whole(size, RAMP)
    missed = 0
    for rng, taken in _blocks(size, chance):
        harm = metric.draw(rng, taken)
        worse = evidence(harm, taken, chance).worse_at(SHARE_OF_ERROR)
        missed += int((_promotion_unit(fine_now(harm, taken, chance), WHOLE) < worse).sum())
    return missed / size.releases


def _promotion_unit(fine_RN: NDArray[np.bool_], ramp: int) -> Ints:
    """The unit at which a version gets all of the traffic, after the units of the ramp."""
    return ramp - 1 + first(fine_RN[:, ramp - 1 :])


def begun_further_on(size: ReleaseSize) -> dict[str, Any]:
    """Traffic of both versions until a decision where a canary begins with 25 % of it, beside one from 10 %."""
    found = {}
    for name, fault in (("detect_20", -0.2), ("detect_10", -0.1)):
        metric = replace(SHIPPED[0], fault=fault)
        units = {}
        for begun, ramp in (("from_10", RAMP), ("from_25", RAMP[1:])):
            chance = _whole(size, ramp)
            ends = [_alarms(metric, drawn, chance)["ours"] for drawn in _blocks(size, chance)]
            units[begun] = float(np.median(np.concatenate(ends))) + 1
        found[name] = units | {"ratio": round(units["from_25"] / units["from_10"], 2)}
    return found | {"good": good(size, RAMP[1:])}


def good(size: ReleaseSize, ramp: Ramp) -> dict[str, float | None]:
    """Outcomes of a version as good as the old one, by all six guards of a release."""
    chance = _whole(size, ramp)
    begun = units_of(ramp)
    passed = []
    back = []
    for rng, taken in _blocks(size, chance):
        fine = np.ones(taken.shape, np.bool_)
        worse = np.full(len(taken), len(chance))
        for metric in SHIPPED:
            harm = metric.draw(rng, taken)
            worse = np.minimum(worse, evidence(harm, taken, chance).worse_at(SHARE_OF_ERROR))
            if metric.guard.required:
                fine &= fine_now(harm, taken, chance)
        passed.append(_promotion_unit(fine, begun))
        back.append(worse)
    all_passed = np.concatenate(passed)
    all_back = np.concatenate(back)
    is_through = (all_passed < len(chance)) & (all_passed < all_back)
    middle = float(np.median(np.where(is_through, all_passed + 1, np.inf)))
    return {
        "promoted": float(is_through.mean()),
        "rolled_back": float((all_back < np.minimum(all_passed, len(chance))).mean()),
        "units_until_promoted": middle if math.isfinite(middle) else None,
    }


def pairs(size: ReleaseSize, count: int = 500) -> dict[str, float]:
    """Comparisons of `count` pairs of answers to the same tasks, some tasks easier than others."""
    rng = np.random.default_rng(0)
    worse = {"equal": 0.0, "worse_by_0.051": -0.051, "worse_by_0.15": -0.15}
    found: dict[str, float] = {}
    for name, fault in worse.items():
        solved = rng.beta(2.1, 0.9, (size.releases // 4, count))
        old = (rng.random(solved.shape) < solved).astype(np.float64)
        new = (rng.random(solved.shape) < solved * (1 + fault / 0.7)).astype(np.float64)
        for kind, planned in (("planned", count), ("open", None)):
            findings = [
                compare_pairs(SUCCESS, zip(a.tolist(), b.tolist(), strict=True), error_rate=ERROR_RATE, planned=planned)
                for a, b in zip(old, new, strict=True)
            ]
            found[f"{name}_{kind}_found_worse"] = float(np.mean([each.is_worse for each in findings]))
            found[f"{name}_{kind}_found_fine"] = float(np.mean([each.is_fine for each in findings]))
    return found


def mismatch(size: ReleaseSize, units: int = 2000) -> dict[str, float | None]:
    """The test of shares, at an error rate of 0.05: how often it is wrong, and units until it notices 0.13 for 0.10."""
    shares = {"stable": 0.9, "canary": 0.1}
    right = [_units_until_mismatch(seed, 0.10, shares, units) for seed in range(size.releases // 4)]
    wrong = [_units_until_mismatch(seed, 0.13, shares, units * 5) for seed in range(size.releases // 20)]
    median = float(np.median(wrong))
    return {
        "false": float(np.mean([end < math.inf for end in right])),
        "units_until_noticed": median if math.isfinite(median) else None,
    }


def _units_until_mismatch(seed: int, share: float, shares: dict[str, float], units: int) -> float:
    rng = np.random.default_rng(seed)
    test = Mismatch(error_rate=ERROR_RATE)
    for unit, is_canary in enumerate((rng.random(units) < share).tolist()):
        test.observe("canary" if is_canary else "stable", shares)
        if test.is_mismatched:
            return unit + 1
    return math.inf
