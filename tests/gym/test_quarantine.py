"""Quarantine: what keeps failing is not drawn, what does not is; said with causes, and tried again."""

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.config import AdaptiveCurriculum, FixedCurriculum, QuarantineConfig, StagedCurriculum
from loomrl.errors import EpisodeError
from loomrl.gym.curriculum import TaskFamily, TaskOutcome, open_curriculum
from loomrl.gym.episode import Attempt, failure_trajectory
from loomrl.gym.task_mixture import TaskSource
from loomrl.types import End, Failure, Reward, Task, Trajectory

FAMILIES = (TaskFamily("Math", "a"), TaskFamily("Math", "b"), TaskFamily("Logic", "c"))
SETTINGS = QuarantineConfig(window=8, share=0.5, probation=3)
HANG = Failure("environment", "Hang", "hung in step")


def attempts(family, *, failed=0, fine=0, failure=HANG, **parameters):
    environment, _, name = family.partition("/")
    task = Task(environment, "1", name, 1, 1, parameters)
    bad = [failure_trajectory(Attempt(id=f"{family}/bad/{i}", task=task, group="g"), failure) for i in range(failed)]
    ends = {"turns": (), "end": End.TERMINATED, "reward": Reward()}
    return bad + [Trajectory(id=f"{family}/fine/{i}", task=task, group="g", **ends) for i in range(fine)]


def names(quarantine):
    return [case.name for case in quarantine.cases]


def count_draws(curriculum, count=300):
    rng = random.Random(0)
    return Counter(curriculum.draw(rng).family.key for _ in range(count))


def open_guarded(settings=None, families=FAMILIES):
    tasks = TaskSource(open_curriculum(families, settings or FixedCurriculum()), quarantine=SETTINGS)
    return tasks.quarantine, tasks


STAGED = StagedCurriculum(stages=({"name": "first", "families": ("Math/*",)}, {"name": "then"}))


@pytest.mark.parametrize("settings", [FixedCurriculum(), AdaptiveCurriculum(), STAGED])
def test_a_family_that_keeps_failing_is_not_drawn_any_more(settings):
    quarantine, curriculum = open_guarded(settings)
    assert count_draws(curriculum)["Math/a"] > 50
    quarantine.observe(attempts("Math/a", failed=4, fine=4) + attempts("Math/b", fine=8))
    counts = count_draws(curriculum)
    assert counts["Math/a"] == 0
    assert counts["Math/b"] > 50


def test_the_other_families_of_an_environment_take_over_its_share():
    quarantine, curriculum = open_guarded()
    quarantine.observe(attempts("Math/a", failed=8) + attempts("Math/b", fine=8))
    counts = count_draws(curriculum, 2000)
    assert counts["Math/b"] / 2000 == pytest.approx(0.5, abs=0.05)


def test_too_few_failures_change_nothing_however_few_the_attempts():
    quarantine, _ = open_guarded()
    quarantine.observe(attempts("Math/a", failed=3))
    assert names(quarantine) == []
    quarantine.observe(attempts("Math/a", failed=1))
    assert names(quarantine) == ["Math/a"]


def test_old_failures_leave_the_window():
    quarantine, _ = open_guarded()
    for _ in range(5):
        quarantine.observe(attempts("Math/a", failed=3, fine=0))
        quarantine.observe(attempts("Math/a", fine=8))
    assert names(quarantine) == []


@pytest.mark.parametrize("boundary", ["policy", "config", "learner"])
def test_failures_of_the_policy_are_no_evidence(boundary):
    quarantine, _ = open_guarded()
    quarantine.observe(attempts("Math/a", failed=100, failure=Failure(boundary, "ContextOverflow", "too long")))
    assert names(quarantine) == []


def test_a_case_says_who_why_and_how_long():
    quarantine, _ = open_guarded()
    scorer = Failure("scorer", "ScorerError", "no worker works")
    found = quarantine.observe(attempts("Math/a", failed=2, failure=scorer, fine=3) + attempts("Math/a", failed=3))
    assert found == quarantine.cases
    assert (found[0].name, found[0].since, found[0].until) == ("Math/a", 1, 4)
    assert found[0].causes == {"environment/Hang": 3, "scorer/ScorerError": 2}
    for said in ("Math/a", "environment/Hang", "update 1 to 4"):
        assert said in str(found[0])


def test_it_is_reported_once():
    quarantine, _ = open_guarded()
    assert quarantine.observe(attempts("Math/a", failed=8) + attempts("Math/b", fine=1))
    assert quarantine.observe(attempts("Math/a", failed=8)) == []


