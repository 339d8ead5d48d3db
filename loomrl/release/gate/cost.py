"""Costs of a policy's answers against limits and against the baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from loomrl.config.suite import Cost
from loomrl.release.gate.check import CheckState, GateCheck
from loomrl.release.gate.proof import more_than_half


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of one policy's answers to the same prompts as the other's."""

    seconds: Sequence[float]
    tokens: Sequence[int] | None = None
    """Sampled tokens per answer; None if the policy does not report them."""
    memory_mb: float | None = None
    """None if it was not measured."""


def cost(limits: Cost, ours: Costs, theirs: Costs | None, *, error_rate: float) -> list[GateCheck]:
    """A check for each kind of cost that the suite limits."""
    checks = []
    if limits.latency_s is not None or limits.latency_times is not None:
        checks.append(_latency(limits, ours, theirs, error_rate))
    if limits.tokens is not None or limits.tokens_times is not None:
        told = theirs.tokens if theirs and theirs.tokens else None
        before = None if told is None else sum(told) / len(told)
        mine = None if ours.tokens is None else sum(ours.tokens) / len(ours.tokens)
        checks.append(_plain("tokens", mine, before, limits.tokens, limits.tokens_times))
    if limits.memory_mb is not None or limits.memory_times is not None:
        before = theirs.memory_mb if theirs else None
        checks.append(_plain("memory_mb", ours.memory_mb, before, limits.memory_mb, limits.memory_times))
    return checks


def _latency(limits: Cost, ours: Costs, theirs: Costs | None, error_rate: float) -> GateCheck:
    name = "cost.latency"
    mine = median(ours.seconds)
    before = None if theirs is None else median(theirs.seconds)
    figures = {"median_s": mine, "baseline_s": before, "answers": len(ours.seconds)}
    said = f"median {mine:.4g} s" + ("" if before is None else f", baseline {before:.4g} s")
    if limits.latency_s is not None and mine > limits.latency_s:
        return GateCheck(
            name=name, state=CheckState.FAILED, reason=f"{said}: above {limits.latency_s:g} s", figures=figures
        )
    if limits.latency_times is not None and theirs is not None:
        pairs = zip(ours.seconds, theirs.seconds, strict=True)
        slow = sum(new > limits.latency_times * old + limits.slack_s for new, old in pairs)
        p = more_than_half(slow, len(ours.seconds))
        figures |= {"slower": slow, "p": p}
        if p <= error_rate:
            reason = f"{said}: {slow} of {len(ours.seconds)} answers take more than {limits.latency_times:g} times"
            return GateCheck(name=name, state=CheckState.FAILED, reason=f"{reason}, p={p:.2g}", figures=figures)
    return GateCheck(name=name, state=CheckState.PASSED, reason=said, figures=figures)


def _plain(what: str, mine: float | None, before: float | None, most: float | None, times: float | None) -> GateCheck:
    name = f"cost.{what.removesuffix('_mb')}"
    if mine is None:
        return GateCheck(name=name, state=CheckState.NOT_APPLICABLE, reason=f"the policy does not tell its {what}")
    figures = {what: mine, "baseline": before}
    said = f"{what} {mine:.4g}" + ("" if before is None else f", baseline {before:.4g}")
    if most is not None and mine > most:
        return GateCheck(name=name, state=CheckState.FAILED, reason=f"{said}: above {most:g}", figures=figures)
    if times is not None and before is not None and mine > times * before:
        return GateCheck(name=name, state=CheckState.FAILED, reason=f"{said}: above {times:g} times", figures=figures)
    return GateCheck(name=name, state=CheckState.PASSED, reason=said, figures=figures)
