"""What a loop does next: triggers, turns, failures, the gate and the release, as a pure function."""

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.decision import (
    BeginRelease,
    GateVerdict,
    JobEvidence,
    LoopRecord,
    Move,
    Prepare,
    QueueJob,
    ReleaseOutcome,
    Step,
    TrainedPolicy,
    WorkState,
    decide,
    fail,
    is_late,
    last_moment,
    work_of,
)
from loomrl.coordinator.degradation import Fall
from loomrl.coordinator.job import LEGAL, Code, JobFault, JobPhase, Priority, TrainingJob, Trigger
from tests.coordinator.plans import DAY, HOUR, MINUTE, NOW, job, plan, record

AT_WORK = JobEvidence(work=WorkState.RUNNING)
RUNNING = {"phase": JobPhase.RUNNING, "run": "r", "begun_at": NOW, "host": "here"}
COMPLETED = {**RUNNING, "phase": JobPhase.COMPLETED, "policy": "r/9"}


def decided(*jobs: TrainingJob, at: float = NOW, loop: LoopExperiment | None = None, **seen: Any) -> Step | None:
    return decide(loop or plan(), record(*jobs, **seen), at)


def work_over(outcome: Any = None, judged: GateVerdict | None = None, **changes: Any) -> JobEvidence:
    return JobEvidence(work=WorkState.ENDED, outcome=outcome, verdict=judged, **changes)


def asked(*jobs: TrainingJob, **seen: Any) -> TrainingJob:
    step = decided(*jobs, **seen)
    assert isinstance(step, QueueJob), step
    return step.job


def moved(*jobs: TrainingJob, **seen: Any) -> Move:
    step = decided(*jobs, **seen)
    assert isinstance(step, Move), step
    return step


# -- triggers -------------------------------------------------------------------------------------------------------


def test_enough_new_trajectories_ask_for_a_training_once() -> None:
    assert decided(collected=99) is None
    first = asked(collected=100)
    assert (first.trigger, first.priority, first.seen) == (Trigger.COUNT, Priority.NORMAL, 100)
    assert asked(collected=180, at=NOW + 9).id == first.id, "whoever decides on the same record asks for the same job"
    over = replace(first, phase=JobPhase.DONE)
    assert decided(over, collected=199) is None
    assert asked(over, collected=200).id != first.id


def test_schedule_asks_once_a_moment_however_late_and_not_without_anything_new() -> None:
    daily = plan(triggers__schedule="0 2 * * *", triggers__count=None)
    moment = last_moment("0 2 * * *", NOW)
    assert NOW - moment == 6 * HOUR
    assert decided(loop=daily) is None
    first = asked(loop=daily, collected=1)
    assert (first.trigger, first.due) == (Trigger.SCHEDULE, moment)
    over = replace(first, phase=JobPhase.DONE)
    assert decided(over, loop=daily, collected=9, at=NOW + 17 * HOUR) is None
    assert asked(over, loop=daily, collected=9, at=NOW + 10 * DAY).due == moment + 10 * DAY
    assert decide(daily, replace(record(collected=1), since=moment + 1), NOW) is None
    by_hand = job(trigger=Trigger.HAND, phase=JobPhase.DONE, begun_at=moment + 1)
    assert decided(by_hand, loop=daily, collected=5) is None, "that one was meant"


def test_degradation_is_urgent_and_told_once() -> None:
    fall = Fall(policy="r/1", window=2, position=600, before=0.7, now=0.5, low=-0.3, high=-0.1)
    found = asked(fall=fall, collected=500)
    assert (found.trigger, found.priority, found.fallen) == (Trigger.DEGRADATION, Priority.URGENT, 600)
    over = replace(found, phase=JobPhase.FAILED)
    assert decided(over, fall=fall, collected=500) is None
    again = replace(fall, window=3, position=900)
    assert asked(over, fall=again, collected=500).fallen == 900


def test_what_is_urgent_goes_first_and_nothing_begins_beside_a_job() -> None:
    late, early = job("late", asked_at=NOW + 2), job("early", asked_at=NOW + 1)
    by_hand = job("hand", priority=Priority.HIGH, asked_at=NOW + 3)
    urgent = job("urgent", priority=Priority.URGENT, asked_at=NOW + 4)
    order, waiting = [], [late, early, by_hand, urgent]
    while waiting:
        step = decided(*waiting, at=NOW + 9)
        assert isinstance(step, Prepare)
        order.append(step.job.id)
        waiting.remove(step.job)
    assert order == ["urgent", "hand", "early", "late"]
    busy = job("busy", **RUNNING)
    assert decided(busy, urgent, evidence=AT_WORK) is None


