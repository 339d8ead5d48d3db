"""The curriculum for a program of its own: tasks from environments and templates, harder as they are solved."""

import json

import pytest

from loomrl import CurriculumGenerator
from loomrl.config import EnvironmentConfig, FixedCurriculum
from loomrl.errors import ConfigError

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


def test_templates_bring_their_own_families(tmp_path):
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
    with pytest.raises(ConfigError, match=r"initial_difficulty.*'expret'.*Did you mean 'expert'"):
        CurriculumGenerator(initial_difficulty="expret")
