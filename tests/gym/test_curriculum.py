"""Curricula: levels follow success, families follow shares and learnability, and a generator for programs."""

import json
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl import CurriculumGenerator
from loomrl.config import (
    AdaptiveCurriculum,
    EnvironmentConfig,
    FixedCurriculum,
    ProgressiveCurriculum,
    StagedCurriculum,
)
from loomrl.errors import ConfigError
from loomrl.gym.base import BaseEnvironment, Step
from loomrl.gym.catalogue import find, make, names
from loomrl.gym.curriculum import (
    HELD_OUT_SEEDS,
    TRAINING_SEEDS,
    AdaptiveLevels,
    ProgressiveLevels,
    StagedLevels,
    Stake,
    TaskFamily,
    TaskOutcome,
    open_curriculum,
    shares,
)
from loomrl.gym.task_mixture import gather
from loomrl.types import Message, Reward

FAMILIES = (TaskFamily("Math", "a"), TaskFamily("Math", "b", guess=0.5), TaskFamily("Logic", "c", share=3.0))
SUCCESSES = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def try_levels(family, success, *, level=10, count=8):
    return [TaskOutcome(family, level, success)] * count


def draws(curriculum, count=4000, seed=0):
    rng = random.Random(seed)
    return [(d.family.key, d.level) for d in (curriculum.draw(rng) for _ in range(count))]


@given(SUCCESSES, st.integers(1, 5), st.integers(5, 10))
def test_levels_stay_in_bounds_and_move_by_at_most_eta(successes, first, last):
    settings = AdaptiveCurriculum(first_level=first, last_level=last, eta=0.7)
    curriculum = AdaptiveLevels(FAMILIES, settings)
    for success in successes:
        before = curriculum.progress()["Math/a"]
        curriculum.observe(try_levels("Math/a", success))
        after = curriculum.progress()["Math/a"]
        assert first <= after <= last
        assert abs(after - before) <= 0.7
        assert (after - before) * (success - settings.target) >= 0
    assert all(first <= level <= last for _, level in draws(curriculum, 50))


def test_level_rises_on_success_falls_on_failure_and_rests_at_the_target():
    curriculum = AdaptiveLevels(FAMILIES, AdaptiveCurriculum(first_level=3, eta=0.5))
    curriculum.observe(try_levels("Math/a", 1.0))
    risen = curriculum.progress()["Math/a"]
    curriculum.observe(try_levels("Math/a", 0.5))
    assert curriculum.progress()["Math/a"] == risen > 3
    curriculum.observe(try_levels("Math/a", 0.0))
    assert curriculum.progress()["Math/a"] < risen


def test_success_on_replayed_lower_levels_does_not_raise_the_level():
    curriculum = AdaptiveLevels(FAMILIES, AdaptiveCurriculum())
    for _ in range(20):
        curriculum.observe(try_levels("Math/a", 1.0))
    level = curriculum.progress()["Math/a"]
    curriculum.observe(try_levels("Math/a", 0.0, level=1))
    assert curriculum.progress()["Math/a"] == level > 5


def test_a_tenth_of_the_tasks_replays_lower_levels():
    curriculum = AdaptiveLevels((TaskFamily("Math", "a"),), AdaptiveCurriculum(eta=1.0))
    for _ in range(8):
        curriculum.observe(try_levels("Math/a", 1.0))
    base = int(curriculum.progress()["Math/a"])
    replayed = sum(level < base for _, level in draws(curriculum))
    assert 0.07 < replayed / 4000 < 0.13


def test_what_can_be_learnt_is_drawn_most_and_nothing_is_forgotten():
    families = (TaskFamily("Math", "mastered"), TaskFamily("Math", "hopeless"), TaskFamily("Math", "ripe"))
    curriculum = AdaptiveLevels(families, AdaptiveCurriculum(floor=0.05))
    known = {"Math/mastered": 1.0, "Math/hopeless": 0.0, "Math/ripe": 0.5}
    curriculum.observe([outcome for family, success in known.items() for outcome in try_levels(family, success)])
    count = Counter(family for family, _ in draws(curriculum))
    assert count["Math/ripe"] > 0.8 * 4000
    assert min(count["Math/mastered"], count["Math/hopeless"]) > 0.02 * 4000