# -- failures -------------------------------------------------------------------------------------------------------


def failure(
    code: Code, *, broken: tuple[str, ...] = (), before: tuple[TrainingJob, ...] = (), **changes: object
) -> Move:
    running = job("now", **RUNNING | changes)
    evidence = work_over(JobFault(code, "why"), broken=broken)
    return moved(*before, running, evidence=evidence)


def test_out_of_memory_halves_the_batch_and_divergence_the_learning_rate() -> None:
    step = failure(Code.OOM)
    assert (step.job.phase, step.job.fault) == (JobPhase.FAILED, JobFault(Code.OOM, "why"))
    assert step.then.settings == {"data.batch": 16, "algorithm.optimizer.micro_batch_tokens": 8192}
    assert (step.then.previous, step.then.attempt, step.then.run) == ("now", 2, "")
    twice = failure(Code.OOM, settings=step.then.settings).then
    assert twice.settings["data.batch"] == 8
    assert plan().training.override(step.then.settings).data is not None
    slower = failure(Code.CONVERGENCE, settings={"data.batch": 16}).then
    assert slower.settings == {"data.batch": 16, "algorithm.optimizer.learning_rate": 5e-4}


def test_broken_data_is_dropped_and_whole_data_and_other_failures_are_a_persons_matter() -> None:
    step = failure(Code.DATA, broken=("b", "a"), selection={"without": ["c"]})
    assert step.then.selection == {"without": ["a", "b", "c"]}
    for code in (Code.DATA, Code.UNKNOWN, Code.TIMEOUT):
        step = failure(code)
        assert step.then is None
        assert [alert.name for alert in step.alerts] == ["job_failed"]


def test_machines_that_failed_get_ten_minutes_and_the_run_goes_on() -> None:
    step = failure(Code.INFRA, dataset="d", samples=5)
    assert (step.then.not_before, step.then.run, step.then.dataset) == (NOW + 10 * MINUTE, "r", "d")
    over = replace(step.job, at=NOW)
    assert decided(over, step.then, at=NOW + 9 * MINUTE) is None
    assert isinstance(decided(over, step.then, at=NOW + 10 * MINUTE), Prepare)


def test_third_failure_in_a_row_raises_an_alert_and_nothing_is_tried_again() -> None:
    before = (job("1", phase=JobPhase.FAILED), job("x", phase=JobPhase.CANCELLED), job("2", phase=JobPhase.FAILED))
    step = failure(Code.OOM, before=before, attempt=3)
    assert step.then is None
    assert [alert.name for alert in step.alerts] == ["jobs_failed"]
    assert "3 trainings failed in a row" in step.alerts[0].reason
    parted = failure(Code.OOM, before=(job("1", phase=JobPhase.FAILED), job("2", phase=JobPhase.DONE)))
    assert parted.then is not None
    assert parted.alerts == ()


def test_training_that_takes_too_long_ends_by_timeout_wherever_it_is() -> None:
    running = job(**RUNNING)
    later = NOW + 1441 * MINUTE
    assert decided(running, evidence=AT_WORK, at=later) is None
    assert is_late(plan(), running, later)
    ended = work_over(JobFault(Code.INFRA, "killed"))
    for evidence in (ended, JobEvidence(work=WorkState.AWAY)):
        step = moved(running, evidence=evidence, at=later)
        assert step.job.fault.code is Code.TIMEOUT
    assert decided(running, evidence=JobEvidence(work=WorkState.AWAY)) is None


def test_clock_that_jumps_makes_nothing_late() -> None:
    running = job(**RUNNING)
    step = moved(running, evidence=AT_WORK, jumped_s=2 * DAY, at=NOW + 2 * DAY)
    assert (step.job.phase, step.job.since, step.job.begun_at) == (JobPhase.RUNNING, NOW + 2 * DAY, NOW)
    assert not is_late(plan(), step.job, NOW + 2 * DAY)
    waiting = job(not_before=NOW + 10 * MINUTE)
    assert decided(waiting) is None
    assert isinstance(decided(waiting, at=NOW - DAY), Prepare), "the clock went back"


# -- gate and release -----------------------------------------------------------------------------------------------


def verdict(outcome: str, *, is_allowed: bool = False) -> GateVerdict:
    return GateVerdict(id="v", outcome=outcome, is_allowed=is_allowed, at=NOW, why="regression")


