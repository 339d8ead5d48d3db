import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import ControlExperiment
from loomrl.experiments import cli
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.commands.face import ANYWHERE, LIST, SHOW, Noun
from loomrl.experiments.shipped import names, resolve
from loomrl.experiments.train import train
from loomrl.gym import check_environment, register_environment
from loomrl.gym.catalogue import make
from loomrl.gym.task_mixture import transcript
from loomrl.gym.template import load_templates
from loomrl.load import parse_yaml
from loomrl.schema import merge
from tests.algorithms.language_support import QUIET

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


def test_world_of_the_guide_is_played_by_its_oracle_with_its_keywords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake_oracle.py").write_text(
        "from loomrl.gym.adapters import toy_text\n"
        "def act(env):\n    assert env.unwrapped.spec.kwargs['is_slippery'] is False\n    return toy_text.oracle(env)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (text,) = [block for block in blocks("environments.md", "yaml") if "worlds" in block]
    ((config,),) = parse_yaml(text, origin="guide").values()
    environment = make(config["id"], config["settings"])
    for level, width in ((1, 4), (5, 8)):
        played = transcript(environment, environment.task("lake", level, 0))
        assert played[-1][1].startswith("1: "), played
        assert environment.world.keywords(level).get("map_name", "4x4") == f"{width}x{width}"


@pytest.mark.system
@pytest.mark.usefixtures("one_thread")
@QUIET
def test_control_policy_of_the_guide_learns(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(blocks("control.md", "python")[1], "guide", "exec"), {"__name__": "__main__"})
    assert float(capsys.readouterr().out.split(":")[-1]) > 60


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
@QUIET
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
def test_programs_of_the_guide_run_by_themselves(tmp_path: Path) -> None:
    found = re.search(r"return of an agent: (\S+) from (\S+)", said_by("control.md", 0, tmp_path))
    assert -1000 < float(found[1]) < 1000
    assert (tmp_path / found[2]).is_file()
    assert float(said_by("control.md", 1, tmp_path).split(":")[-1]) > 60


def said_by(file: str, number: int, folder: Path) -> str:
    """The output of this example, run as a script."""
    (folder / "guide.py").write_text(blocks(file, "python")[number])
    environment = os.environ | {"PYTHONPATH": str(DOCS.parent)}
    command = [sys.executable, folder / "guide.py"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True, cwd=folder).stdout


def test_control_experiments_of_the_guide_are_sound() -> None:
    for text in [*blocks("control.md", "yaml"), *blocks("weave.md", "yaml")]:
        tree = merge(ControlExperiment.defaults() | {"name": "guide"}, parse_yaml(text, origin="guide"))
        assert ControlExperiment.parse(tree, origin="guide").stages


def test_local_links_of_the_documents_lead_somewhere() -> None:
    root = DOCS.parent
    for page in [*DOCS.rglob("*.md"), *root.glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_default_experiment_is_the_one_the_readme_runs() -> None:
    assert resolve([]).name == "math"


PAGES = [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]
RECORDS = ("log.md", "decisions.md", "benchmarks.md", "CONTRIBUTING.md")
"""Of what was, so that they may name what is gone; and a list of packages that begins with ours."""


def code_in(page: Path) -> list[str]:
    """Inline code, and the lines of blocks."""
    text = page.read_text()
    fenced = re.findall(r"^(?:```|~~~).*?\n(.*?)^(?:```|~~~)", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^(?:```|~~~).*?\n.*?^(?:```|~~~)", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    +(.*)$", prose, re.MULTILINE)
    return [*re.findall(r"`([^`\n]+)`", prose), *indented, *(line for block in fenced for line in block.splitlines())]


def test_paths_that_a_document_names_exist() -> None:
    ours = r"(?<![\w/.:-])((?:loomrl|envs|algorithms|cluster|experiments|tests|docs)/[\w./-]*\w)"
    named = {(page.name, path) for page in PAGES for code in code_in(page) for path in re.findall(ours, code)}
    assert not [each for each in named if each[1] not in UNRELATED and not (DOCS.parent / each[1]).exists()]


UNRELATED = {"loomrl/Math-v1", "loomrl/capacity"}
"""An id of Gymnasium's, and a label of Kubernetes'."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in RECORDS], ids=lambda page: page.name)
def test_commands_that_a_document_names_exist(page: Path) -> None:
    app: Any = typer.main.get_command(cli.app)
    for code in code_in(page):
        for words in re.findall(r"(?:^|^\$ |bin/)loomrl ((?:[a-z][a-z-]*)(?: [^`#|;&)\n]*)?)", code):
            command, rest = app, words.partition(" -- ")[0].replace("…", "").split()  # behind it is another's
            while hasattr(command, "commands") and rest:
                if rest[0] == SHOW and SHOW not in command.commands:
                    rest[0] = LIST
                if rest[0] not in command.commands and isinstance(command, Noun):
                    rest.insert(0, command.default)
                name = rest.pop(0)
                assert name in command.commands, f"loomrl {words}"
                command = command.commands[name]
            known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
            asked = {word.partition("=")[0] for word in rest if word.startswith("--")}
            assert asked <= {"--help", "-h", *ANYWHERE, *known}, f"loomrl {words}"
            if command.name in ("train", "submit", "show"):
                shipped = [word for word in rest if re.fullmatch(r"[a-z]+/[a-z_]+", word)]
                assert set(shipped) <= set(names()), f"loomrl {words}"


def test_targets_of_make_that_a_document_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (DOCS.parent / "Makefile").read_text(), re.MULTILINE))
    named = {
        target for page in PAGES for code in code_in(page) for target in re.findall(r"(?:^|\s)make ([a-z-]+)", code)
    }
    assert named <= targets


def test_places_of_a_checkpoint_are_those_that_the_guide_names(tmp_path: Path) -> None:
    (tmp_path / "made/model").mkdir(parents=True)
    (tmp_path / "made/model/config.json").write_text("{}")
    Checkpoints(open_artifacts(str(tmp_path / "artifacts")), "RUN").put(40, tmp_path / "made")
    (config,) = tmp_path.glob("artifacts/runs/RUN/000040/.files-*/model/config.json")
    assert config.is_file()
    assert "`artifacts/runs/RUN/000040/.files-…`" in (DOCS / "language.md").read_text()
