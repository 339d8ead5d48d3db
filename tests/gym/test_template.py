import asyncio
import re
from dataclasses import replace
from itertools import permutations, product

import pytest

from loomrl.errors import ConfigError
from loomrl.gym.catalogue import make
from loomrl.gym.manual import CurriculumGenerator
from loomrl.gym.task_mixture import transcript
from loomrl.gym.template import load_templates
from loomrl.types import Task

GOOD = """
templates:
  - name: percentages
    environment: Math
    family: custom
    levels:
      1: {a: [1, 9], b: [10, 90], thing: {choice: [apples, pears]}}
      5: {a: [10, 99], b: [100, 999], thing: {choice: [books]}}
    parameters: {prompt: "What is {a} percent of {b} {thing}?", answer: "{a}*{b}/100", strict: true}
"""


def load_text(folder, text):
    (folder / "t.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_templates(folder / "t.yaml")
    return str(caught.value)


def test_template_makes_the_same_task_from_the_same_seed_and_harder_ones_at_higher_levels(tmp_path):
    (tmp_path / "t.yaml").write_text(GOOD)
    (template,) = load_templates(tmp_path / "t.yaml")

    def make_template(level, seed):
        return template.task(Task("Math", "1.0.0", "custom", level, seed))

    assert make_template(1, 3) == make_template(1, 3)
    assert len({make_template(1, seed).key for seed in range(50)}) == 50
    assert "apples" in make_template(1, 3).parameters["prompt"] or "pears" in make_template(1, 3).parameters["prompt"]
    assert all("books" in make_template(level, seed).parameters["prompt"] for level in (5, 9) for seed in range(5))
    assert all("books" not in make_template(4, seed).parameters["prompt"] for seed in range(5))
    assert make_template(1, 3).parameters["strict"] is True
    assert make_template(1, 3).parameters["template"] == "percentages"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (GOOD.replace("{a} percent", "{c} percent"), ["templates.0", "level 1", "'c'"]),
        (GOOD.replace("[1, 9]", "[9, 1]"), ["levels.1.a=[9, 1]", "empty"]),
        (GOOD.replace(" {thing}", ""), ["level", "thing", "would change nothing"]),
        (GOOD.replace("    family: custom\n", ""), ["templates.0.family", "required"]),
        (GOOD.replace("parameters:", "paramters:"), ["Did you mean 'parameters'?"]),
        (GOOD.replace("      1:", "      0:"), ["templates.0.levels.0"]),
        (GOOD + GOOD.replace("\ntemplates:", ""), ["must differ", "percentages"]),
        ("templates: []", ["templates"]),
    ],
)
def test_wrong_template_is_named_with_its_place(tmp_path, broken, said):
    message = load_text(tmp_path, broken)
    assert all(part in message for part in ["t.yaml", *said]), message


SCENE = "Dialogue.scenarios-1"
IN_SHORT = """
logic_puzzle:
  templates: ["{a} is taller than {b}.", "{b} is shorter than {a}."]
  variables: [[Anna, Ben], [Ben, Cara], [Cara, Dan], [Dan, Eva]]
dialogue:
  scenarios:
    - {type: negotiation, context: "You sell bicycles in Porto."}
    - {type: support, context: "It is the week before Christmas."}
Math:
  - {name: doubles, family: custom, levels: {1: {a: [1, 9]}}, parameters: {prompt: "2 times {a}?", answer: "{a}*2"}}
"""


def draw(folder, text, count=400):
    (folder / "t.yaml").write_text(text)
    generator = CurriculumGenerator(initial_difficulty=0.1, task_templates_path=str(folder / "t.yaml"))
    made = [generator.generate() for _ in range(count)]
    return {task.parameters["template"]: task for task in made if "template" in task.parameters}


FIRST_DOCUMENTS = """
logic_puzzle:
  templates: ["If A then B", "Either A or B"]
  variables: [[Raining, Wet], [Studying, Pass]]
dialogue:
  scenarios:
    - {type: customer_service, context: "A customer asks about a late parcel."}
    - {type: Debate, context: "Should schools begin later?"}
"""


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        (IN_SHORT, ["LogicPuzzle", "doubles"], {"LogicPuzzle": "is (taller|shorter) than", SCENE: "bicycles in Porto"}),
        (FIRST_DOCUMENTS, ["LogicPuzzle"], {SCENE: "late parcel"}),
    ],
)
def test_templates_by_environment_make_tasks_that_oracles_solve_in_the_words_of_the_user(tmp_path, text, names, words):
    tasks = draw(tmp_path, text)
    assert sorted(tasks) == [SCENE, "Dialogue.scenarios-2", *names]
    told = {name: transcript(make(task.environment), task) for name, task in tasks.items()}
    assert all(said[-1][1].startswith("1: ") for said in told.values()), told
    assert all(re.search(said, told[name][0][1]) for name, said in words.items())