def test_guessing_is_not_taken_for_skill():
    curriculum = AdaptiveLevels(FAMILIES, AdaptiveCurriculum())
    curriculum.observe([*try_levels("Math/a", 0.5), *try_levels("Math/b", 0.5)])
    assert curriculum.learnability("Math/a") == pytest.approx(1.0)
    assert curriculum.learnability("Math/b") == pytest.approx(curriculum.settings.floor)


def test_a_family_long_untried_becomes_interesting_again():
    curriculum = AdaptiveLevels(FAMILIES, AdaptiveCurriculum(memory=0.8))
    curriculum.observe(try_levels("Math/a", 1.0))
    fresh = curriculum.learnability("Math/a")
    for _ in range(20):
        curriculum.observe(try_levels("Logic/c", 0.5))
    assert curriculum.learnability("Math/a") > 0.9 > fresh


def test_environments_are_drawn_by_their_share():
    count = Counter(key.split("/")[0] for key, _ in draws(AdaptiveLevels(FAMILIES, AdaptiveCurriculum())))
    assert 2.6 < count["Logic"] / count["Math"] < 3.4


@given(SUCCESSES, st.integers(0, 40), st.sampled_from(["fixed", "progressive", "adaptive", "staged"]))
def test_curriculum_resumes_as_if_it_never_stopped(successes, stop, kind):
    stages = {"stages": [{"name": "one", "families": ["Math/*"], "threshold": {"success": 0.5, "attempts": 8}},
                         {"name": "two", "curriculum": {"kind": "adaptive"}}]}  # fmt: skip
    settings = {
        "fixed": FixedCurriculum(),
        "progressive": ProgressiveCurriculum(threshold={"success": 0.5, "attempts": 12}),
        "adaptive": AdaptiveCurriculum(),
        "staged": StagedCurriculum(**stages),
    }[kind]
    whole, resumed = open_curriculum(FAMILIES, settings), open_curriculum(FAMILIES, settings)
    for i, success in enumerate(successes):
        if i == stop:
            resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
        level = math.ceil(whole.progress()["Math/a"])
        for curriculum in (whole, resumed) if i >= stop else (whole,):
            curriculum.observe(try_levels("Math/a", success, level=level))
    if stop < len(successes):
        assert resumed.state_dict() == whole.state_dict()
        assert resumed.draw(random.Random(1)) == whole.draw(random.Random(1))


def test_progress_is_one_level_at_a_time_by_the_latest_attempts_at_it_and_never_back():
    threshold = {"success": 0.75, "attempts": 8}
    curriculum = open_curriculum(FAMILIES, ProgressiveCurriculum(first_level=2, last_level=3, threshold=threshold))
    curriculum.observe(try_levels("Math/a", 1.0, level=1, count=20))
    curriculum.observe(try_levels("Math/a", 1.0, level=2, count=7))
    assert set(curriculum.progress().values()) == {2.0}
    curriculum.observe(try_levels("Math/a", 0.0, level=2, count=1))
    assert curriculum.progress() == {"Math/a": 3.0, "Math/b": 2.0, "Logic/c": 2.0}
    curriculum.observe(try_levels("Math/a", 0.0, level=3, count=20))
    curriculum.observe(try_levels("Math/a", 1.0, level=3, count=20))
    assert curriculum.progress()["Math/a"] == 3.0


def test_a_progressive_curriculum_replays_what_is_below():
    curriculum = ProgressiveLevels(FAMILIES[:1], ProgressiveCurriculum(threshold={"success": 0.5, "attempts": 1}))
    for level in range(1, 4):
        curriculum.observe(try_levels("Math/a", 1.0, level=level, count=1))
    count = Counter(level for _, level in draws(curriculum))
    assert set(count) == {1, 2, 3, 4}
    assert 0.07 < 1 - count[4] / 4000 < 0.13


def open_staged():
    return StagedLevels(FAMILIES, StagedCurriculum(stages=(
        {"name": "first", "families": ("a",), "threshold": {"success": 0.75, "attempts": 8}},
        {"name": "second", "families": ("Logic/*",), "curriculum": {"kind": "fixed", "level": 4}},
    )))  # fmt: skip


def test_a_threshold_is_passed_on_enough_success_and_not_before():
    curriculum = open_staged()
    curriculum.observe(try_levels("Math/a", 1.0, count=7))
    assert curriculum.stage == "first"
    curriculum.observe(try_levels("Math/a", 0.0, count=4))
    assert curriculum.stage == "first"
    curriculum.observe(try_levels("Logic/c", 1.0, count=64))
    assert curriculum.stage == "first"
    curriculum.observe(try_levels("Math/a", 1.0, count=8))
    assert curriculum.stage == "second"
    drawn = curriculum.draw(random.Random(0))
    assert (drawn.family.key, drawn.level) == ("Logic/c", 4)


