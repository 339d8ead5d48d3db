"""The steps of a plan, and the passage of a version through them: a pure function from evidence to the next state.

Controllers with the same evidence decide the same. It says where a release stands and why it waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from loomrl.config.release import GuardSetting, ReleasePlan
from loomrl.errors import ConfigError, StoreError, did_you_mean
from loomrl.release.guard import Better, Finding, Guard
from loomrl.store.endpoints import Arm, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """A step of a release."""

    share: float
    """Share of the traffic; for a shadow, share of the calls that are copied."""
    minutes: float
    units: int
    is_shadow: bool = False

    def __str__(self) -> str:
        return f"{100 * self.share:g} %" + (" in shadow" if self.is_shadow else "")


def steps_of(plan: ReleasePlan) -> tuple[PlanStep, ...]:
    """The steps of a plan whose strategy is chosen."""
    ramp = tuple(PlanStep(share=step.share, minutes=step.minutes, units=step.units) for step in plan.steps)
    shadow = PlanStep(share=plan.shadow.share, minutes=plan.shadow.minutes, units=0, is_shadow=True)
    match plan.strategy:
        case "shadow":
            return (shadow,)
        case "blue_green":
            return (shadow, ramp[-1])
        case "immediate":
            return ramp[-1:]
        case "canary":
            return ramp
        case "auto":
            raise AssertionError("the strategy is settled when a release begins")


def guards_of(plan: ReleasePlan) -> tuple[Guard, ...]:
    """The guards that evidence is collected for."""
    return tuple(_guard(setting) for setting in plan.guards)


def choose_strategy(plan: ReleasePlan, strategy: str, first_share: float) -> ReleasePlan:
    """The plan with the strategy and first share that the gate advises, unless the plan has a strategy."""
    if plan.strategy != "auto":
        return plan
    if strategy != "canary":
        return plan.override({"strategy": strategy})
    steps = [step.model_dump() for step in plan.steps if step.share >= first_share]
    if first_share < plan.steps[0].share:
        steps[0]["share"] = first_share
    return plan.override({"strategy": strategy, "steps": steps})


def _guard(setting: GuardSetting) -> Guard:
    return Guard(
        metric=setting.metric,
        better=Better(setting.better),
        low=setting.low,
        high=setting.high,
        margin=setting.margin,
        times=setting.times,
        quantile=setting.quantile,
        share=setting.share,
        longest=setting.longest,
        required=setting.waits == "always",
    )


STABLE = "stable"
CANARY = "canary"
START = -1
"""The step before the first: the version is being started, and has no traffic."""
SKEW_S = 5.0
"""Clocks of controllers may differ by this."""


class ReleasePhase(StrEnum):
    """The state of a release; all but OPEN are final."""

    OPEN = "open"
    DONE = "done"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"
    STOPPED = "stopped"
    """The endpoint was changed by others: the release leaves its arms alone."""


class Command(StrEnum):
    """A person's command."""

    APPROVE = "approve"
    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """The state of a release, from one row of its log to the next."""

    phase: ReleasePhase = ReleasePhase.OPEN
    step: int = START
    since: float
    """Unix time at which the step began."""
    is_paused: bool = False
    approved: int = START
    """The highest step that a person has approved."""
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """True until the release has ended."""
        return self.phase is ReleasePhase.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseEvidence:
    """The evidence on the new version at a moment."""

    findings: tuple[Finding, ...] = ()
    units: int = 0
    """Units of the new version since the step began."""
    failed: int = 0
    """Units in a row, up to the last one, that failed."""
    failed_s: float = 0.0
    """Seconds from the first to the last of them."""
    trips: int = 0
    """Times that the monitor tripped the release."""
    is_up: bool = False
    """A replica of the new version answers."""
    is_mismatched: bool = False
    """The units do not divide as the shares say."""
    is_touched: str = ""
    """The endpoint's arms if others changed them; else empty."""
    jumped_s: float = 0.0
    """Seconds by which the clock has jumped since the last look."""


