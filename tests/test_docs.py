import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.algorithms import open_algorithm
from experiments.shipped import resolve
from experiments.train import train
from loomrl.config import ControlExperiment
from loomrl.gym import check_environment, register_environment
from loomrl.gym.template import load_templates
from loomrl.load import parse_yaml
from loomrl.schema import merge

DOCS = Path(__file__).parent.parent / "docs"


def blocks(file: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / file).read_text(), re.DOTALL)


@pytest.mark.system
def test_environment_of_the_guide_passes_the_checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guide_envs.py").write_text(blocks("environments.md", "python")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    register_environment(name="GuideTrading", entry_point="guide_envs:TradingEnvironment", version="1.2.0")
    report = check_environment("GuideTrading")
    assert report.passed, str(report)


def test_templates_of_the_guide_load(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(blocks("environments.md", "yaml")[0])
    assert [template.name for template in load_templates(tmp_path / "t.yaml")] == ["percentages"]


@pytest.mark.system
def test_control_policy_of_the_guide_learns(tmp_path: Path) -> None:
    assert float(said_by("control.md", 1, tmp_path).split(":")[-1]) > 60


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_algorithm_of_the_guide_is_trained_with_its_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_algorithm.py").write_text(blocks("custom.md", "python")[0])
    (tmp_path / "own.yaml").write_text(blocks("custom.md", "yaml")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = train(resolve(["own.yaml", "train.updates=1", "algorithm.settings.ceiling=2"]), run="own")
    assert (result.run, result.updates) == ("own", 1)
    config = open_algorithm(resolve(["own.yaml"])).training(quantile=0.25)
    assert (config.algorithm.ceiling, config.algorithm.quantile) == (3.0, 0.25)
    assert config.get_default_learner_class().__name__ == "OwnLearner"


@pytest.mark.system
@pytest.mark.slow
def test_team_of_the_guide_is_trained_and_judged(tmp_path: Path) -> None:
    said = said_by("control.md", 0, tmp_path)
    found = re.search(r"return of an agent: (\S+) from (\S+)", said)
    assert found is not None, said
    assert -1000 < float(found[1]) < 1000
    assert (tmp_path / found[2]).is_file()


def said_by(file: str, number: int, folder: Path) -> str:
    """What this example prints when it is run as a script."""
    (folder / "guide.py").write_text(blocks(file, "python")[number])
    environment = os.environ | {"PYTHONPATH": str(DOCS.parent), "RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, folder / "guide.py"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True, cwd=folder).stdout


def test_control_experiments_of_the_guide_are_sound() -> None:
    for text in [*blocks("control.md", "yaml"), *blocks("weave.md", "yaml")]:
        tree = merge(ControlExperiment.defaults() | {"name": "guide"}, parse_yaml(text, origin="guide"))
        assert ControlExperiment.parse(tree, origin="guide").stages


def test_local_links_of_the_documents_lead_somewhere() -> None:
    root = DOCS.parent
    for page in [*DOCS.glob("*.md"), *root.glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_default_experiment_is_the_one_the_readme_runs() -> None:
    assert resolve([]).name == "math"