def test_a_threshold_is_reached_by_what_rounding_leaves_of_it_and_not_by_less():
    def levels(*successes):
        threshold = {"success": 0.7, "attempts": len(successes)}
        curriculum = open_curriculum(FAMILIES, ProgressiveCurriculum(threshold=threshold))
        curriculum.observe([TaskOutcome("Math/a", 1, success) for success in successes])
        return curriculum.progress()

    shy = 0.7 - 2**-53  # as 0.9 - 0.2 is
    assert levels(shy, shy)["Math/a"] == 2
    assert levels(shy, 0.6999999)["Math/a"] == 1


def test_evaluation_seeds_are_never_drawn():
    assert not set(TRAINING_SEEDS[:: 2**20]) & set(HELD_OUT_SEEDS[:: 2**20])
    assert TRAINING_SEEDS.stop == HELD_OUT_SEEDS.start
    rng = random.Random(0)
    curriculum = open_curriculum(FAMILIES, FixedCurriculum())
    assert all(curriculum.draw(rng).seed in TRAINING_SEEDS for _ in range(1000))


def test_unknown_families_and_foreign_states_are_refused():
    with pytest.raises(ConfigError, match=r"no family matches geometry.*Known: Logic/c"):
        StagedLevels(FAMILIES, StagedCurriculum(stages=({"name": "s", "families": ("geometry",)},)))
    with pytest.raises(ConfigError, match="at least one"):
        open_curriculum((), FixedCurriculum())
    with pytest.raises(ConfigError, match="does not fit"):
        AdaptiveLevels(FAMILIES[:1], AdaptiveCurriculum()).load_state_dict(
            AdaptiveLevels(FAMILIES, AdaptiveCurriculum()).state_dict()
        )
    with pytest.raises(ConfigError, match="does not fit"):
        open_staged().load_state_dict({"stage": "third", "latest": [], "inner": [{}, {}]})


STAKES = st.dictionaries(
    st.text(min_size=1, max_size=3), st.builds(Stake, st.floats(0.05, 20), st.floats(0, 0.15)), min_size=1, max_size=6
)


@given(STAKES)
def test_shares_are_the_whole_and_none_is_below_its_minimum(stakes):
    parts = shares(stakes)
    assert sum(parts.values()) == pytest.approx(1.0)
    assert all(parts[name] >= stake.min_share - 1e-9 for name, stake in stakes.items())


def test_shares_are_the_weights_and_what_a_minimum_takes_comes_from_the_others_by_weight():
    assert shares({"a": Stake(1.0), "b": Stake(3.0)}) == {"a": 0.25, "b": 0.75}
    assert shares({"a": Stake(1.0, 0.5), "b": Stake(6.0), "c": Stake(3.0)}) == pytest.approx(
        {"a": 0.5, "b": 1 / 3, "c": 1 / 6}
    )


def test_tasks_are_drawn_by_weights_and_minimum_shares():
    configs = [EnvironmentConfig(id="Math", weight=19), EnvironmentConfig(id="ReasoningGym", min_share=0.25)]
    families = gather(configs, None, lambda id: (find(id).id, "")).families
    assert {family.environment: family.share for family in families} == {"Math": 0.75, "ReasoningGym": 0.25}


TEMPLATES = """
templates:
  - name: percentages
    environment: Math
    family: custom
    levels:
      1: {a: [1, 9], b: [10, 90]}
    parameters: {prompt: "What is {a} percent of {b}?", answer: "{a}*{b}/100"}
"""
LINEAR = EnvironmentConfig(id="Math", families=("algebra.linear",))


@pytest.mark.parametrize(("difficulty", "level"), [("beginner", 1), ("intermediate", 4), (7, 7)])
def test_tasks_begin_at_the_difficulty_that_was_asked_for_and_rise_with_success(difficulty, level):
    generator = CurriculumGenerator([LINEAR], initial_difficulty=difficulty)
    assert generator.generate().level == level
    for _ in range(20):
        generator.observe(generator.generate(), 1.0)
    assert generator.progress()["Math/algebra.linear"] > level + 1