def decide(plan: ReleasePlan, now_at: Passage, evidence: ReleaseEvidence, now: float) -> Passage | None:
    """The next state, or None while there is nothing to do."""
    if not now_at.is_open:
        return None
    if evidence.is_touched:
        said = f"the endpoint was changed meanwhile ({evidence.is_touched}): its arms are left alone"
        return _end(now_at, ReleasePhase.STOPPED, said, now)
    fault = fault_of(plan, now_at, evidence)
    if fault:
        return _end(now_at, ReleasePhase.ROLLED_BACK, fault, now)
    if now_at.since > now + SKEW_S or (evidence.jumped_s and now_at.since < now - SKEW_S):
        return replace(now_at, since=now, reason="the clock jumped: the time of this step begins again")
    if waits_for(plan, now_at, evidence, now):
        return None
    steps = steps_of(plan)
    if now_at.step + 1 < len(steps):
        reason = f"step {now_at.step + 2} of {len(steps)}: {steps[now_at.step + 1]}"
        return replace(now_at, step=now_at.step + 1, since=now, reason=reason)
    said = "the shadow's time is over" if steps[-1].is_shadow else "the new version is the stable one"
    return _end(now_at, ReleasePhase.DONE, said, now)


def fault_of(plan: ReleasePlan, now_at: Passage, evidence: ReleaseEvidence) -> str:
    """The reason for an immediate rollback; empty if there is none."""
    if now_at.step == START:
        return ""
    if evidence.trips:
        return "the monitor tripped the release"
    if evidence.failed >= plan.hard.calls and evidence.failed_s >= plan.hard.seconds:
        return f"the last {evidence.failed} calls all failed, for {evidence.failed_s:.1f} s"
    for guard, finding in zip(plan.guards, evidence.findings, strict=False):
        if finding.is_worse:
            return f"worse: {finding.reason}"
        if guard.limit is not None and _is_beyond(guard, finding):
            return f"beyond {guard.limit:g} and worse: {finding.reason}"
    return ""


def waits_for(plan: ReleasePlan, now_at: Passage, evidence: ReleaseEvidence, now: float) -> tuple[str, ...]:
    """The reasons that keep the release in its step, for people; empty if the next one may begin."""
    steps = steps_of(plan)
    step = steps[now_at.step] if now_at.step >= 0 else None
    after = steps[now_at.step + 1] if now_at.step + 1 < len(steps) else None
    reasons = [f"paused: {now_at.reason}"] if now_at.is_paused else []
    if step is None and not evidence.is_up:
        reasons.append("no replica of the new version is up yet")
    if step is not None:
        reasons += _step_waits(step, now_at, evidence, now)
    if evidence.is_mismatched and after is not None:
        reasons.append("users and sessions do not divide among the arms as the shares say: nothing can be compared")
    if after is not None and after.share in plan.approvals and now_at.approved <= now_at.step:
        reasons.append(f"{after} needs the approval of one of {', '.join(plan.approvers)}")
    if after is not None and step is not None and after is steps[-1] and not step.is_shadow:
        reasons += _proof_waits(plan, evidence)
    return tuple(reasons)


def apply_command(plan: ReleasePlan, now_at: Passage, word: Command, *, who: str, why: str, now: float) -> Passage:
    """The state after a person's command; a ConfigError if it has no meaning now, or the person may not give it."""
    if word is Command.ROLLBACK and now_at.phase in (ReleasePhase.DONE, ReleasePhase.OPEN):
        return _end(now_at, ReleasePhase.ROLLED_BACK, _command_reason(word, who, why), now)
    if not now_at.is_open:
        raise ConfigError(f"{word}: the release is over ({now_at.phase}: {now_at.reason}).")
    match word:
        case Command.APPROVE:
            return _approve(plan, now_at, who=who, why=why)
        case Command.PAUSE if now_at.is_paused:
            raise ConfigError(f"pause: it is paused already ({now_at.reason}).")
        case Command.PAUSE:
            return replace(now_at, is_paused=True, reason=_command_reason(word, who, why))
        case Command.RESUME if not now_at.is_paused:
            raise ConfigError("resume: the release is not paused.")
        case Command.RESUME:
            return replace(now_at, is_paused=False, reason=_command_reason(word, who, why))
        case _:
            return _end(now_at, ReleasePhase.ABORTED, _command_reason(word, who, why), now)


def is_step_answering(plan: ReleasePlan, at: Passage) -> bool:
    """True if callers get answers of the new version in this step."""
    return at.step >= 0 and not steps_of(plan)[at.step].is_shadow


