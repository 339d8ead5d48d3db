"""The curriculum for a program of its own: tasks from environments and templates, harder as they are solved."""

import json

import pytest

from loomrl import CurriculumGenerator
from loomrl.config import EnvironmentConfig, FixedCurriculum
from loomrl.errors import ConfigError
from loomrl.gym.base import BaseEnvironment, Step
from loomrl.gym.catalogue import make, names
from loomrl.types import Message, Reward

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
    own = EnvironmentConfig(id="test_generator:Riddle")
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


async def test_templates_are_tried_out_in_a_notebook_too(tmp_path):
    (tmp_path / "tasks.yaml").write_text(TEMPLATES)
    assert CurriculumGenerator(task_templates_path=str(tmp_path / "tasks.yaml")).generate()