def test_trained_policy_goes_to_the_gate_and_an_allowed_one_is_released() -> None:
    ended = work_over(TrainedPolicy(policy="r/9", result={"after": {"greedy": 0.5}}))
    step = moved(job(**RUNNING), evidence=ended)
    assert (step.job.phase, step.job.policy, step.job.tenths) == (JobPhase.COMPLETED, "r/9", 10)
    assert work_of(step.job) is None
    tried = moved(step.job).job
    assert (work_of(tried), tried.host) == ("gate-1", "here")
    assert decided(tried, evidence=JobEvidence(work=WorkState.ABSENT)) is None
    assert decided(tried, evidence=AT_WORK) is None
    allowed = work_over(judged=verdict("allowed", is_allowed=True))
    assert isinstance(decided(tried, evidence=allowed), BeginRelease)


def test_refused_policy_is_told_of_and_one_that_waits_waits_for_its_approval() -> None:
    tried = job(**COMPLETED, gates=1, gate_at=NOW)
    refused = moved(tried, evidence=work_over(judged=verdict("refused")))
    assert (refused.job.phase, [each.name for each in refused.alerts]) == (JobPhase.REFUSED, ["validation_failed"])
    waiting = work_over(judged=verdict("waiting"))
    assert decided(tried, evidence=waiting, at=NOW + 99 * DAY) is None
    approved = work_over(judged=verdict("waiting", is_allowed=True))
    assert isinstance(decided(tried, evidence=approved), BeginRelease)


def test_gate_that_finds_nothing_out_is_tried_three_times() -> None:
    now, tried = NOW, job(**COMPLETED)
    for number in (1, 2, 3):
        tried = moved(tried, evidence=work_over(), at=now).job
        assert tried.gates == number
        now += 1
    error = work_over(judged=verdict("error"))
    assert moved(tried, evidence=error, at=now).job.phase is JobPhase.REFUSED


@pytest.mark.parametrize(
    ("phase", "end", "alerts"),
    [
        ("done", JobPhase.DONE, []),
        ("rolled_back", JobPhase.BACK, ["rollback"]),
        ("aborted", JobPhase.BACK, ["release_ended"]),
        ("stopped", JobPhase.BACK, ["release_ended"]),
    ],
)
def test_end_of_the_release_is_the_end_of_the_job(phase: str, end: JobPhase, alerts: list[str]) -> None:
    releasing = job(**COMPLETED | {"phase": JobPhase.RELEASING}, release="policy-1")
    passed = ReleaseOutcome(name="policy-1", phase="open", reason="")
    assert decided(releasing, evidence=JobEvidence(release=passed)) is None
    over = JobEvidence(release=replace(passed, phase=phase, reason="so it was"))
    step = moved(releasing, evidence=over)
    assert (step.job.phase, [each.name for each in step.alerts]) == (end, alerts)


def test_cancelled_job_ends_once_its_work_has_stopped() -> None:
    for about in (RUNNING, COMPLETED | {"gates": 1}):
        wanted = job(**about, is_cancelled=True)
        assert decided(wanted, evidence=AT_WORK) is None
        ended = work_over(JobFault(Code.INFRA, "killed"))
        assert moved(wanted, evidence=ended).job.phase is JobPhase.CANCELLED


# -- properties -----------------------------------------------------------------------------------------------------


def test_no_other_transition_than_the_legal_ones_can_be_made() -> None:
    for before, after in product(JobPhase, JobPhase):
        made = job(phase=before)
        if after in LEGAL[before]:
            assert made.to(after, at=NOW + 1).number == 2
        else:
            with pytest.raises(AssertionError):
                made.to(after, at=NOW + 1)
    assert {phase for phase in JobPhase if phase.is_over} == set(JobPhase) - {*list(JobPhase)[:4]}


def test_row_of_a_job_is_the_whole_job() -> None:
    made = job(**COMPLETED, fault=JobFault(Code.OOM, "x"), settings={"data.batch": 8}, request={"requester": "a"})
    assert TrainingJob.of(made.row()) == made