def test_it_is_tried_again_after_probation_and_later_after_each_relapse():
    quarantine, curriculum = open_guarded()
    away, bad = [], attempts("Math/a", failed=8)
    for _ in range(20):
        free = quarantine.allows("Math/a")
        quarantine.observe((bad if free else []) + attempts("Math/b", fine=1))
        away.append(not quarantine.allows("Math/a"))
    assert "".join("x" if gone else "." for gone in away) == "xxx.xxxxxx.xxxxxxxxx"
    assert count_draws(curriculum)["Math/a"] == 0


def test_one_that_was_repaired_stays():
    quarantine, curriculum = open_guarded()
    quarantine.observe(attempts("Math/a", failed=8) + attempts("Math/b", fine=8))
    for _ in range(10):
        quarantine.observe(attempts("Math/b", fine=8))
    for _ in range(5):
        quarantine.observe(attempts("Math/a", failed=1, fine=7))
    assert names(quarantine) == []
    assert count_draws(curriculum)["Math/a"] > 50


def test_a_whole_environment_is_left_alone_when_all_its_families_fail():
    families = (*(TaskFamily("Many", f"f{i}") for i in range(50)), TaskFamily("Logic", "c"))
    quarantine, curriculum = open_guarded(families=families)
    made = [t for i in range(6) for t in attempts(f"Many/f{i}", failed=1)]
    (case,) = quarantine.observe(made + attempts("Logic/c", fine=1))
    assert (case.name, case.attempts) == ("Many", 6)
    assert count_draws(curriculum) == {"Logic/c": 300}
    assert quarantine.allows("ManyMore/f1")


def test_a_family_that_works_keeps_its_environment_out_of_quarantine():
    quarantine, _ = open_guarded()
    quarantine.observe(attempts("Math/a", failed=8) + attempts("Math/b", fine=1))
    assert names(quarantine) == ["Math/a"]


def test_the_tasks_of_a_template_are_a_family_of_their_own():
    quarantine, _ = open_guarded()
    quarantine.observe(attempts("Math/a", failed=8, template="percentages") + attempts("Math/a", fine=1))
    assert names(quarantine) == ["Math/percentages"]


def test_when_nothing_is_left_an_error_lists_all_causes():
    quarantine, curriculum = open_guarded()
    raises = Failure("environment", "ZeroDivisionError", "the author's bug")
    quarantine.observe(attempts("Math/a", failed=8) + attempts("Math/b", failed=8))
    quarantine.observe(attempts("Logic/c", failed=8, failure=raises))
    with pytest.raises(EpisodeError, match=r"Math: 16 .*Hang 16.*Logic/c: 8 .*ZeroDivisionError 8.*author's bug"):
        curriculum.draw(random.Random(0))


def test_a_stage_of_which_nothing_is_left_is_such_an_error_too():
    quarantine, curriculum = open_guarded(STAGED)
    quarantine.observe(attempts("Math/a", failed=8) + attempts("Math/b", failed=8))
    with pytest.raises(EpisodeError, match="no task family is left"):
        curriculum.draw(random.Random(0))


updates = st.lists(
    st.lists(st.tuples(st.sampled_from(FAMILIES), st.integers(0, 6), st.integers(0, 4)), max_size=3), max_size=12
)


@given(updates, st.integers(0, 12), st.randoms(use_true_random=False))
def test_resumed_equals_uninterrupted_and_order_does_not_matter(updates, stop, rng):
    def observe_update(quarantine, update, shuffle):
        made = [t for family, failed, fine in update for t in attempts(family.key, failed=failed, fine=fine)]
        made = list({t.id: t for t in made}.values())
        if shuffle:
            rng.shuffle(made)
        return quarantine.observe(made)

    whole, parts = open_guarded()[0], open_guarded()[0]
    for index, update in enumerate(updates):
        if index == stop:
            state = json.loads(json.dumps(parts.state_dict()))
            parts = open_guarded()[0]
            parts.load_state_dict(state)
        assert observe_update(whole, update, False) == observe_update(parts, update, True)
    assert whole.state_dict() == parts.state_dict()


def test_the_curriculum_below_goes_on_as_ever_and_both_are_saved():
    quarantine, curriculum = open_guarded(AdaptiveCurriculum())
    curriculum.observe([TaskOutcome("Math/b", 1, 1.0)] * 8)
    quarantine.observe(attempts("Math/a", failed=8) + attempts("Math/b", fine=1))
    again, resumed = open_guarded(AdaptiveCurriculum())
    resumed.load_state_dict(json.loads(json.dumps(curriculum.state_dict())))
    assert resumed.progress() == curriculum.progress()
    assert resumed.progress()["Math/b"] > resumed.progress()["Logic/c"]
    assert again.cases == quarantine.cases
    assert count_draws(resumed) == count_draws(curriculum)