def test_what_is_too_hard_becomes_easier_than_it_began():
    generator = CurriculumGenerator([LINEAR], initial_difficulty="advanced")
    for _ in range(20):
        generator.observe(generator.generate(), 0.0)
    assert generator.progress()["Math/algebra.linear"] < 7


async def test_templates_bring_their_own_families_in_a_notebook_too(tmp_path):
    (tmp_path / "tasks.yaml").write_text(TEMPLATES)
    generator = CurriculumGenerator(task_templates_path=str(tmp_path / "tasks.yaml"))
    tasks = [generator.generate() for _ in range(400)]
    mine = [task for task in tasks if task.parameters.get("template") == "percentages"]
    assert mine
    assert "percent of" in mine[0].parameters["prompt"]
    generator.observe(mine[0], 1.0)
    assert generator.progress()["Math/percentages"] > 1


def test_it_goes_on_after_a_restart_as_if_it_never_stopped():
    def play(generator, times):
        return [(task := generator.generate(), generator.observe(task, task.seed % 2)) for _ in range(times)]

    whole, first, second = (CurriculumGenerator([LINEAR], seed=3) for _ in range(3))
    expected = play(whole, 20)
    begun = play(first, 8)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert begun + play(second, 12) == expected


def test_another_curriculum_can_be_given():
    assert CurriculumGenerator([LINEAR], curriculum=FixedCurriculum(level=9)).generate().level == 9


def test_a_difficulty_beside_a_curriculum_would_have_no_effect_and_is_refused():
    with pytest.raises(ConfigError, match="no effect"):
        CurriculumGenerator([LINEAR], initial_difficulty=3, curriculum=FixedCurriculum(level=9))


def test_an_unknown_difficulty_is_named_with_the_choices():
    with pytest.raises(ConfigError, match=r"(?s)initial_difficulty.*'expret'.*Did you mean 'expert'"):
        CurriculumGenerator(initial_difficulty="expret")


def template_of(folder, environment, family, **parameters):
    template = {"name": "mine", "environment": environment, "family": family, "parameters": parameters}
    (folder / "tasks.yaml").write_text(json.dumps({"templates": [template | {"levels": {1: {}}}]}))
    return str(folder / "tasks.yaml")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in names()
        if name not in ("Harness", "McpTools", "OpenEnv", "Prompts", "TaskFolders", "Verifiers", "ReasoningGym")
    ],
)
def test_a_template_that_would_change_nothing_is_refused_for_every_family(tmp_path, name):
    environment = make(name)
    for family in environment.families[:: 1 if len(environment.families) < 10 else 8]:
        with pytest.raises(ConfigError) as caught:
            CurriculumGenerator(task_templates_path=template_of(tmp_path, name, family, people=4))
        said = str(caught.value)
        assert all(word in said for word in ("'mine'", name, f"'{family}'", "people", "that take some")), said


@pytest.mark.parametrize(
    ("environment", "family", "taken"),
    [("Math", "algebra.linear", "custom (prompt, answer"), ("LogicPuzzle", "grid", "reasoning_gym (dataset)")],
)
def test_a_refused_template_is_told_which_family_takes_what(tmp_path, environment, family, taken):
    with pytest.raises(ConfigError) as caught:
        CurriculumGenerator(task_templates_path=template_of(tmp_path, environment, family, people=4))
    assert taken in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [({"of": "3"}, None), ({"of": "3", "secret": "x"}, None), ({"off": "3"}, "off"), ({"of": 3, "secrt": 1}, "secrt")],
)
def test_an_environment_of_ones_own_takes_what_it_reads_at_any_time(tmp_path, parameters, said):
    path = template_of(tmp_path, "Riddle", "default", **parameters)
    own = EnvironmentConfig(id="test_curriculum:Riddle")
    if said is None:
        assert CurriculumGenerator([own], task_templates_path=path).generate()
        return
    with pytest.raises(ConfigError, match=rf"does not read its parameters \({said}\)"):
        CurriculumGenerator([own], task_templates_path=path)


class Riddle(BaseEnvironment):
    """Reads one parameter when it asks, and another when it judges."""

    async def reset(self, task=None):
        self.task_now = task
        return (Message("user", f"of {task.parameters.get('of', 0)}"),)

    async def step(self, action):
        right = float(action == str(self.task_now.parameters.get("secret", "")))
        return Step((), Reward(right, {}, right), True, False, {})
