"""The state machine alone: whatever comes, its histories are legal."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.config.release import GUARDS, GuardSetting, ReleasePlan
from loomrl.errors import ConfigError, StoreError
from loomrl.release.guard import Finding, Side
from loomrl.release.passage import (
    START,
    Command,
    Passage,
    ReleaseEvidence,
    ReleasePhase,
    apply_command,
    arms_of,
    choose_strategy,
    decide,
    guards_of,
    refuse_arms,
    steps_of,
    waits_for,
)
from loomrl.store.endpoints import Arm, Role

BASE = Arm(name="stable", policy="run/1")
PLAN = ReleasePlan(strategy="canary")
STRATEGIES = ("canary", "blue_green", "immediate", "shadow")


def findings(plan: ReleasePlan, **changes: object) -> tuple[Finding, ...]:
    """All fine, but for these fields."""
    side = Side(value=0.0, count=100)
    fine: dict[str, Any] = {"baseline": side, "challenger": side, "difference": 0.0, "low": -0.01, "high": 0.01}
    fine |= {"is_proved": False, "is_worse": False, "is_fine": True, **changes}
    return tuple(Finding(guard=guard, **fine) for guard in guards_of(plan))


def good(plan: ReleasePlan, **changes: object) -> ReleaseEvidence:
    return replace(ReleaseEvidence(findings=findings(plan), units=1000, is_up=True), **changes)  # type: ignore[arg-type]


def at(step: int, since: float = 0.0, **fields: object) -> Passage:
    return Passage(step=step, since=since, **fields)  # type: ignore[arg-type]


def arms_at(passage: Passage, *, present: Sequence[Arm] = (BASE,), plan: ReleasePlan = PLAN) -> list[Arm]:
    return arms_of(plan, passage, present=present, baseline="run/1", challenger="run/2")


def apply(passage: Passage, command: Command, *, who: str = "ann", why: str = "", plan: ReleasePlan = PLAN) -> Passage:
    return apply_command(plan, passage, command, who=who, why=why, now=1.0)


plans = st.builds(
    lambda strategy, shares, minutes, approve: ReleasePlan.parse(
        {
            "strategy": strategy,
            **({"steps": [{"share": s, "minutes": minutes} for s in [*shares, 1.0]]} if strategy == "canary" else {}),
            **({"approvals": [1.0], "approvers": ["ann"]} if approve else {}),
        }
    ),
    st.sampled_from(STRATEGIES),
    st.lists(st.floats(0.01, 0.99), max_size=4, unique=True).map(sorted),
    st.floats(0, 120),
    st.booleans(),
)
seen = st.builds(
    dict,
    units=st.integers(0, 300),
    failed=st.integers(0, 40),
    failed_s=st.floats(0, 10),
    trips=st.sampled_from([0, 0, 0, 0, 1]),
    is_up=st.booleans(),
    is_mismatched=st.sampled_from([False, False, True]),
    is_touched=st.sampled_from(["", "", "", "", "revision 9"]),
    jumped_s=st.sampled_from([0.0, 0.0, 3600.0, -3600.0]),
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("look"), st.floats(0, 8000), seen, st.booleans(), st.booleans()),
        st.tuples(st.just("word"), st.sampled_from(list(Command)), st.sampled_from(["ann", "bob"])),
    ),
    max_size=40,
)


@given(plans, events)
def test_every_history_is_legal(plan: ReleasePlan, happenings: Sequence[tuple]) -> None:  # type: ignore[type-arg]
    now, passage = 0.0, Passage(since=0.0)
    present: list[Arm] = [BASE]
    history = [passage]
    for kind, *rest in happenings:
        if kind == "word":
            try:
                after: Passage | None = apply_command(plan, passage, rest[0], who=rest[1], why="", now=now)
            except ConfigError:
                after = None
        else:
            seconds, fields, is_worse, is_fine = rest
            now += seconds
            evidence = ReleaseEvidence(findings=findings(plan, is_worse=is_worse, is_fine=is_fine), **fields)
            after = decide(plan, passage, evidence, now)
            if after is not None and after.step > passage.step:
                assert not waits_for(plan, passage, evidence, now)
                assert not evidence.jumped_s or passage.since >= now - 5
            if after is None and passage.is_open and passage.step > START:
                assert not is_worse
                assert not fields["trips"]
        if after is None:
            continue
        history.append(after)
        passage = after
        present = arms_at(passage, present=present, plan=plan)
        shares = [arm.share for arm in present if arm.role is not Role.SHADOW]
        assert sum(shares) == pytest.approx(1.0)
        assert [arm.role for arm in present].count(Role.STABLE) == 1
    for before, later in pairwise(history):
        assert before.is_open or (before.phase is ReleasePhase.DONE and later.phase is ReleasePhase.ROLLED_BACK)
        assert later.step - before.step in (0, 1)
        if later.step > before.step:
            assert later.phase is ReleasePhase.OPEN
            assert not before.is_paused


def test_good_version_takes_every_step_after_its_time_and_is_stable_at_the_end() -> None:
    passage, now, shares = Passage(since=0.0), 0.0, []
    while passage.is_open:
        after = decide(PLAN, passage, good(PLAN), now)
        now += 60
        if after is not None:
            passage = after
            arms = arms_at(passage)
            shares.append((round(now / 60), {arm.policy: arm.share for arm in arms}.get("run/2")))
    assert shares == [(1, 0.1), (61, 0.25), (121, 0.5), (241, 1.0), (301, 1.0)]
    assert arms == [Arm(name="stable", policy="run/2")]


WORSE = {"is_proved": True, "difference": 0.03, "challenger": Side(value=0.06, count=200)}
AT_LEAST_HALF = GuardSetting(metric="reward", better="higher", margin=0.05, limit=0.5)
FEW = {"is_proved": True, "difference": 0.004, "challenger": Side(value=0.004, count=5000)}


@pytest.mark.parametrize(
    ("guard", "found", "changes", "said"),
    [
        (GUARDS[0], {}, {"trips": 1}, "monitor tripped"),
        (GUARDS[0], {}, {"failed": 20, "failed_s": 3.0}, "all failed"),
        (GUARDS[0], {}, {"failed": 40, "failed_s": 2.2}, ""),  # a burst whose successes are not on record yet
        (GUARDS[0], WORSE, {}, "beyond 0.05 and worse: error"),
        (GUARDS[0], WORSE | {"is_proved": False}, {}, ""),
        (GUARDS[0], WORSE | {"challenger": Side(value=0.04, count=200)}, {}, ""),
        (GUARDS[2], FEW, {}, "worse: violation"),
        (AT_LEAST_HALF, WORSE | {"challenger": Side(value=0.4, count=200)}, {}, "beyond 0.5 and worse: reward"),
        (AT_LEAST_HALF, WORSE | {"challenger": Side(value=0.6, count=200)}, {}, ""),
    ],
)
def test_harm_takes_a_version_back_at_once_even_while_paused(
    guard: GuardSetting, found: dict[str, object], changes: dict[str, object], said: str
) -> None:
    plan = ReleasePlan(strategy="canary", guards=(guard,))
    after = decide(plan, at(0, is_paused=True), good(plan, findings=findings(plan, **found), **changes), 1.0)
    assert (after is not None) == bool(said)
    assert after is None or (after.phase, said in after.reason) == (ReleasePhase.ROLLED_BACK, True)


def test_time_alone_promotes_nobody() -> None:
    for evidence, said in (
        (good(PLAN, units=99), "99 of 100 units"),
        (good(PLAN, is_mismatched=True), "do not divide"),
    ):
        assert decide(PLAN, at(0), evidence, 1e9) is None
        assert said in str(waits_for(PLAN, at(0), evidence, 1e9))


def test_required_metric_that_never_arrives_keeps_the_last_step_away_and_is_named() -> None:
    missing = good(PLAN, findings=findings(PLAN, challenger=Side(value=float("nan"), count=0), is_fine=False))
    assert decide(PLAN, at(1), missing, 1e9) == at(2, since=1e9, reason="step 3 of 4: 50 %")
    assert decide(PLAN, at(2), missing, 1e9) is None
    assert waits_for(PLAN, at(2), missing, 1e9) == ("error: not one observation of it came from both versions",)


def test_metrics_that_were_observed_have_to_be_proved_fine_before_the_last_step() -> None:
    unproved = good(PLAN, findings=findings(PLAN, is_fine=False))
    names = [reason.split(": ")[1] for reason in waits_for(PLAN, at(2), unproved, 1e9)]
    means = ["error", "violation", "empty", "reward", "success", "unearned"]
    tails = ["p25 of tokens, longest 10 % of prompts", *(f"p10 of {name}" for name in ("reward", "reward_of_user"))]
    assert sorted(names) == sorted([*means, *tails, "p10 of success_of_user"]), "200 units are needed for p5"


def test_only_approvers_approve_and_a_step_waits_for_them() -> None:
    plan = ReleasePlan.parse({"strategy": "canary", "approvals": [1.0], "approvers": ["ann"]})
    assert decide(plan, at(2), good(plan), 1e9) is None
    with pytest.raises(ConfigError, match=r"'bob' may not approve\. The plan allows ann"):
        apply(at(2), Command.APPROVE, who="bob", plan=plan)
    approved = apply(at(2), Command.APPROVE, why="looks good", plan=plan)
    assert approved.reason == "approve by ann (looks good): 100 %"
    after = decide(plan, approved, good(plan), 1e9)
    assert after.step == 3
    with pytest.raises(ConfigError, match="has it"):
        apply(approved, Command.APPROVE, plan=plan)


def test_a_word_that_means_nothing_now_is_refused() -> None:
    with pytest.raises(ConfigError, match="not paused"):
        apply(at(0), Command.RESUME)
    over = at(0, phase=ReleasePhase.ROLLED_BACK)
    with pytest.raises(ConfigError, match="is over"):
        apply(over, Command.ROLLBACK)


@pytest.mark.parametrize(
    ("advice", "strategy", "first"),
    [
        (("blue_green", 1.0), "blue_green", 0.1),
        (("canary", 0.1), "canary", 0.1),
        (("canary", 0.05), "canary", 0.05),
        (("canary", 0.25), "canary", 0.25),
    ],
)
def test_strategy_is_the_one_that_the_gate_advises_unless_the_plan_says_one(
    advice: tuple[str, float], strategy: str, first: float
) -> None:
    plan = choose_strategy(ReleasePlan(), *advice)
    assert (plan.strategy, plan.steps[0].share) == (strategy, first)
    assert choose_strategy(ReleasePlan(strategy="shadow"), *advice).strategy == "shadow"


def test_shadow_answers_nobody_and_ends_where_it_began() -> None:
    plan = ReleasePlan(strategy="shadow")
    arms = arms_at(at(0), plan=plan)
    assert [(arm.role, arm.share) for arm in arms] == [(Role.STABLE, 1.0), (Role.SHADOW, 1.0)]
    after = decide(plan, at(0), good(plan), 1e9)
    assert after.phase is ReleasePhase.DONE
    assert arms_at(after, present=arms, plan=plan) == [BASE]
    steps = steps_of(ReleasePlan(strategy="blue_green"))
    assert [(step.share, step.is_shadow) for step in steps] == [(1.0, True), (1.0, False)], "then all at once"


def test_arms_of_others_without_traffic_stay_and_divided_traffic_is_refused() -> None:
    variant = Arm(name="b", policy="run/5", share=0.0, role=Role.CANARY)
    arms = arms_at(at(0), present=[BASE, variant])
    assert variant in arms
    refuse_arms("e", [BASE, variant])
    with pytest.raises(StoreError, match=r"arm 'b' has 0\.2 of the traffic"):
        refuse_arms("e", [replace(BASE, share=0.8), replace(variant, share=0.2)])
    with pytest.raises(StoreError, match="needs the name 'canary'"):
        refuse_arms("e", [BASE, replace(variant, name="canary")])


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"step": []}, "Did you mean 'steps'"),
        ({"steps": [{"share": 0.5}]}, "must rise to 1"),
        ({"steps": [{"share": 0.5}, {"share": 0.2}, {"share": 1}]}, "must rise to 1"),
        ({"approvals": [1.0]}, "give both"),
        ({"approvals": [0.3], "approvers": ["ann"]}, "share of no step"),
        ({"guards": [{"metric": "error", "better": "lower"}]}, "could never be proved"),
        ({"guards": [{"metric": "error", "better": "lower", "margin": 1.0}]}, "nothing could be worse"),
        ({"guards": [{"metric": "x", "better": "lower", "quantile": 0.9, "margin": 0.1}]}, "needs times"),
        ({"guards": [{"metric": "x", "better": "lower", "margin": 0.1}] * 2}, "x is there twice"),
        ({"strategy": "immediate", "steps": [{"share": 0.3}, {"share": 1}]}, "steps has no effect"),
        ({"error_rate": 0.9}, "less than or equal to 0.5"),
    ]
)  # fmt: skip
def test_plans_that_contradict_themselves_are_refused(raw: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ReleasePlan.parse(raw)
