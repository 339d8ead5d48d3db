"""Gateways observe the outcomes of calls, by the arm that the unit was assigned to."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from loomrl.config.release import ReleasePlan
from loomrl.release.controller import ReleaseEvidenceLog
from loomrl.serving import measure
from loomrl.serving.call import ChoiceClosed, Gathered, ToolCall
from loomrl.serving.deployment import reconcile
from loomrl.serving.deployment.reconcile import StoredView
from loomrl.serving.measure import MeasuredCall, Measures
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.split import assign_arm
from loomrl.store import LoomDB
from loomrl.store.ab_tests import AbTest, start_test
from loomrl.store.endpoints import Arm, Endpoint, Role, set_endpoint
from loomrl.store.feedback import append_feedback
from loomrl.store.observations import Observation, read_observations
from loomrl.types import Feedback
from tests.serving.local_gateway import FixedView
from tests.serving.scripted import tokens_drawn
from tests.serving.waiting import until

STABLE = Arm(name="stable", policy="run/1", share=0.5)
CANARY = Arm(name="canary", policy="run/2", share=0.5, role=Role.CANARY)
SPLIT = Endpoint(name="e", revision=7, arms=(STABLE, CANARY), created_at=0.0)
ALONE = replace(SPLIT, arms=(replace(STABLE, share=1.0),))


def unit_of(arm: str, endpoint: Endpoint = SPLIT) -> str:
    units = (f"u{n}" for n in range(1000))
    return next(each for each in units if (found := assign_arm(endpoint, (), each)) and found.arm.name == arm)


async def observed(
    store: LoomDB, calls: Callable[[Measures], None], endpoint: Endpoint = SPLIT, *, settle_s: float = 60.0
) -> list[Observation]:
    measures = Measures(store, FixedView({"e": endpoint}), source="g", settle_s=settle_s)
    await measures.start()
    calls(measures)
    await measures.close()
    return [each for _, each in read_observations(store, "e")]


def begun(measures: Measures, unit: str, endpoint: Endpoint = SPLIT) -> MeasuredCall:
    """A call of this unit, which is measured."""
    measured = measures.begin(endpoint, unit)
    assert measured is not None
    return measured


def values(found: list[Observation], metric: str) -> list[tuple[str, float]]:
    return [(each.arm, each.value) for each in found if each.metric == metric]


async def test_an_answer_of_another_arm_is_an_error_of_the_assigned_one(store: LoomDB) -> None:
    def calls(measures: Measures) -> None:
        for arm, answered_by in (("canary", "stable"), ("stable", "stable")):
            measured = begun(measures, unit_of(arm))
            measured.note_answer(answered_by)

    found = await observed(store, calls)
    assert sorted(values(found, "error")) == [("canary", 1.0), ("stable", 0.0)]
    assert len(values(found, "latency_s")) == 2
    assert {each.revision for each in found} == {7}


@pytest.mark.parametrize(
    ("cause", "errors"),
    [
        (RefusalCause.INTERNAL, 1),
        (RefusalCause.TIMEOUT, 1),
        (RefusalCause.FULL, 1),
        (RefusalCause.INVALID, 0),
        (RefusalCause.TOO_LONG, 0),
    ],
    ids=["internal", "timeout", "full", "invalid", "too-long"],
)
async def test_a_wrong_request_is_no_error_of_the_arm(store: LoomDB, cause: RefusalCause, errors: int) -> None:
    def calls(measures: Measures) -> None:
        measured = begun(measures, unit_of("canary"))
        measured.note_failure(Refusal(cause, "no"))

    assert values(await observed(store, calls), "error") == [("canary", 1.0)] * errors


async def test_a_unit_is_one_observation_of_a_metric(store: LoomDB) -> None:
    def calls(measures: Measures) -> None:
        for fails in (False, True, True, False):
            measured = begun(measures, unit_of("canary"))
            if fails:
                measured.note_failure(Refusal(RefusalCause.INTERNAL, "no"))
            else:
                measured.note_answer("canary")

    found = await observed(store, calls)
    assert sorted(each.metric for each in found) == ["error", "latency_s"]
    assert values(found, "error") == [("canary", 1.0)]


async def test_calls_after_a_unit_is_settled_add_nothing(store: LoomDB) -> None:
    measures = Measures(store, FixedView({"e": SPLIT}), source="g", settle_s=0.0)
    await measures.start()
    for _ in range(2):
        measured = begun(measures, "somebody")
        measured.note_answer("canary" if assign_arm(SPLIT, (), "somebody").arm == CANARY else "stable")  # type: ignore[union-attr]
        await until(lambda: read_observations(store, "e"))
    await measures.close()
    assert len(read_observations(store, "e")) == 2


async def test_an_answer_that_takes_longer_than_units_are_waited_for_is_observed(store: LoomDB) -> None:
    """Else fast arms would have more units than slow ones, and nothing could be compared."""
    measures = Measures(store, FixedView({"e": SPLIT}), source="g", settle_s=0.0)
    await measures.start()
    slow, quick = (measures.begin(SPLIT, unit_of(arm)) for arm in ("stable", "canary"))
    assert slow is not None
    assert quick is not None
    slow.first()
    quick.note_answer("canary")
    await until(lambda: read_observations(store, "e"))
    slow.note_answer("stable")
    await measures.close()
    found = [each for _, each in read_observations(store, "e")]
    assert sorted(values(found, "error")) == [("canary", 0.0), ("stable", 0.0)]
    assert len(values(found, "latency_s")) == 2


async def test_an_endpoint_with_one_arm_is_not_measured(store: LoomDB) -> None:
    def calls(measures: Measures) -> None:
        assert measures.begin(ALONE, "somebody", session="s") is None
        assert measures.complete("s", key="", reward=1.0)

    assert await observed(store, calls, ALONE) == []


async def test_rewards_count_for_the_arm_of_the_session_and_only_with_its_key(store: LoomDB) -> None:
    def calls(measures: Measures) -> None:
        measures.begin(SPLIT, unit_of("canary"), session="s", key="mine")
        assert not measures.complete("s", key="another", reward=0.1)
        assert not measures.complete("t", key="mine", reward=0.1)
        assert measures.complete("s", key="mine", reward=0.75, success=None)
        assert measures.complete("s", key="mine", reward=0.2)

    found = await observed(store, calls)
    assert [(each.arm, each.metric, each.value) for each in found] == [("canary", "reward", 0.75)]


async def test_negative_feedback_of_a_session_counts_for_its_arm(store: LoomDB) -> None:
    measures = Measures(store, FixedView({"e": SPLIT}), source="g")
    await measures.start()
    for session, value in (("s", 0.0), ("t", 1.0)):
        measures.begin(SPLIT, unit_of("canary" if session == "s" else "stable"), session=session)
        told = Feedback(id=session, trajectory=session, source="human", kind="thumb", value=value)
        append_feedback(store, [told])
    await measures.close()
    found = [each for _, each in read_observations(store, "e")]
    assert sorted(values(found, "negative")) == [("canary", 1.0), ("stable", 0.0)]


async def test_success_that_a_second_check_does_not_find_is_unearned_once_both_are_known(store: LoomDB) -> None:
    measures = Measures(store, FixedView({"e": SPLIT}), source="g")
    await measures.start()
    for session, correct in (("s", 0.25), ("t", 1.0), ("u", None)):
        measures.begin(SPLIT, unit_of("stable" if session == "t" else "canary"), session=session)
        measures.complete(session, key=None, success=0.75)
        if correct is not None:
            data = {"correct": correct}
            judged = Feedback(id=session, trajectory=session, source="caller", kind="outcome", value=correct, data=data)
            append_feedback(store, [judged])
    await measures.close()
    found = [each for _, each in read_observations(store, "e")]
    assert sorted(values(found, "unearned")) == [("canary", 0.5), ("stable", 0.0)]
    assert sorted(values(found, "correct")) == [("canary", 0.25), ("stable", 1.0)]


async def test_a_violation_is_observed_once(store: LoomDB) -> None:
    def calls(measures: Measures) -> None:
        measured = begun(measures, unit_of("canary"))
        for violation in (False, True, True):
            measured.note_verdict(violation=violation)

    assert values(await observed(store, calls), "violation") == [("canary", 1.0)]


@pytest.mark.parametrize("changed", [True, False], ids=["changed", "equal"])
async def test_a_release_can_guard_the_length_entropy_and_refusals_of_answers(store: LoomDB, changed: bool) -> None:
    plan = ReleasePlan.parse({"guards": [
        {"metric": "entropy", "better": "higher", "high": 5, "margin": 0.2, "waits": "never"},
        {"metric": "tokens", "better": "lower", "high": 64, "times": 1.5, "waits": "never"},
        {"metric": "refusal", "better": "lower", "margin": 0.02, "waits": "never"},
    ]})  # fmt: skip
    rng = random.Random(0)

    def calls(measures: Measures) -> None:
        for number in range(1500):
            measured = measures.begin(SPLIT, f"u{number}")
            assignment = assign_arm(SPLIT, (), f"u{number}")
            assert measured is not None
            assert assignment is not None
            is_other = changed and assignment.arm.name == "canary"
            count = rng.randint(5, 10) * (4 if is_other else 1)
            refuses = rng.random() < (0.5 if is_other else 0.1)
            measured.note_choices(
                assignment.arm.name, [drawn(count, 0.2 if is_other else 2.0, refuses=refuses)], prompt_chars=9
            )
            measured.note_choices("another", [drawn(64, 5.0, refuses=True)], prompt_chars=9)  # not of the assigned arm

    trail = ReleaseEvidenceLog(plan, first_revision=7, shares={7: {"stable": 0.5, "canary": 0.5}})
    trail.take(await observed(store, calls))
    assert [finding.is_worse for finding in trail.findings()] == [changed] * 3
    assert all(min(finding.baseline.count, finding.challenger.count) > 600 for finding in trail.findings())


def answer_of(text: str, count: int, surprise: float = 1.0) -> Gathered:
    """An answer of so many tokens, each of this surprise."""
    choice = Gathered()
    choice.add(tokens_drawn([1] * count, logprobs=-surprise))
    choice.add(ChoiceClosed(text=text, finish="stop"))
    return choice


def drawn(count: int, surprise: float, *, refuses: bool) -> Gathered:
    return answer_of("I can't do that." if refuses else "Here you are.", count, surprise)


@pytest.mark.parametrize("limit", [40, 1000], ids=["long", "hardly-any"])
async def test_the_default_plan_sees_answers_that_are_empty_to_long_prompts_only(store: LoomDB, limit: int) -> None:
    rng = random.Random(0)

    def calls(measures: Measures) -> None:
        for number in range(600):
            measured = measures.begin(SPLIT, f"u{number}")
            assignment = assign_arm(SPLIT, (), f"u{number}")
            assert measured is not None
            assert assignment is not None
            length = rng.randint(1, 50)
            is_empty = length > limit and assignment.arm.name == "canary"
            measured.note_choices(assignment.arm.name, [said("" if is_empty else "Here you are.")], prompt_chars=length)

    trail = ReleaseEvidenceLog(ReleasePlan(), first_revision=7, shares={7: {"stable": 0.5, "canary": 0.5}})
    trail.take(await observed(store, calls))
    worse = {finding.guard.label for finding in trail.findings() if finding.is_worse}
    assert worse == ({"empty", "p5 of tokens", "p25 of tokens, longest 10 % of prompts"} if limit == 40 else set())


def said(text: str) -> Gathered:
    """An answer of these words; without any it still has the token that ends it."""
    return answer_of(text, len(text.split()) + 1)


async def test_an_answer_that_is_a_tool_call_is_not_empty(store: LoomDB) -> None:
    def calls(measures: Measures) -> None:
        for arm, texts in (("stable", ["", ""]), ("canary", ["Yes.", " \n"])):
            measured = begun(measures, unit_of(arm))
            for text in texts:
                choice = said(text)
                if arm == "stable":
                    assert choice.closed is not None
                    choice.closed = replace(choice.closed, calls=(ToolCall(id="1", name="f", arguments="{}"),))
                measured.note_choices(arm, [choice], prompt_chars=9)

    assert sorted(values(await observed(store, calls), "empty")) == [("canary", 0.5), ("stable", 0.0)]


@pytest.mark.parametrize(("bad", "seen"), [(3, [1.0]), (None, [0.0])], ids=["empty-later", "fine"])
async def test_what_goes_wrong_after_the_first_answers_is_observed_too(
    store: LoomDB, bad: int | None, seen: list[float]
) -> None:
    def calls(measures: Measures) -> None:
        for number in range(8):
            measured = begun(measures, unit_of("canary"))
            measured.note_answer("canary")
            measured.note_choices("canary", [said("" if number == bad else "Yes.")], prompt_chars=9)
            if number == 0:
                measures.over(measured._unit)

    found = await observed(store, calls)
    assert [value for _, value in values(found, "later")] == seen
    assert [value for _, value in values(found, "empty")] == [0.0]


async def test_four_sessions_of_a_user_are_one_observation_beside_the_first(store: LoomDB) -> None:
    def calls(measures: Measures) -> None:
        for number in range(6):
            measures.begin(SPLIT, unit_of("canary"), session=f"s{number}")
            for _ in range(2):  # a session told twice counts once
                measures.complete(f"s{number}", key=None, success=float(number in (0, 4)))

    found = await observed(store, calls)
    assert values(found, "success") == [("canary", 1.0)]
    assert values(found, "success_of_user") == [("canary", 0.25)]


async def test_units_of_a_test_are_observed_as_the_test_s(store: LoomDB) -> None:
    test = AbTest(
        name="x", endpoint="e", layer="l", end=1.0, shares={"stable": 0.5, "canary": 0.5},
        metric="success", better="higher", started_at=0.0,
    )  # fmt: skip
    measures = Measures(store, FixedView({"e": ALONE}, running=[replace(test, shares={"stable": 1.0})]), source="g")
    await measures.start()
    measured = begun(measures, "somebody", ALONE)
    measured.note_answer("stable")
    await measures.close()
    assert {each.test for _, each in read_observations(store, "e")} == {"x"}


async def test_a_gateway_follows_a_new_revision_and_a_new_test_at_a_glance(
    store: LoomDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomrl.serving.deployment.reconcile.PACE_S", 1000.0)  # only glances are left
    set_endpoint(store, "e", [STABLE, CANARY], at=1.0)
    view = StoredView(store, token="secret")
    await view.start()
    set_endpoint(store, "e", [replace(STABLE, share=1.0)], at=2.0)
    await until(lambda: (now := view.endpoint("e")) and now.revision == 2)
    test = AbTest(
        name="x", endpoint="e", layer="l", end=0.5, shares={"stable": 0.5, "new": 0.5},
        metric="success", better="higher", started_at=3.0,
    )  # fmt: skip
    start_test(store, test, [Arm(name="new", policy="run/3")])
    await until(lambda: view.tests("e"))
    await view.close()
    assert (view.endpoint("e") or SPLIT).revision == 3


async def test_a_gateway_asks_nothing_while_nothing_is_committed(
    store: LoomDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "PACE_S", 1000.0)
    monkeypatch.setattr(reconcile, "GLANCE_S", 0.001)
    asked: list[None] = []
    glances: list[None] = []
    ask = reconcile.last_change
    version = LoomDB.version
    monkeypatch.setattr(reconcile, "last_change", lambda db: (asked.append(None), ask(db))[1])
    monkeypatch.setattr(LoomDB, "version", lambda db: (glances.append(None), version(db))[1])
    view = StoredView(store, token="secret")
    await view.start()
    await until(lambda: len(glances) > 20)
    assert len(asked) == 2  # to begin with, and to know the version at which nothing had changed
    set_endpoint(store, "e", [replace(STABLE, share=1.0)], at=1.0)
    await until(lambda: view.endpoint("e"))
    await view.close()


async def test_what_is_being_written_at_the_end_is_not_lost(store: LoomDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine, where the write waits for a thread: one that were cancelled would never begin."""
    began, append = asyncio.Event(), measure.append_observations
    loop = asyncio.get_running_loop()

    def slow(*arguments: Any) -> None:
        append(*arguments)

    async def late(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if work is slow:
            began.set()
            await asyncio.sleep(0.05)
        return await loop.run_in_executor(None, partial(work, *arguments, **named))

    monkeypatch.setattr(measure, "append_observations", slow)
    monkeypatch.setattr(measure.asyncio, "to_thread", late)
    measures = Measures(store, FixedView({"e": SPLIT}), source="g", settle_s=0.0)
    await measures.start()
    measured = begun(measures, unit_of("canary"))
    measured.note_answer("canary")
    await began.wait()
    await measures.close()
    assert len(read_observations(store, "e")) == 2