def arms_of(
    plan: ReleasePlan,
    at: Passage,
    *,
    present: Sequence[Arm],
    baseline: str,
    challenger: str,
    contents: Mapping[str, str] = MappingProxyType({}),
) -> list[Arm]:
    """The endpoint's arms in this state, with those of others, which have no share of the traffic.

    `contents` are the hashes of policies that are folders.
    """
    old = Arm(name=STABLE, policy=baseline, content=contents.get(baseline, ""))
    new = Arm(name=STABLE, policy=challenger, content=contents.get(challenger, ""))
    others = [arm for arm in present if arm.name not in (_stable_in(present).name, CANARY)]
    match at.phase:
        case ReleasePhase.DONE if not steps_of(plan)[-1].is_shadow:
            return [new, *others]
        case ReleasePhase.STOPPED:
            return list(present)
        case ReleasePhase.OPEN:
            step = steps_of(plan)[at.step] if at.step >= 0 else PlanStep(share=0.0, minutes=0, units=0)
            role = Role.SHADOW if step.is_shadow else Role.CANARY
            heard = 0.0 if step.is_shadow else step.share
            return [
                replace(old, share=round(1.0 - heard, 9)),
                replace(new, name=CANARY, share=step.share, role=role),
                *others,
            ]
        case _:
            return [old, *others]


def refuse_arms(endpoint: str, present: Sequence[Arm]) -> None:
    """A StoreError for an endpoint whose traffic is divided already, or whose names are taken."""
    stable = _stable_in(present)
    if stable.name != STABLE:
        raise StoreError(
            f"endpoint {endpoint!r}: a release needs a stable arm called {STABLE!r}; it is {stable.name!r}."
        )
    for arm in present:
        if arm is stable:
            continue
        if arm.role is Role.CANARY and arm.share > 0:
            raise StoreError(
                f"endpoint {endpoint!r}: arm {arm.name!r} has {arm.share:g} of the traffic. A release divides it by "
                f"itself; give all of it to {STABLE!r} first: loomrl endpoints set {endpoint} {STABLE}={stable.policy}"
            )
        if arm.name == CANARY:
            raise StoreError(
                f"endpoint {endpoint!r}: the release needs the name {CANARY!r}, and an arm has it. Remove it."
            )


def parse_command(text: str) -> Command:
    """The command of this name."""
    try:
        return Command(text)
    except ValueError:
        raise ConfigError(f"{text!r}: known are {', '.join(Command)}.{did_you_mean(text, list(Command))}") from None


def _step_waits(step: PlanStep, now_at: Passage, evidence: ReleaseEvidence, now: float) -> list[str]:
    left = now_at.since + 60 * step.minutes - now
    reasons = [f"{step} lasts another {left / 60:.1f} minutes"] if left > 0 else []
    if evidence.units < step.units:
        reasons.append(f"{evidence.units} of {step.units} units at {step}")
    return reasons


def _proof_waits(plan: ReleasePlan, evidence: ReleaseEvidence) -> list[str]:
    """The metrics that must be proved fine before the version gets all of the traffic."""
    reasons = []
    for guard, finding in zip(plan.guards, evidence.findings, strict=True):
        is_there = min(finding.challenger.count, finding.baseline.count) >= finding.guard.least
        least = finding.guard.least
        if guard.waits == "always" and not is_there:
            few = "not one observation" if least == 1 else f"fewer than {least} observations"
            reasons.append(f"{finding.guard.label}: {few} of it came from both versions")
        elif guard.waits != "never" and is_there and not finding.is_fine:
            reasons.append(f"not proved fine yet: {finding.reason}")
    return reasons


def _is_beyond(guard: GuardSetting, finding: Finding) -> bool:
    """Proved worse, and beyond the guard's limit."""
    assert guard.limit is not None
    if finding.guard.better is Better.LOWER:
        return finding.is_proved and finding.challenger.value > guard.limit
    return finding.is_proved and finding.challenger.value < guard.limit


def _approve(plan: ReleasePlan, now_at: Passage, *, who: str, why: str) -> Passage:
    steps = steps_of(plan)
    if who not in plan.approvers:
        allowed = ", ".join(plan.approvers) or "nobody: it asks for no approval"
        raise ConfigError(f"approve: {who!r} may not approve. The plan allows {allowed}.")
    asked = [
        at for at, step in enumerate(steps) if at > max(now_at.step, now_at.approved) and step.share in plan.approvals
    ]
    if not asked:
        raise ConfigError("approve: every step that needs an approval has it.")
    said = f"{_command_reason(Command.APPROVE, who, why)}: {steps[asked[0]]}"
    return replace(now_at, approved=asked[0], reason=said)


def _command_reason(word: Command, who: str, why: str) -> str:
    return f"{word} by {who}" + (f" ({why})" if why else "")


def _end(now_at: Passage, phase: ReleasePhase, reason: str, now: float) -> Passage:
    return replace(now_at, phase=phase, since=now, is_paused=False, reason=reason)


def _stable_in(arms: Sequence[Arm]) -> Arm:
    return next(arm for arm in arms if arm.role is Role.STABLE)