class World:
    """Everything around a loop, behaving at random: trainings end as they like, gates and releases too."""

    def __init__(self, loop: LoopExperiment, seed: int) -> None:
        self.loop, self.rng, self.now = loop, random.Random(seed), NOW
        self.jobs: dict[str, TrainingJob] = {}
        self.history: dict[str, list[TrainingJob]] = {}
        self.collected, self.position, self.alerts = 0, 0, Counter[str]()

    def record(self) -> LoopRecord:
        active = next((each for each in self.jobs.values() if each.has_begun), None)
        return LoopRecord(
            endpoint="policy",
            position=self.position,
            jobs=tuple(sorted(self.jobs.values(), key=lambda each: each.at)),
            collected=self.collected,
            since=NOW - DAY,
            evidence=JobEvidence() if active is None else self.evidence(active),
            host="here",
        )

    def evidence(self, active: TrainingJob) -> JobEvidence:
        roll = self.rng.random()
        if active.phase is JobPhase.RELEASING:
            phase = self.rng.choice(["open", "open", "open", "done", "rolled_back", "aborted"])
            return JobEvidence(release=ReleaseOutcome(name="x", phase=phase, reason=phase))
        if active.phase is JobPhase.COMPLETED:
            outcome = self.rng.choice(["allowed", "refused", "waiting", "error"])
            judged = verdict(outcome, is_allowed=outcome == "allowed" or roll < 0.1) if roll < 0.3 else None
            return JobEvidence(work=self.rng.choice(list(WorkState)), verdict=judged)
        fault = JobFault(self.rng.choice(list(Code)), "by chance")
        outcome = TrainedPolicy(policy=f"{active.run}/1", result={}) if roll < 0.5 else fault
        return JobEvidence(
            work=self.rng.choice(list(WorkState)),
            outcome=outcome,
            broken=("t",) if self.rng.random() < 0.5 else (),
            progress=self.rng.random(),
        )

    def step(self) -> None:
        self.now += self.rng.random() * 30 * MINUTE
        self.collected += self.rng.randrange(20)
        step = decide(self.loop, self.record(), self.now)
        match step:
            case QueueJob():
                self.write(step.job)
            case Prepare():
                self.prepare(step.job)
            case BeginRelease():
                self.write(step.job.to(JobPhase.RELEASING, at=self.now, release="x"))
            case Move():
                self.write(step.job)
                self.alerts.update(alert.name for alert in step.alerts)
                if step.then is not None:
                    self.write(step.then)
        if self.rng.random() < 0.01:
            self.cancel()

    def prepare(self, waiting: TrainingJob) -> None:
        if self.rng.random() < 0.2:
            move = fail(self.loop, self.record(), waiting, JobFault(Code.DATA, "nothing is left"), self.now)
            self.write(move.job)
            assert move.then is None or move.then.selection
            return
        assert waiting.not_before <= self.now
        run = waiting.run or f"run-{len(self.history)}"
        self.write(
            waiting.to(JobPhase.RUNNING, at=self.now, run=run, begun_at=self.now, seen=self.collected, host="here")
        )

    def cancel(self) -> None:
        wanted = [each for each in self.jobs.values() if each.phase in (JobPhase.QUEUED, JobPhase.RUNNING)]
        if wanted:
            chosen = self.rng.choice(wanted)
            phase = JobPhase.CANCELLED if chosen.phase is JobPhase.QUEUED else chosen.phase
            self.write(chosen.to(phase, at=self.now, is_cancelled=True))

    def write(self, written: TrainingJob) -> None:
        before = self.jobs.get(written.id)
        assert written.number == (1 if before is None else before.number + 1)
        self.position += 1
        self.jobs[written.id] = written
        self.history.setdefault(written.id, []).append(written)
        assert sum(each.has_begun for each in self.jobs.values()) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_one_training_at_a_time_and_legal_histories(seed: int) -> None:
    world = World(plan(triggers__schedule="0 */6 * * *", triggers__count=50), seed)
    for _ in range(1500):
        world.step()
    ends = Counter(each.phase for each in world.jobs.values() if not each.is_open)
    assert {JobPhase.DONE, JobPhase.BACK, JobPhase.REFUSED, JobPhase.FAILED, JobPhase.CANCELLED} <= ends.keys()
    for rows in world.history.values():
        for before, after in pairwise(rows):
            assert after.phase in LEGAL[before.phase]
    for each in world.jobs.values():
        assert each.attempt <= 3
        if each.previous:
            tried = world.jobs[each.previous]
            assert tried.phase is JobPhase.FAILED
            assert tried.fault.code in (Code.OOM, Code.CONVERGENCE, Code.DATA, Code.INFRA)
            assert each.attempt == tried.attempt + 1
    again = Counter(each.previous for each in world.jobs.values() if each.previous)
    assert max(again.values()) == 1
    assert world.alerts["jobs_failed"]