MEANINGS = {
    "If A then B": (r"If (\w+) then (\w+)\.", lambda a, b: not a or b),
    "if not A, then B": (r"If not (\w+), then (\w+)\.", lambda a, b: a or b),
    "Either A or B.": (r"Either (\w+) or (\w+)\.", lambda a, b: a or b),
    "B if and only if A": (r"(\w+) if and only if (\w+)\.", lambda a, b: a == b),
    "Neither A nor B": (r"Neither (\w+) nor (\w+)\.", lambda a, b: not (a or b)),
    "Not both A and B": (r"Not both (\w+) and (\w+)\.", lambda a, b: not (a and b)),
    "A and not B": (r"(\w+) and not (\w+)\.", lambda a, b: a and not b),
}


@pytest.mark.parametrize("pattern", MEANINGS)
def test_propositions_in_patterns_of_a_user_have_one_solution(pattern):
    environment = make("LogicPuzzle")
    parameters = {"templates": [pattern], "variables": [["Rain", "Wet"], ["Study", "Pass"], ["Wet", "Cold"]]}
    form, holds = MEANINGS[pattern]
    patterns_seen = 0
    for seed in range(30):
        task = replace(environment.task("statements", 1 + seed % 10, seed), parameters=parameters)
        (message,) = asyncio.run(environment.reset(task))
        names = re.findall(r"false: (.*)\. An or", message.content)[0].split(", ")
        facts = re.findall(r"^(\w+) is (true|false)\.$", message.content, re.MULTILINE)
        joined = re.findall(rf"^{form}$", message.content, re.MULTILINE)
        patterns_seen += len(joined)
        worlds = [dict(zip(names, values, strict=True)) for values in product([True, False], repeat=len(names))]
        fitting = [
            world
            for world in worlds
            if all(world[name] == (value == "true") for name, value in facts)
            and all(holds(world[a], world[b]) for a, b in joined)
        ]
        (only,) = fitting
        assert {name for name in names if only[name]} == set(environment.oracle().removeprefix("SOLVE: ").split(", "))
    assert patterns_seen >= 20


def test_a_pattern_of_no_known_form_is_named_with_those_that_are(tmp_path):
    with pytest.raises(ConfigError, match=r"'A unless B' is no form.*Either A or B.*\{a\} and \{b\}"):
        draw(tmp_path, FIRST_DOCUMENTS.replace("Either A or B", "A unless B"))
    with pytest.raises(ConfigError, match=r"'customer_sevice' is no type of scenario.*Did you mean 'customer_service'"):
        draw(tmp_path, FIRST_DOCUMENTS.replace("customer_service", "customer_sevice"))


def test_statements_of_a_user_have_one_order_and_others_are_wrong():
    environment = make("LogicPuzzle")
    pairs = [["Anna", "Ben"], ["Ben", "Cara"], ["Cara", "Dan"], ["Anna", "Dan"]]
    parameters = {"templates": ["{a} is older than {b}."], "variables": pairs}
    for seed in range(30):
        task = replace(environment.task("statements", 10, seed), parameters=parameters)
        (message,) = asyncio.run(environment.reset(task))
        told = re.findall(r"(\w+) is older than (\w+)\.\n", message.content)
        fitting = [
            order
            for order in permutations(["Anna", "Ben", "Cara", "Dan"])
            if all(order.index(first) < order.index(last) for first, last in told)
        ]
        assert [", ".join(order) for order in fitting] == [environment.oracle().removeprefix("SOLVE: ")]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("[Anna, Ben], [Ben, Cara], [Ben, Dan]", "Add that pair"),
        ("[Anna, Ben], [Ben, Anna], [Cara, Dan]", "circle"),
        ("[Anna, Ben, Cara]", "variables"),
    ],
)
def test_pairs_without_one_order_are_refused_before_anything_starts(tmp_path, wrong, said):
    right = "[Anna, Ben], [Ben, Cara], [Cara, Dan], [Dan, Eva]"
    with pytest.raises(ConfigError, match=rf"(?s){said}"):
        draw(tmp_path, IN_SHORT.replace(right, wrong))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("logic_puzle:\n  templates: [x]", "Did you mean 'LogicPuzzle'"),
        ("dialogue:\n  scenarios: [{type: qa, contxt: x}]", r"no family of Dialogue takes contxt, type.*scenario"),
        ("game:\n  scenarios: [{type: qa}]", r"Families that take some: none"),
        ("dialogue: 3", "a mapping of parameters"),
    ],
)
def test_what_no_family_takes_is_named_with_those_that_take_some(tmp_path, wrong, said):
    assert re.search(said, load_text(tmp_path, wrong))
