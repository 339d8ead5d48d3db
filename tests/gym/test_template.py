from pathlib import Path

import pytest

from loomrl.errors import ConfigError
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


def load_text(folder: Path, text: str) -> str:
    (folder / "t.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_templates(folder / "t.yaml")
    return str(caught.value)


def test_template_makes_the_same_task_from_the_same_seed_and_harder_ones_at_higher_levels(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(GOOD)
    (template,) = load_templates(tmp_path / "t.yaml")

    def made(level: int, seed: int) -> Task:
        return template.task(Task("Math", "1.0.0", "custom", level, seed))

    assert made(1, 3) == made(1, 3)
    assert len({made(1, seed).key for seed in range(50)}) == 50
    assert "apples" in made(1, 3).parameters["prompt"] or "pears" in made(1, 3).parameters["prompt"]
    assert all("books" in made(level, seed).parameters["prompt"] for level in (5, 9) for seed in range(5))
    assert all("books" not in made(4, seed).parameters["prompt"] for seed in range(5))
    assert made(1, 3).parameters["strict"] is True
    assert made(1, 3).parameters["template"] == "percentages"


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
def test_wrong_template_is_named_with_its_place(tmp_path: Path, broken: str, said: list[str]) -> None:
    message = load_text(tmp_path, broken)
    assert all(part in message for part in ["t.yaml", *said]), message
